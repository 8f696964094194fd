#!/bin/bash
# tools/test_interposer_gpu.sh BUILD_FOLDER: PyTorch with and without libgemmtune_cublas on a machine with an NVIDIA GPU. Captures the sizes
# of a small program, tunes them (BUDGET seconds, default 120), and runs the same program plain and interposed: results against float64,
# counts of calls served, device time of a call in a CUDA graph, host time of a call. Exit status 1 if a result is wrong, if no call is
# served, or if two runs serve different numbers of calls; times are printed, not judged.
# PYTHON: the interpreter that has torch (default python3).
set -euo pipefail

build=$(cd "${1:?usage: tools/test_interposer_gpu.sh BUILD_FOLDER}" && pwd)
python=${PYTHON:-python3}
interposer=$build/lib/libgemmtune_cublas.so
[ -f "$interposer" ] || { echo "$interposer: not built" >&2; exit 2; }
"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)' 2>/dev/null ||
  { echo "skipped: $python has no torch with a GPU"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GEMMTUNE_CONFIG_DIR=$work/config
mkdir -p "$work/config"

cat >"$work/program.py" <<'END'
import json, sys, time
import torch
import torch.nn.functional as F

out, mode = sys.argv[1], sys.argv[2]
torch.manual_seed(0)
sizes = [(m, n, k) for n, k in ((2048, 2048), (6144, 4096), (4096, 14336)) for m in (1, 8, 16, 64)]
tail = [(8, 16, 11528), (8, 64, 25608)]  # where split-K of cuBLASLt 13.1 leaves out the end of K


def error(y, x, w, bias):
    exact = x.double() @ w.double().t() + (0 if bias is None else bias.double())
    return ((y.double() - exact).abs().max() / exact.abs().max()).item()


def device_us(call):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            y = call()
    best = 1e9
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3 / 20)
    return best, y


def host_us(call):
    best = 1e9
    for _ in range(50):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            call()
        best = min(best, (time.perf_counter() - begin) * 1e4)
    torch.cuda.synchronize()
    return best


results = []
for m, n, k in sizes + tail:
    for with_bias in (False, True):
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        bias = torch.randn(n, device="cuda", dtype=torch.bfloat16) if with_bias else None
        y = F.linear(x, w, bias)
        row = {"m": m, "n": n, "k": k, "bias": with_bias, "error": error(y, x, w, bias)}
        if mode == "time":
            row["device_us"], y = device_us(lambda: F.linear(x, w, bias))
            row["graph_error"] = error(y, x, w, bias)
            row["host_us"] = host_us(lambda: F.linear(x, w, bias))
        results.append(row)
x = torch.randn(3, 64, device="cuda", dtype=torch.bfloat16)
w = torch.randn(96, 64, device="cuda", dtype=torch.bfloat16)
results.append({"m": 3, "n": 96, "k": 64, "bias": False, "untuned": True, "error": error(F.linear(x, w), x, w, None),
                "host_us": host_us(lambda: F.linear(x, w))})
torch.cuda.synchronize()
json.dump({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "rows": results}, open(out, "w"))
END

cat >"$work/report.py" <<'END'
import json, re, sys
plain, ours = (json.load(open(name)) for name in sys.argv[1:3])
lines = [[l for l in open(name) if l.startswith("gemmtune: cublas: ")] for name in sys.argv[3:5]]
print(f"torch {plain['torch']}, {plain['device']}")
print(f"{'M x N x K':>18} {'bias':>5} | {'device us':>19} | {'speed-up':>8} | {'host us':>13} | {'max error / max':>17}")
bad = 0
for a, b in zip(plain["rows"], ours["rows"]):
    size = f"{a['m']}x{a['n']}x{a['k']}"
    device = f"{a['device_us']:9.2f} {b['device_us']:9.2f} | {a['device_us'] / b['device_us']:8.2f}" if "device_us" in a else f"{'-':>19} | {'-':>8}"
    wrong = max(b["error"], b.get("graph_error", 0)) > 0.02
    bad += wrong
    print(f"{size:>18} {'yes' if a['bias'] else 'no':>5} | {device} | {a['host_us']:6.2f} {b['host_us']:6.2f} | {a['error']:8.1e} {b['error']:8.1e}"
          + ("  WRONG" if wrong else "") + ("  (untuned)" if a.get("untuned") else ""))
for said in lines[0]:
    print(said.strip())
counts = [re.findall(r"(\d+) (served|replaced|passed)", "".join(one)) for one in lines]
if counts[0] != counts[1]:
    print(f"two runs, different counts: {counts[0]} and {counts[1]}")
    bad += 1
served = dict((what, int(number)) for number, what in counts[0]).get("served", 0)
if served == 0:
    print("no call was served")
    bad += 1
sys.exit(1 if bad else 0)
END

echo "capture:"
GEMMTUNE_CAPTURE=$work/captured LD_PRELOAD=$interposer "$python" "$work/program.py" "$work/first.json" call
grep -vE '^3,96,64,' "$work/captured/bf16_untuned_gemm.csv" >"$work/untuned.csv"
wc -l <"$work/untuned.csv" | sed 's/$/ lines captured, with the header/'
"$build/gemmtune" tune -i "$work/untuned.csv" --backend cuda -o "$work/tuned.csv" --budget "${BUDGET:-120}" >"$work/tune.log" 2>&1 ||
  echo "gemmtune tune: exit status $?"
tail -5 "$work/tune.log"
[ -f "$work/tuned.csv" ] || exit 1

"$python" "$work/program.py" "$work/plain.json" time
export GEMMTUNE_CONFIG_A16W16=$work/tuned.csv
for run in 1 2; do
  LD_PRELOAD=$interposer "$python" "$work/program.py" "$work/ours$run.json" time 2>"$work/err$run" ||
    { cat "$work/err$run"; exit 1; }
done
grep -v '^gemmtune: cublas: [0-9]* calls' "$work/err1" | head -5 || true
"$python" "$work/report.py" "$work/plain.json" "$work/ours1.json" "$work/err1" "$work/err2"
