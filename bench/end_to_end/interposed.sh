#!/bin/bash
# The program of language_model.py --plain, which knows nothing of gemmtune, with and without libgemmtune_cublas.so: tokens a second, the
# difference of the logits, and the calls that the library served, in two runs.
#
# Usage: bench/end_to_end/interposed.sh LIBRARY TUNED [OPTION OF language_model.py ...]
#   LIBRARY: build/lib/libgemmtune_cublas.so; TUNED: a tuned file of a16w16, such as the MODEL.tuned.csv of language_model.py
# Exit status 1 if the logits differ by more than bf16's noise, no call is served, or two runs serve different numbers of calls.
# PYTHON: the interpreter that has torch and transformers (python3).
set -euo pipefail
library=$(realpath "${1:?usage: interposed.sh LIBRARY TUNED [OPTION ...]}")
tuned=$(realpath "${2:?usage: interposed.sh LIBRARY TUNED [OPTION ...]}")
shift 2
program=$(dirname "$(realpath "$0")")/language_model.py
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GEMMTUNE_CONFIG_DIR=$work/config
mkdir -p "$GEMMTUNE_CONFIG_DIR"

run() {
  local name=$1
  shift
  "$python" "$program" --plain --output "$work/$name.csv" --logits "$work/$name.pt" "$@" >"$work/$name.out" 2>"$work/$name.err" ||
    { cat "$work/$name.out" "$work/$name.err" >&2; exit 1; }
}
run plain "$@"
for turn in 1 2; do
  (export LD_PRELOAD=$library GEMMTUNE_CONFIG_A16W16=$tuned; run "interposed$turn" "$@")
done
"$python" - "$work" <<'END_OF_REPORT'
import csv, re, sys
import torch

work = sys.argv[1]
names = ("plain", "interposed1", "interposed2")
plain, first, second = ({(row["model"], row["case"]): row for row in csv.DictReader(open(f"{work}/{name}.csv"))} for name in names)
logits = [torch.load(f"{work}/{name}.pt") for name in names]
bad = 0
print(f"{'model':14}{'case':14}{'plain ms':>10}{'interposed ms':>20}{'speed-up':>16}{'logits differ':>15}")
for key, row in plain.items():
    times = [float(one[key]["ms"]) for one in (plain, first, second)]
    exact = logits[0][" ".join(key)].double()
    difference = max(((one[" ".join(key)].double() - exact).norm() / exact.norm()).item() for one in logits[1:])
    bad += difference > 0.1
    print(f"{key[0]:14}{key[1]:14}{times[0]:10.4f}{times[1]:10.4f}{times[2]:10.4f}{times[0] / times[1]:8.3f}{times[0] / times[2]:8.3f}"
          f"{difference:15.2e}" + ("  WRONG" if difference > 0.1 else ""))
lines = [[line.strip() for line in open(f"{work}/{name}.err") if re.match("gemmtune: cublas: [0-9]+ calls", line)] for name in names[1:]]
for line in lines[0]:
    print(line)
if lines[0] != lines[1]:
    print("two runs, different counts:", *lines[1], sep="\n")
    bad += 1
if not any(int(number) for line in lines[0] for number in re.findall("([0-9]+) served", line)):
    print("no call was served")
    bad += 1
sys.exit(1 if bad else 0)
END_OF_REPORT
