#!/usr/bin/env python3
"""Times gemmtune's kernels for weights of 4 bits on a CPU, untuned or by tables, beside bf16 and beside PyTorch's own int4 kernel
(_weight_int4pack_mm_for_cpu), in one process. Each call has another copy of the weight than the one before, of more copies than the
cache holds; the competitors take turns, --rounds times. Prints a row a shape: for each competitor the median in microseconds, and of the
ratios of a round the median of bf16 and of PyTorch's int4 over ours, and of ours over the floor: bytes of the weight with its scales over
the rate of a read, which takes turns with the rest. With one thread the clock is that of the thread's processor time, which other load
disturbs less.

Usage: GEMMTUNE_LIBRARY_DIR=build/lib python3 four_bit_cpu.py [--tuned OPERATION=FILE ...] [--sizes N,K ...] [--rows M ...] [--rounds 25]
                                                            [--threads 2] [--csv FILE]
"""

import argparse
import csv
import ctypes
import math
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # no team spins beside another's kernel

import torch  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]

from cold_weights import copies  # noqa: E402
from gemmtune import _library as c  # noqa: E402

SIZES = ["4096,4096", "14336,4096", "2048,8192"]
ROWS = [1, 4, 16, 64]
GROUP = 128
READ_BYTES = 256 << 20


class Ours:
    """gemmtune through its C interface."""

    def __init__(self, threads, tuned):
        files = (c.TunedFiles * len(tuned))(*[c.TunedFiles(c.operations.index(operation), file.encode())
                                              for operation, file in tuned.items()])
        options = c.ContextOptions(backend=b"cpu", threads=threads, tuned_files=files, tuned_file_count=len(tuned))
        self.context = ctypes.c_void_p()
        c.check(c.lib.gemmtune_context_create(ctypes.byref(options), ctypes.byref(self.context)))

    def call(self, operation, x, weights, y, **members):
        """A function of the index of a copy: y = x times it."""
        w_type = c.weight_formats[operation][0] if operation in c.weight_formats else "bf16"
        problem = c.Problem(operation=c.operations.index(operation), x_type=c.types.index("bf16"), w_type=c.types.index(w_type),
                            y_type=c.types.index("bf16"), m=y.shape[0], n=y.shape[1], k=x.shape[1], alignment=16, **members)
        operands = [c.Operands(x=x.data_ptr(), y=y.data_ptr(), **{name: tensor.data_ptr() for name, tensor in weight.items()})
                    for weight in weights]
        return lambda i: c.check(c.lib.gemmtune_gemm(self.context, ctypes.byref(problem), ctypes.byref(operands[i % len(operands)]), None))


def copies_of(weight, size):
    """Copies of a weight, itself the first."""
    return [weight] + [{name: tensor.clone() for name, tensor in weight.items()} for _ in range(copies(size, competitors=4) - 1)]


class Case:
    """The operands of one (M, N, K) in each format, and what multiplies them: name -> call(i)."""

    def __init__(self, ours, m, n, k):
        random = torch.Generator().manual_seed(m + 3 * n + k)
        self.x = torch.randn(m, k, generator=random).bfloat16()
        self.y = {name: torch.empty(m, n, dtype=torch.bfloat16) for name in ("bf16", "int4", "nvfp4")}
        self.bytes = {"int4": n * k // 2 + 2 * n * k // GROUP, "nvfp4": n * k // 2 + n * k // 16}

        elements = torch.randint(0, 256, (n, k // 2), generator=random, dtype=torch.uint8)
        self.bf16 = copies_of({"w": torch.randn(n, k, generator=random).bfloat16()}, 2 * n * k)
        self.int4 = copies_of({"w": elements,
                               "w_scale": ((torch.rand(n, k // GROUP, generator=random) + 0.5) / 4 / math.sqrt(k)).bfloat16()},
                              self.bytes["int4"])
        self.nvfp4 = copies_of({"w": elements, "w_scale": (torch.rand(n, k // 16, generator=random) + 0.5).to(torch.float8_e4m3fn),
                                "w_global_scale": torch.tensor([1 / math.sqrt(k)])}, self.bytes["nvfp4"])
        self.calls = {"bf16": ours.call("a16w16", self.x, self.bf16, self.y["bf16"]),
                      "int4": ours.call("a16w4_int4", self.x, self.int4, self.y["int4"], w_group=GROUP),
                      "nvfp4": ours.call("a16w4_nvfp4", self.x, self.nvfp4, self.y["nvfp4"])}
        first = dict(zip(("elements", "scales"), self.packed_for_torch(self.int4[0])))
        packed = [tuple(copy.values()) for copy in copies_of(first, self.bytes["int4"])]
        self.calls["torch_int4"] = lambda i: torch.ops.aten._weight_int4pack_mm_for_cpu(self.x, packed[i % len(packed)][0], GROUP,
                                                                                       packed[i % len(packed)][1])

    @staticmethod
    def elements(weight):
        """int4 elements [N, K] as int32, from -8 to 7."""
        both = torch.stack((weight["w"] & 15, weight["w"] >> 4), dim=2).flatten(1).int()
        return both - 16 * (both > 7).int()

    def packed_for_torch(self, weight):
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(self.elements(weight) + 8, 1)
        scales = weight["w_scale"].T.contiguous()
        return packed, torch.stack((scales, torch.zeros_like(scales)), dim=2).contiguous()

    def check(self):
        """Raises if an int4 result is not that of float64."""
        scales = self.int4[0]["w_scale"].double().repeat_interleave(GROUP, 1)
        expected = self.x.double() @ (self.elements(self.int4[0]).double() * scales).T
        self.calls["int4"](0)
        for name, result in (("int4", self.y["int4"]), ("torch_int4", self.calls["torch_int4"](0))):
            error = ((result.double() - expected).norm() / expected.norm()).item()
            if not error < 0.01:
                raise RuntimeError(f"{name}: relative error {error}")


def measured(case, rounds, memory, clock):
    """Times of each competitor, and of a read of READ_BYTES, a list of rounds each."""
    calls = case.calls | {"read": lambda _: memory.max()}
    times = {name: [] for name in calls}
    for i in range(rounds + 2):
        for name, call in calls.items():
            begin = clock()
            call(i)
            if i >= 2:
                times[name].append((clock() - begin) / 1000)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuned", nargs="*", default=[])
    parser.add_argument("--sizes", nargs="*", default=SIZES)
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--csv")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours = Ours(options.threads, dict(entry.split("=", 1) for entry in options.tuned))
    memory = torch.ones(READ_BYTES // 8, dtype=torch.int64)
    rows = []
    for size in options.sizes:
        n, k = map(int, size.split(","))
        for m in options.rows:
            case = Case(ours, m, n, k)
            case.check()
            times = measured(case, options.rounds, memory, time.thread_time_ns if options.threads == 1 else time.perf_counter_ns)
            row = {"M": m, "N": n, "K": k} | {f"{name}_us": round(statistics.median(values), 1) for name, values in times.items()}
            for form in ("int4", "nvfp4"):
                row[f"bf16_over_{form}"] = ratio(times["bf16"], times[form])
                row[f"{form}_over_floor"] = ratio(times[form], [us * case.bytes[form] / READ_BYTES for us in times["read"]])
            row["torch_int4_over_int4"] = ratio(times["torch_int4"], times["int4"])
            row["read_GB_per_s"] = round(READ_BYTES / statistics.median(times["read"]) / 1000, 1)
            rows.append(row)
            print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            out = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            out.writeheader()
            out.writerows(rows)


def ratio(of, over):
    return round(statistics.median(a / b for a, b in zip(of, over)), 2)


if __name__ == "__main__":
    main()
