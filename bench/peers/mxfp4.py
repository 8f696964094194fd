#!/usr/bin/env python3
"""Times gemmtune's tuned kernels for weights of 4 bits (MXFP4: a16w4 of bf16 and fp16, a8w4, a4w4_blockscale; NVFP4 and int4 in groups of 128 with
bf16) beside what else computes them on this GPU, in one process: F.linear and gemmtune on bf16 weights, and with bf16 x vLLM's Marlin, for int4 its Machete,
and humming-kernels where they are installed, and for MXFP4 a Triton kernel that is written here
(tl.dot_scaled, which decodes 4-bit weights where the tensor cores have no such type; the fastest of some configs for each size). Every call is captured in a CUDA graph that rotates over
copies of the weight larger than the cache; the graphs are replayed in turns, --rounds times. Prints a table of medians in microseconds, and
geometric means of the others' times over gemmtune's by M. What is not there is named.

Usage: mxfp4.py --library build/lib/libgemmtune.so --tuned [OPERATION=]FILE.csv ... [--bf16 BF16.csv] [--forms FORM ...] [--plain]
                [--sizes N,K ...] [--rows M ...] [--rounds 9] [--triton 4] [--csv FILE]
"""

import argparse
import ctypes
import math
import statistics
import sys

import torch

import dense_8bit
import humming_ops
import vllm_ops
from dense_8bit import Operands, Problem, geometric_mean, graph_of, time_once, write_rows

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

# gpt-oss: attention's q, k, v (20b and 120b), its output, an expert's two projections; Llama-3-70B's down projection on 4 GPUs and its
# gate and up projections on 8.
SIZES = ["5120,2880", "2880,4096", "5760,2880", "2880,2880", "8192,8192", "8192,7168", "7168,8192"]
ROWS = [1, 16, 64, 256, 1024]
A16W16, A4W4, A16W4, A8W4 = 0, 5, 9, 10
A16W4_NVFP4, A16W4_INT4 = 11, 14
F16, BF16, F8, F4, I4 = 2, 3, 4, 7, 9
OPERATIONS = {"a16w4": A16W4, "a8w4": A8W4, "a4w4_blockscale": A4W4, "a16w4_nvfp4": A16W4_NVFP4, "a16w4_int4": A16W4_INT4}
GROUP = 128  # of int4
# Form -> operation, type of x, type of y.
FORMS = {"a16w4": (A16W4, BF16, BF16), "a16w4 fp16": (A16W4, F16, F16), "a8w4": (A8W4, F8, BF16), "a4w4_blockscale": (A4W4, F4, BF16),
         "a16w4_nvfp4": (A16W4_NVFP4, BF16, BF16), "a16w4_int4": (A16W4_INT4, BF16, BF16)}
SCALE_BYTES = {"a16w4_nvfp4": 1 / 16, "a16w4_int4": 2 / GROUP}  # for an element of the weight; MXFP4's: 1 / 32
ANY_LAYOUT = 1
COLD_BYTES = 300 << 20
SPAN_MICROSECONDS = 2000
TERABYTES, TERAFLOPS = 4.3, 790.0
VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


class Library(dense_8bit.Library):
    """gemmtune through its C interface, with packed weights."""

    def pack(self, problem, plain):
        """The layout in which the kernels of this weight read it, and packed copies."""
        layout = ctypes.c_int32()
        self.check(self.functions.gemmtune_weight_layout(self.context, ctypes.byref(problem), ctypes.byref(layout)))
        size = ctypes.c_size_t()
        self.check(self.functions.gemmtune_packed_weight_bytes(self.context, ctypes.byref(problem), layout, ctypes.byref(size)))
        packed = []
        for one in plain:
            packed.append(torch.empty(size.value, dtype=torch.uint8, device="cuda"))
            self.check(self.functions.gemmtune_pack_weight(self.context, ctypes.byref(problem), layout, ctypes.c_void_p(one.data_ptr()),
                                                           ctypes.c_void_p(packed[-1].data_ptr())))
        return layout.value, packed


def fp4_values(pairs):
    """Of bytes with two elements each, in float64."""
    values = torch.tensor(VALUES + [-value for value in VALUES], dtype=torch.float64, device="cuda")
    return torch.stack([values[(pairs & 15).long()], values[(pairs >> 4).long()]], dim=-1).flatten(-2)


def int4_values(pairs):
    """Of bytes with two elements each, in two's complement, in float64."""
    return torch.stack([((pairs & 15) ^ 8).double() - 8, ((pairs >> 4) ^ 8).double() - 8], dim=-1).flatten(-2)


def powers(exponents):
    """Of e8m0 scales, for every element of k."""
    return torch.pow(2.0, exponents.double() - 127).repeat_interleave(32, 1)


class Case:
    """Operands of one form and (M, N, K): x, copies of w, their scales."""

    def __init__(self, form, m, n, k):
        self.form, self.m, self.n, self.k = form, m, n, k
        random = torch.Generator(device="cuda").manual_seed(m * 7 + n * 3 + k)
        copies = max(1, math.ceil(COLD_BYTES / (n * k // 2)))
        self.bf16_x = torch.randn(m, k, generator=random, device="cuda").to(torch.bfloat16)
        self.x, self.x_scale = self.bf16_x, None
        if form == "a16w4 fp16":
            self.x = self.bf16_x.to(torch.float16)
        elif form == "a8w4":
            self.x = self.bf16_x.to(torch.float8_e4m3fn)
            self.x_scale = torch.rand(m, 1, generator=random, device="cuda") + 0.5
        elif form == "a4w4_blockscale":
            self.x = torch.randint(0, 256, (m, k // 2), generator=random, device="cuda", dtype=torch.uint8)
            self.x_scale = torch.randint(124, 130, (m, k // 32), generator=random, device="cuda", dtype=torch.uint8)
        self.w = [torch.randint(0, 256, (n, k // 2), generator=random, device="cuda", dtype=torch.uint8) for _ in range(copies)]
        self.scale = [self.scales(random) for _ in range(copies)]
        self.global_scale = torch.tensor([1 / math.sqrt(k)], dtype=torch.float32, device="cuda")  # of NVFP4
        self.y = torch.empty(m, n, dtype=torch.float16 if form == "a16w4 fp16" else torch.bfloat16, device="cuda")
        self.bf16_y = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")

    def scales(self, random):
        """Of one copy of the weight."""
        if self.form == "a16w4_nvfp4":
            return (torch.rand(self.n, self.k // 16, generator=random, device="cuda") + 0.5).to(torch.float8_e4m3fn)
        if self.form == "a16w4_int4":
            return ((torch.rand(self.n, self.k // GROUP, generator=random, device="cuda") + 0.5) / math.sqrt(self.k)).to(torch.bfloat16)
        return torch.randint(118, 124, (self.n, self.k // 32), generator=random, device="cuda", dtype=torch.uint8)

    def floor(self):
        moved = self.n * self.k * (1 / 2 + SCALE_BYTES.get(self.form, 1 / 32)) + self.x.numel() * self.x.element_size() + 2 * self.m * self.n
        return max(moved / TERABYTES / 1e6, 2.0 * self.m * self.n * self.k / TERAFLOPS / 1e6)

    def expected(self):
        """The first rows in float64."""
        if self.form == "a16w4_int4":
            w = int4_values(self.w[0]) * self.scale[0].double().repeat_interleave(GROUP, 1)
        elif self.form == "a16w4_nvfp4":
            w = fp4_values(self.w[0]) * self.scale[0].double().repeat_interleave(16, 1) * self.global_scale.double()
        else:
            w = fp4_values(self.w[0]) * powers(self.scale[0])
        if self.form == "a4w4_blockscale":
            x = fp4_values(self.x[:16]) * powers(self.x_scale[:16])
        else:
            x = self.x[:16].double() * (self.x_scale[:16].double() if self.x_scale is not None else 1)
        return x @ w.T


def fp4_call(library, case, packed, dependent):
    operation, x_type, y_type = FORMS[case.form]
    is_int4 = operation == A16W4_INT4
    problem = Problem(size=ctypes.sizeof(Problem), operation=operation, x_type=x_type, w_type=I4 if is_int4 else F4, y_type=y_type, m=case.m, n=case.n,
                      k=case.k, constant_weights=int(dependent), predecessor_triggers=int(dependent), w_group=GROUP if is_int4 else 0)
    weights = case.w
    if packed:
        problem.weight_layout = ANY_LAYOUT
        problem.weight_layout, weights = library.pack(problem, case.w)
    operands = [Operands(size=ctypes.sizeof(Operands), x=case.x.data_ptr(), w=w.data_ptr(), y=case.y.data_ptr(), w_scale=scale.data_ptr(),
                         x_scale=None if case.x_scale is None else case.x_scale.data_ptr(), w_global_scale=case.global_scale.data_ptr())
                for w, scale in zip(weights, case.scale)]

    def call(i, _kept=weights):
        library.gemm(problem, operands[i % len(operands)])

    return call


def bf16_calls(library, case):
    """F.linear, and gemmtune's kernel where there is a library: on bf16 weights, with their own copies."""
    copies = max(1, math.ceil(COLD_BYTES / (2 * case.n * case.k)))
    w = [torch.randn(case.n, case.k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    calls = {"F.linear bf16": lambda i: torch.mm(case.bf16_x, w[i % copies].T, out=case.bf16_y)}
    if library is not None:
        problem = Problem(size=ctypes.sizeof(Problem), operation=A16W16, x_type=BF16, y_type=BF16, m=case.m, n=case.n, k=case.k)
        operands = [Operands(size=ctypes.sizeof(Operands), x=case.bf16_x.data_ptr(), w=one.data_ptr(), y=case.bf16_y.data_ptr()) for one in w]
        calls["gemmtune bf16"] = lambda i: library.gemm(problem, operands[i % copies])
    return calls


if triton is not None:

    @triton.jit
    def triton_a16w4(x, w, scale, y, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
        rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
        at_k = tl.arange(0, BLOCK_K)
        at_byte = tl.arange(0, BLOCK_K // 2)
        at_scale = tl.arange(0, BLOCK_K // 32)
        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for first in range(0, k, BLOCK_K):
            a = tl.load(x + rows[:, None] * k + first + at_k[None, :], mask=(rows[:, None] < m) & (first + at_k[None, :] < k), other=0.0)
            b = tl.load(w + columns[None, :] * (k // 2) + first // 2 + at_byte[:, None],
                        mask=(columns[None, :] < n) & (first // 2 + at_byte[:, None] < k // 2), other=0)
            s = tl.load(scale + columns[:, None] * (k // 32) + first // 32 + at_scale[None, :],
                        mask=(columns[:, None] < n) & (first // 32 + at_scale[None, :] < k // 32), other=0)
            sums = tl.dot_scaled(a, None, "bf16", b, s, "e2m1", sums)
        tl.store(y + rows[:, None] * n + columns[None, :], sums.to(tl.bfloat16), mask=(rows[:, None] < m) & (columns[None, :] < n))


def triton_call(case, most):
    """The fastest of at most `most` configs."""
    block_m = max(16, min(128, triton.next_power_of_2(case.m)))
    configs = [(64, 128, 4, 4), (32, 256, 4, 4), (64, 256, 4, 3), (128, 128, 4, 3)] if case.m <= 64 else \
              [(128, 128, 8, 3), (128, 64, 8, 4), (64, 128, 4, 4), (256, 64, 8, 3)]

    def of(block_n, block_k, warps, stages):
        grid = (triton.cdiv(case.n, block_n), triton.cdiv(case.m, block_m))

        def call(i):
            at = i % len(case.w)
            triton_a16w4[grid](case.x, case.w[at], case.scale[at], case.y, case.m, case.n, case.k, BLOCK_M=block_m, BLOCK_N=block_n,
                               BLOCK_K=block_k, num_warps=warps, num_stages=stages)

        return call

    best, best_us, why = None, math.inf, None
    for config in configs[:most]:
        call = of(*config)
        try:
            graph = graph_of(call, len(case.w), 20)
            time_once(graph, 20)
            us = min(time_once(graph, 20) for _ in range(2))
        except Exception as error:  # a config may not compile or fit
            why = error
            torch.cuda.synchronize()
            continue
        if us < best_us:
            best, best_us = call, us
    if best is None:
        raise RuntimeError(f"no config runs: {why}")
    return best


def measure(case, library, options, missing):
    """Name -> (median us, relative error)."""
    makers = {"gemmtune": lambda: fp4_call(library, case, not options.plain, False)}
    if options.dependent:
        makers["gemmtune dependent"] = lambda: fp4_call(library, case, not options.plain, True)
    if triton is None:
        missing["triton"] = "is not installed"
    elif options.triton > 0 and case.form == "a16w4":
        makers["triton dot_scaled"] = lambda: triton_call(case, options.triton)
    if case.form in ("a16w4", "a16w4_nvfp4", "a16w4_int4"):
        makers["vLLM Marlin"] = lambda: vllm_ops.marlin(case)
        makers["humming"] = lambda: humming_ops.linear(case)
    if case.form == "a16w4_int4":
        makers["vLLM Machete"] = lambda: vllm_ops.machete(case)
    calls = {}
    for name, make in makers.items():
        try:
            calls[name] = make()
        except Exception as error:
            missing.setdefault(f"{case.form}: {name} at {case.m} x {case.n} x {case.k}", str(error)[:200].replace("\n", " "))
    calls.update(bf16_calls(library, case))
    copies = len(case.w)
    expected = case.expected()
    graphs, errors = {}, {}
    for name, call in calls.items():
        try:
            case.y.zero_()
            returned = call(0)
            torch.cuda.synchronize()
            if "bf16" not in name:
                y = case.y if returned is None else returned
                errors[name] = float((y[:16].double() - expected).norm() / expected.norm())
            count = max(copies, math.ceil(SPAN_MICROSECONDS / max(case.floor() * 1.5, 5)))
            graphs[name] = (graph_of(call, copies, count), count)
        except Exception as error:
            missing.setdefault(f"{case.form}: {name} at {case.m} x {case.n} x {case.k}", str(error)[:200].replace("\n", " "))
            torch.cuda.synchronize()
    times = {name: [] for name in graphs}
    for name, (graph, count) in graphs.items():
        time_once(graph, count)
    for _ in range(options.rounds):
        for name, (graph, count) in graphs.items():
            times[name].append(time_once(graph, count))
    return {name: (statistics.median(values), errors.get(name, 0.0)) for name, values in times.items()}


def print_tables(form, rows, options):
    rows = [row for row in rows if row["form"] == form]
    names = list(dict.fromkeys(row["who"] for row in rows))
    print(f"\n{form}: us (share of the 4-bit floor)\n| N x K | M | " + " | ".join(names) + " |\n|" + " --- |" * (2 + len(names)))
    for n, k, m in dict.fromkeys((row["n"], row["k"], row["m"]) for row in rows):
        cells = {row["who"]: f"{row['us']:.1f} ({row['share_of_floor']:.2f})" for row in rows if (row["n"], row["k"], row["m"]) == (n, k, m)}
        print(f"| {n} x {k} | {m} | " + " | ".join(cells.get(name, "-") for name in names) + " |")
    others = [name for name in names if not name.startswith("gemmtune") or name == "gemmtune bf16"]
    print("\n| over gemmtune | " + " | ".join(others) + " | gemmtune bf16 from 30 MB | dependent |\n|" + " --- |" * (3 + len(others)))
    for m in options.rows:
        ratios = {name: [] for name in others + ["large", "dependent"]}
        for n, k in dict.fromkeys((row["n"], row["k"]) for row in rows):
            here = {row["who"]: row["us"] for row in rows if (row["n"], row["k"], row["m"]) == (n, k, m)}
            if "gemmtune" not in here:
                continue
            for name in others:
                if name in here:
                    ratios[name].append(here[name] / here["gemmtune"])
            if "gemmtune bf16" in here and 2 * n * k >= 30e6:
                ratios["large"].append(here["gemmtune bf16"] / here["gemmtune"])
            if "gemmtune dependent" in here:
                ratios["dependent"].append(here["gemmtune"] / here["gemmtune dependent"])
        print(f"| M = {m} | " + " | ".join(f"{geometric_mean(ratios[name]):.3f}" for name in others + ["large", "dependent"]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--tuned", required=True, nargs="+", help="tuned files, of packed weights unless --plain; of a16w4 without OPERATION=")
    parser.add_argument("--forms", nargs="*", default=["a16w4"], choices=list(FORMS))
    parser.add_argument("--bf16", help="tuned file of bf16 weights")
    parser.add_argument("--plain", action="store_true", help="weights as a checkpoint has them")
    parser.add_argument("--dependent", action="store_true", help="also programmatic dependent launches")
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--triton", type=int, default=4, help="configs of the Triton kernel for each size; 0: none")
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("mxfp4: no GPU here")
    tuned = {OPERATIONS[name or "a16w4"]: file for name, _, file in (text.rpartition("=") for text in options.tuned)}
    if options.bf16:
        tuned[A16W16] = options.bf16
    library = Library(options.library, tuned)
    rows, missing = [], {}
    for form in options.forms:
        for size in options.sizes:
            n, k = (int(part) for part in size.split(","))
            for m in options.rows:
                case = Case(form, m, n, k)
                for name, (median, error) in measure(case, library, options, missing).items():
                    rows.append({"form": form, "n": n, "k": k, "m": m, "who": name, "us": round(median, 3),
                                 "share_of_floor": round(case.floor() / median, 3), "error": f"{error:.2e}"})
                del case
                torch.cuda.empty_cache()
                if options.csv:
                    write_rows(options.csv, rows)
        print_tables(form, rows, options)
    for name, why in missing.items():
        print(f"not there: {name}: {why}")


if __name__ == "__main__":
    main()
