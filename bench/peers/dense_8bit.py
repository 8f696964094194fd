#!/usr/bin/env python3
"""Times gemmtune's tuned kernels for 8-bit operands beside what else computes them on this GPU, in one process: PyTorch's
_scaled_mm and _int_mm, vLLM's CUTLASS kernels and DeepGEMM where they are installed, a bf16 linear. Every call is captured in a CUDA graph that rotates over
copies of the weight larger than the cache; the graphs are replayed in turns, --rounds times. Prints a table of medians in
microseconds, and geometric means of the best peer's time over gemmtune's by M. What is not there is named. DeepGEMM for PyTorch 2.11:
sgl-deep-gemm 0.1.4.post1 and apache-tvm-ffi (later ones are built for later PyTorches); it compiles each kernel with nvcc at its first call.

Usage: dense_8bit.py --library build/lib/libgemmtune.so --tuned [fp8row=FILE] [int8=FILE] [fp8block=FILE]
                     [--sizes N,K ...] [--rows M ...] [--rounds 9] [--csv FILE]
"""

import argparse
import csv
import ctypes
import math
import statistics
import sys

import torch

import vllm_ops

SIZES = ["1280,8192", "2112,7168", "4096,7168", "7168,2048", "24576,1536", "7168,16384"]
ROWS = [1, 16, 64, 128, 512, 4096]
A8W8, A8W8_BLOCKSCALE = 1, 3
BF16, F8_E4M3FN, I8 = 3, 4, 6
COLD_BYTES = 300 << 20
SPAN_MICROSECONDS = 2500
SLEEP_CYCLES = 1_000_000  # of the GPU, half a millisecond: longer than the host needs to launch a graph
TERABYTES, TERAFLOPS = 4.3, 1580.0


class TunedFiles(ctypes.Structure):
    _fields_ = [("operation", ctypes.c_int), ("paths", ctypes.c_char_p)]


class ContextOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("config_folder", ctypes.c_char_p), ("tuned_files", ctypes.POINTER(TunedFiles)),
                ("tuned_file_count", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("threads", ctypes.c_int32), ("strict_environment", ctypes.c_int32), ("log_config", ctypes.c_int32),
                ("capture", ctypes.c_int32), ("capture_folder", ctypes.c_char_p), ("parallel_for", ctypes.c_void_p),
                ("parallel_for_context", ctypes.c_void_p), ("log", ctypes.c_void_p), ("log_context", ctypes.c_void_p),
                ("verify_untuned", ctypes.c_int32)]


class Problem(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("operation", ctypes.c_int), ("x_type", ctypes.c_int), ("w_type", ctypes.c_int),
                ("y_type", ctypes.c_int), ("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
                ("batch", ctypes.c_int64), ("bias", ctypes.c_int32), ("scale_ab", ctypes.c_int32),
                ("weight_layout", ctypes.c_int32), ("alignment", ctypes.c_int32), ("moe", ctypes.c_void_p),
                ("constant_weights", ctypes.c_int32), ("predecessor_triggers", ctypes.c_int32), ("x_order", ctypes.c_int),
                ("w_order", ctypes.c_int), ("e8m0_scales", ctypes.c_int32), ("w_group", ctypes.c_int32), ("zero_points", ctypes.c_int32)]


class Operands(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("x", ctypes.c_void_p), ("w", ctypes.c_void_p), ("bias", ctypes.c_void_p),
                ("y", ctypes.c_void_p), ("ldx", ctypes.c_int64), ("ldy", ctypes.c_int64), ("x_scale", ctypes.c_void_p),
                ("w_scale", ctypes.c_void_p), ("x_scale_per_tensor", ctypes.c_int32), ("w_scale_per_tensor", ctypes.c_int32),
                ("x_batch_stride", ctypes.c_int64), ("y_batch_stride", ctypes.c_int64), ("moe", ctypes.c_void_p),
                ("x_global_scale", ctypes.c_void_p), ("w_global_scale", ctypes.c_void_p), ("w_zero_points", ctypes.c_void_p)]


class Library:
    """gemmtune through its C interface."""

    def __init__(self, path, tuned):
        self.functions = ctypes.CDLL(path)
        self.functions.gemmtune_last_error.restype = ctypes.c_char_p
        files = (TunedFiles * len(tuned))(*[TunedFiles(operation, file.encode()) for operation, file in tuned.items()])
        options = ContextOptions(size=ctypes.sizeof(ContextOptions), tuned_files=files, tuned_file_count=len(tuned), backend=b"cuda")
        self.context = ctypes.c_void_p()
        self.check(self.functions.gemmtune_context_create(ctypes.byref(options), ctypes.byref(self.context)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.functions.gemmtune_last_error().decode())

    def gemm(self, problem, operands):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(self.functions.gemmtune_gemm(self.context, ctypes.byref(problem), ctypes.byref(operands), stream))


class Case:
    """Operands of one (format, M, N, K): x, copies of w, their scales."""

    def __init__(self, form, m, n, k):
        self.form, self.m, self.n, self.k = form, m, n, k
        random = torch.Generator(device="cuda").manual_seed(m * 7 + n * 3 + k)
        copies = max(1, math.ceil(COLD_BYTES / (n * k)))

        def elements(rows):
            if form == "int8":
                return torch.randint(-127, 128, (rows, k), generator=random, device="cuda", dtype=torch.int8)
            return torch.randn(rows, k, generator=random, device="cuda").to(torch.float8_e4m3fn)

        def scales(*shape):
            return (torch.rand(*shape, generator=random, device="cuda") + 0.5) / math.sqrt(k)

        self.x = elements(m)
        self.w = [elements(n) for _ in range(copies)]
        blocks = math.ceil(k / 128)
        self.x_scale = scales(m, blocks) if form == "fp8block" else scales(m, 1)
        self.w_scale = scales(math.ceil(n / 128), blocks) if form == "fp8block" else scales(n, 1)
        self.y = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")

    def floor(self):
        moved = self.n * self.k + self.m * self.k + 2 * self.m * self.n
        return max(moved / TERABYTES / 1e6, 2.0 * self.m * self.n * self.k / TERAFLOPS / 1e6)

    def expected(self):
        """The first rows in float64."""
        rows = min(self.m, 16)
        x, w = self.x[:rows].double(), self.w[0].double()
        if self.form == "fp8block":
            x = x * self.x_scale[:rows].double().repeat_interleave(128, 1)[:, : self.k]
            w = w * self.w_scale.double().repeat_interleave(128, 0)[: self.n].repeat_interleave(128, 1)[:, : self.k]
            return x @ w.T
        return (x @ w.T) * self.x_scale[:rows].double() * self.w_scale.double().T


def gemmtune_call(library, case, dependent):
    form = I8 if case.form == "int8" else F8_E4M3FN
    operation = A8W8_BLOCKSCALE if case.form == "fp8block" else A8W8
    problem = Problem(size=ctypes.sizeof(Problem), operation=operation, x_type=form, y_type=BF16, m=case.m, n=case.n, k=case.k,
                      constant_weights=int(dependent), predecessor_triggers=int(dependent))
    operands = [Operands(size=ctypes.sizeof(Operands), x=case.x.data_ptr(), w=w.data_ptr(), y=case.y.data_ptr(),
                         x_scale=case.x_scale.data_ptr(), w_scale=case.w_scale.data_ptr()) for w in case.w]
    return lambda i: library.gemm(problem, operands[i])


def peers_of(case, missing):
    """Name -> call(i): writes case.y from copy i of the weight."""
    calls = {}
    if case.form == "fp8row":
        def scaled(i, fast):
            torch._scaled_mm(case.x, case.w[i].T, case.x_scale, case.w_scale.T, out_dtype=torch.bfloat16, use_fast_accum=fast, out=case.y)

        calls["torch_row"] = lambda i: scaled(i, False)
        calls["torch_row_fast"] = lambda i: scaled(i, True)
    if case.form == "fp8block":
        x_scale = case.x_scale.T.contiguous().T
        w_scale = case.w_scale.contiguous().T

        calls["torch_block"] = lambda i: torch._scaled_mm(case.x, case.w[i].T, x_scale, w_scale, out_dtype=torch.bfloat16, out=case.y)
        try:
            import deep_gemm

            aligned = deep_gemm.get_mn_major_tma_aligned_tensor(case.x_scale)
            calls["deep_gemm"] = lambda i: deep_gemm.fp8_gemm_nt((case.x, aligned), (case.w[i], case.w_scale), case.y)
        except Exception as error:  # an extension may fail to load in many ways
            missing["deep_gemm"] = f"{type(error).__name__}: {str(error)[:200]}"
    if case.form == "int8":
        rows = max(case.m, 32)  # _int_mm takes no fewer than 17
        x = torch.zeros(rows, case.k, dtype=torch.int8, device="cuda")
        x[: case.m] = case.x
        sums = torch.empty(rows, case.n, dtype=torch.int32, device="cuda")

        @torch.compile(dynamic=False)
        def rescale(sums, x_scale, w_scale):
            return (sums.float() * x_scale * w_scale).to(torch.bfloat16)

        def int_mm(i):
            torch._int_mm(x, case.w[i].T, out=sums)
            case.y.copy_(rescale(sums[: case.m], case.x_scale, case.w_scale.T))

        calls["torch_int_mm+scale"] = int_mm
    try:
        calls["vllm_cutlass"] = vllm_ops.scaled_mm(case)
    except ImportError as error:
        missing["vllm_cutlass"] = str(error)[:200]
    return calls


def bf16_linear(case):
    copies = max(1, math.ceil(COLD_BYTES / (2 * case.n * case.k)))
    x = torch.randn(case.m, case.k, device="cuda", dtype=torch.bfloat16)
    w = [torch.randn(case.n, case.k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    return lambda i: torch.mm(x, w[i % copies].T, out=case.y)


def graph_of(call, copies, calls):
    """A graph of `calls` calls after a warm-up, which also makes plans and compiles."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(min(copies, 3)):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(calls):
            call(i % copies)
    return graph


def time_once(graph, calls):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(SLEEP_CYCLES)  # else the GPU waits between `begin` and the graph while the host launches it
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / calls


def measure(case, library, rounds, missing):
    """Name -> (median us, relative error)."""
    calls = {"gemmtune": gemmtune_call(library, case, False), "gemmtune dependent": gemmtune_call(library, case, True)}
    calls.update(peers_of(case, missing))
    calls["bf16 linear"] = bf16_linear(case)
    copies = len(case.w)
    expected = case.expected()
    graphs, errors = {}, {}
    for name, call in calls.items():
        try:
            case.y.zero_()
            call(0)
            torch.cuda.synchronize()
            if name != "bf16 linear":
                error = (case.y[: expected.shape[0]].double() - expected).norm() / expected.norm()
                errors[name] = float(error)
            count = max(copies, math.ceil(SPAN_MICROSECONDS / max(case.floor() * 1.5, 5)))
            graphs[name] = (graph_of(call, copies, count), count)
        except Exception as error:  # a peer that does not take this size
            missing.setdefault(f"{name} at {case.m} x {case.n} x {case.k}", str(error)[:160].replace("\n", " "))
            torch.cuda.synchronize()
    times = {name: [] for name in graphs}
    for name, (graph, count) in graphs.items():
        time_once(graph, count)
        time_once(graph, count)
    for _ in range(rounds):
        for name, (graph, count) in graphs.items():
            times[name].append(time_once(graph, count))
    return {name: (statistics.median(values), errors.get(name, 0.0)) for name, values in times.items()}


def write_rows(path, rows):
    """A CSV of dictionaries that all have the keys of the first."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values)) if values else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--tuned", nargs="+", required=True, help="format=FILE: fp8row, int8, fp8block")
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("dense_8bit: no GPU here")
    tuned = dict(word.split("=", 1) for word in options.tuned)
    rows, missing = [], {}
    for form, file in tuned.items():
        if form not in ("fp8row", "int8", "fp8block"):
            sys.exit(f"dense_8bit: '{form}' is no format: fp8row, int8 or fp8block")
        library = Library(options.library, {A8W8_BLOCKSCALE if form == "fp8block" else A8W8: file})
        for size in options.sizes:
            n, k = (int(part) for part in size.split(","))
            for m in options.rows:
                case = Case(form, m, n, k)
                for name, (median, error) in measure(case, library, options.rounds, missing).items():
                    rows.append({"format": form, "n": n, "k": k, "m": m, "who": name, "us": round(median, 3),
                                 "share_of_floor": round(case.floor() / median, 3), "error": f"{error:.2e}"})
                del case
                torch.cuda.empty_cache()
    if options.csv:
        write_rows(options.csv, rows)
    for form in tuned:
        mine = [row for row in rows if row["format"] == form]
        names = list(dict.fromkeys(row["who"] for row in mine))
        print(f"\n{form}, us (share of the floor)\n| N x K | M | " + " | ".join(names) + " |\n|" + " --- |" * (2 + len(names)))
        for n, k, m in dict.fromkeys((row["n"], row["k"], row["m"]) for row in mine):
            cells = {row["who"]: f"{row['us']:.1f} ({row['share_of_floor']:.2f})" for row in mine if (row["n"], row["k"], row["m"]) == (n, k, m)}
            print(f"| {n} x {k} | {m} | " + " | ".join(cells.get(name, "-") for name in names) + " |")
        print(f"\n| {form}: best peer over gemmtune | plain | least | dependent | bf16 linear over plain |\n| --- | --- | --- | --- | --- |")
        for m in options.rows:
            ratios, dependent, linear = [], [], []
            for n, k in dict.fromkeys((row["n"], row["k"]) for row in mine):
                here = {row["who"]: row["us"] for row in mine if (row["n"], row["k"], row["m"]) == (n, k, m)}
                peers = [us for who, us in here.items() if not who.startswith("gemmtune") and who != "bf16 linear"]
                if peers and "gemmtune" in here:
                    ratios.append(min(peers) / here["gemmtune"])
                    dependent.append(min(peers) / min(here["gemmtune"], here.get("gemmtune dependent", math.inf)))
                if "bf16 linear" in here and "gemmtune" in here:
                    linear.append(here["bf16 linear"] / here["gemmtune"])
            least = min(ratios) if ratios else float("nan")
            print(f"| M = {m} | {geometric_mean(ratios):.3f} | {least:.3f} | {geometric_mean(dependent):.3f} | {geometric_mean(linear):.3f} |")
    for name, why in missing.items():
        print(f"not there: {name}: {why}")


if __name__ == "__main__":
    main()
