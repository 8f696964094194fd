#!/usr/bin/env python3
"""What the rows of a batch-invariant bf16 table cost on this GPU beside PyTorch's linear, and whether that gives a row the same bits in every batch.
(bench/invariant_sweep.py compares the bits of a table.)

Bits: for each (N, K) of the file PyTorch's linear runs at its M, on the first M rows of one x; all rows are compared with those of M = --most.
Times: at the M of the file gemmtune and PyTorch's linear are captured in CUDA graphs that rotate over copies of the weight larger than the cache,
and replayed in turns. With --one-workspace PyTorch runs as vLLM's batch-invariant mode sets it: cuBLASLt with a workspace of 1 KiB and sums in
float32. These settings hold for a whole process, so that each kind of PyTorch needs a run of its own.

Usage: invariant.py --library build/lib/libgemmtune.so --tuned FILE [--most 8192] [--rounds 9] [--one-workspace] [--no-bits] [--no-times]
                    [--csv FILE]"""

import argparse
import csv
import ctypes
import math
import os
import statistics
import sys

ONE_WORKSPACE = {"CUBLASLT_WORKSPACE_SIZE": "1", "CUBLAS_WORKSPACE_CONFIG": ":16:8"}
if "--one-workspace" in sys.argv:
    os.environ.update(ONE_WORKSPACE)  # before PyTorch reads them

import torch  # noqa: E402
from dense_8bit import BF16, Library, Operands, Problem, geometric_mean, graph_of, time_once, write_rows  # noqa: E402

A16W16 = 0
COLD_BYTES = 300 << 20
CALLS = 64  # of a graph


def sizes_of(path):
    """(N, K) -> the M of its rows that have a bit class."""
    sizes = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row.get("bits"):
                sizes.setdefault((int(row["N"]), int(row["K"])), []).append(int(row["M"]))
    return sizes


def gemmtune(library, x, w, y):
    problem = Problem(size=ctypes.sizeof(Problem), operation=A16W16, x_type=BF16, w_type=BF16, y_type=BF16, m=x.shape[0], n=w.shape[0],
                      k=w.shape[1])
    library.gemm(problem, Operands(size=ctypes.sizeof(Operands), x=x.data_ptr(), w=w.data_ptr(), y=y.data_ptr()))


def varied_rows(m, k, generator):
    """Rows that differ in magnitude, every fourth of one sign, every eighth with its last 67 elements large."""
    x = torch.randn(m, k, generator=generator, device="cuda")
    x *= 2.0 ** torch.randint(-6, 7, (m, 1), generator=generator, device="cuda")
    x[1::4] = x[1::4].abs()
    x[3::8, -67:] *= 256
    return x.to(torch.bfloat16)


def compare_bits(n, k, listed, most):
    """How many of the listed M give all rows the bits that they have at M = `most`."""
    generator = torch.Generator(device="cuda").manual_seed(n + k)
    x = varied_rows(most, k, generator)
    w = (torch.randn(n, k, generator=generator, device="cuda") / math.sqrt(k)).to(torch.bfloat16)
    whole = torch.nn.functional.linear(x, w).view(torch.int16)
    return sum(torch.equal(torch.nn.functional.linear(x[:m], w).view(torch.int16), whole[:m]) for m in listed)


def compare_times(library, n, k, m, rounds, linear):
    """Median microseconds of both, and the ratio of PyTorch's time to gemmtune's, the median of paired rounds."""
    copies = max(1, math.ceil(COLD_BYTES / (2 * n * k)))
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    w = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    calls = max(CALLS, copies)
    graphs = [graph_of(lambda i: gemmtune(library, x, w[i], y), copies, calls),
              graph_of(lambda i: torch.nn.functional.linear(x, w[i]), copies, calls)]
    times = [[], []]
    for turn in range(rounds + 2):
        for graph, of_graph in zip(graphs, times):
            microseconds = time_once(graph, calls)
            if turn > 1:
                of_graph.append(microseconds)
    ratio = statistics.median(theirs / ours for ours, theirs in zip(*times))
    return {"n": n, "k": k, "m": m, "linear": linear, "us": round(statistics.median(times[0]), 2),
            "linear_us": round(statistics.median(times[1]), 2), "ratio": round(ratio, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--tuned", required=True)
    parser.add_argument("--most", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--one-workspace", action="store_true")
    parser.add_argument("--no-bits", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("invariant: no GPU here")
    if options.one_workspace:
        torch.backends.cuda.preferred_blas_library("cublaslt")
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    sizes = sizes_of(options.tuned)
    if not sizes:
        sys.exit(f"invariant: {options.tuned} has no rows with a bit class")
    library = Library(options.library, {A16W16: options.tuned})
    linear = "one workspace" if options.one_workspace else "stock"
    if not options.no_times:
        rows = [compare_times(library, n, k, m, options.rounds, linear) for (n, k), listed in sizes.items() for m in listed]
        if options.csv:
            write_rows(options.csv, rows)
        for m in sorted({row["m"] for row in rows}):
            ratios = [row["ratio"] for row in rows if row["m"] == m]
            print(f"M = {m}: PyTorch's linear ({linear}) over gemmtune: {geometric_mean(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}, "
                  f"{len(ratios)} weights", flush=True)
    if not options.no_bits:
        for (n, k), listed in sizes.items():
            equal = compare_bits(n, k, listed, options.most)
            print(f"{n} x {k}: PyTorch's linear ({linear}) has the bits of M = {options.most} at {equal} of {len(listed)} M", flush=True)


if __name__ == "__main__":
    main()
