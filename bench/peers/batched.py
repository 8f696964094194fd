#!/usr/bin/env python3
"""Times gemmtune's tuned kernels for batched products beside torch.bmm on this GPU, in one process: the absorbed products of
multi-head latent attention, where each head multiplies its own weight. Every call is captured in a CUDA graph that rotates
over copies of the weight larger than the cache; the graphs are replayed in turns, --rounds times. torch.bmm has the weight
as [B, N, K] and as [B, K, N], the form in which it is commonly stored; --side-by-side times x and y as views of [M, B, .],
as attention has them. Prints medians in microseconds, and geometric means of torch.bmm's time over gemmtune's.

Usage: batched.py --library build/lib/libgemmtune.so --tuned FILE [--batches 16 128] [--sizes N,K ...] [--rows M ...]
                  [--side-by-side] [--rounds 9] [--csv FILE]
"""

import argparse
import ctypes
import math
import statistics
import sys

import torch

from dense_8bit import BF16, COLD_BYTES, SPAN_MICROSECONDS, TERABYTES, Library, Operands, Problem, geometric_mean, graph_of, time_once, write_rows

BATCHED_BF16 = 6
TERAFLOPS = 790.0
PEERS = ("torch.bmm", "torch.bmm [B,K,N]")


class Case:
    """x [B, M, K], copies of w [B, N, K], y [B, M, N]; x and y side by side are views of [M, B, .]."""

    def __init__(self, batch, m, n, k, side_by_side):
        self.batch, self.m, self.n, self.k = batch, m, n, k
        random = torch.Generator(device="cuda").manual_seed(batch * 11 + m * 7 + n * 3 + k)

        def matrices(*shape):
            return torch.randn(*shape, generator=random, device="cuda", dtype=torch.bfloat16)

        def views(columns, make):
            return make(m, batch, columns).transpose(0, 1) if side_by_side else make(batch, m, columns)

        copies = max(1, math.ceil(COLD_BYTES / (2 * batch * n * k)))
        self.x = views(k, matrices)
        self.y = views(n, lambda *shape: torch.empty(*shape, device="cuda", dtype=torch.bfloat16))
        self.w = [matrices(batch, n, k) for _ in range(copies)]
        self.transposed = [w.transpose(1, 2).contiguous() for w in self.w]

    def floor(self):
        sizes = self.n * self.k + self.m * self.k + self.m * self.n
        return max(2.0 * self.batch * sizes / TERABYTES / 1e6, 2.0 * self.batch * self.m * self.n * self.k / TERAFLOPS / 1e6)

    def calls(self, library):
        """Name -> call(i): writes y from copy i of the weight."""
        made = {"torch.bmm": lambda i: torch.bmm(self.x, self.w[i].transpose(1, 2), out=self.y),
                "torch.bmm [B,K,N]": lambda i: torch.bmm(self.x, self.transposed[i], out=self.y)}
        for name, dependent in (("gemmtune", 0), ("gemmtune dependent", 1)):
            problem = Problem(size=ctypes.sizeof(Problem), operation=BATCHED_BF16, x_type=BF16, y_type=BF16, m=self.m, n=self.n,
                              k=self.k, batch=self.batch, constant_weights=dependent, predecessor_triggers=dependent)
            operands = [Operands(size=ctypes.sizeof(Operands), x=self.x.data_ptr(), w=w.data_ptr(), y=self.y.data_ptr(),
                                 ldx=self.x.stride(1), ldy=self.y.stride(1), x_batch_stride=self.x.stride(0),
                                 y_batch_stride=self.y.stride(0)) for w in self.w]
            made[name] = lambda i, problem=problem, operands=operands: library.gemm(problem, operands[i])
        return made

    def error(self):
        """Of y from copy 0, the first rows of each batch against float64."""
        rows = min(self.m, 16)
        expected = torch.bmm(self.x[:, :rows].double(), self.w[0].double().transpose(1, 2))
        return float((self.y[:, :rows].double() - expected).norm() / expected.norm())


def measure(case, library, rounds):
    """Name -> (median us, relative error)."""
    copies = len(case.w)
    calls = max(copies, math.ceil(SPAN_MICROSECONDS / max(case.floor() * 1.5, 5)))
    graphs, errors = {}, {}
    for name, call in case.calls(library).items():
        case.y.zero_()
        call(0)
        torch.cuda.synchronize()
        errors[name] = case.error()
        if errors[name] > 0.005:
            raise RuntimeError(f"{name} is wrong by {errors[name]:.1e} at {case.batch} x {case.m} x {case.n} x {case.k}")
        graphs[name] = graph_of(call, copies, calls)
    times = {name: [] for name in graphs}
    for graph in graphs.values():
        time_once(graph, calls)
        time_once(graph, calls)
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(time_once(graph, calls))
    return {name: (statistics.median(values), errors[name]) for name, values in times.items()}


def ratios_of(rows, who):
    """(M, torch.bmm's best time over that of `who`, torch.bmm's share of the floor) of each case."""
    found = []
    for key in dict.fromkeys((row["batch"], row["n"], row["k"], row["m"]) for row in rows):
        here = {row["who"]: row for row in rows if (row["batch"], row["n"], row["k"], row["m"]) == key}
        best = min((here[peer] for peer in PEERS), key=lambda row: row["us"])
        found.append((key[3], best["us"] / here[who]["us"], best["share_of_floor"]))
    return found


def report(rows):
    names = list(dict.fromkeys(row["who"] for row in rows))
    print("us (share of the floor)\n| B | N x K | M | " + " | ".join(names) + " |\n|" + " --- |" * (3 + len(names)))
    for batch, n, k, m in dict.fromkeys((row["batch"], row["n"], row["k"], row["m"]) for row in rows):
        cells = [f"{row['us']:.2f} ({row['share_of_floor']:.2f})" for name in names for row in rows
                 if (row["batch"], row["n"], row["k"], row["m"], row["who"]) == (batch, n, k, m, name)]
        print(f"| {batch} | {n} x {k} | {m} | " + " | ".join(cells) + " |")
    plain, dependent = ratios_of(rows, "gemmtune"), ratios_of(rows, "gemmtune dependent")
    print("\n| torch.bmm over gemmtune | plain | least | dependent |\n| --- | --- | --- | --- |")

    def line(name, wanted):
        ours = [ratio for m, ratio, share in plain if wanted(m, share)]
        if ours:
            early = [ratio for m, ratio, share in dependent if wanted(m, share)]
            print(f"| {name} | {geometric_mean(ours):.3f} | {min(ours):.3f} | {geometric_mean(early):.3f} |")

    for rows_of_x in dict.fromkeys(row["m"] for row in rows):
        line(f"M = {rows_of_x}", lambda m, _, wanted=rows_of_x: m == wanted)
    line("torch.bmm below 0.8 of the floor", lambda _, share: share < 0.8)
    line("all", lambda *_: True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--tuned", required=True)
    parser.add_argument("--batches", nargs="*", type=int, default=[16, 128])
    parser.add_argument("--sizes", nargs="*", default=["512,128", "128,512"])
    parser.add_argument("--rows", nargs="*", type=int, default=[1, 4, 16, 64, 128, 512, 4096])
    parser.add_argument("--side-by-side", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("batched: no GPU here")
    library = Library(options.library, {BATCHED_BF16: options.tuned})
    rows = []
    for batch in options.batches:
        for size in options.sizes:
            n, k = (int(part) for part in size.split(","))
            for m in options.rows:
                case = Case(batch, m, n, k, options.side_by_side)
                for name, (median, error) in measure(case, library, options.rounds).items():
                    rows.append({"batch": batch, "n": n, "k": k, "m": m, "side_by_side": int(options.side_by_side), "who": name,
                                 "us": round(median, 3), "share_of_floor": round(case.floor() / median, 3), "error": f"{error:.2e}"})
                del case
                torch.cuda.empty_cache()
    if options.csv:
        write_rows(options.csv, rows)
    report(rows)


if __name__ == "__main__":
    main()
