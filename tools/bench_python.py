#!/usr/bin/env python3
"""What a call from Python costs the host: microseconds of each way to call a linear layer whose plan is cached. The smallest
mean of 400 rounds of 250 calls, because a busy machine interrupts long ones. "no rows" (M = 0) runs no kernel, so it is the
cost of the call alone; on a GPU all calls only enqueue. Needs the gemmtune package and PyTorch.

Usage: bench_python.py [--device cpu|cuda] [--json FILE]"""

import argparse
import json
import time

import torch
from torch.nn import functional

import gemmtune
import gemmtune.torch

ROUNDS, CALLS = 400, 250  # a GPU's queue holds more calls


def smallest_mean(call, device):
    best = float("inf")
    for _ in range(ROUNDS):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, (time.perf_counter() - begin) / CALLS)
    return best * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json")
    options = parser.parse_args()
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    x, w, out = (torch.zeros(shape, dtype=dtype, device=options.device) for shape in ((1, 64), (64, 64), (1, 64)))
    none, none_out, transposed = x[:0], out[:0], w.t()
    layer = torch.nn.Linear(64, 64, bias=False, dtype=dtype, device=options.device)
    tuned = torch.ops.gemmtune.tuned_linear_out.default  # PyTorch's kernel runs: this size has no row
    packet, linear, linear_out = torch.ops.gemmtune.linear, torch.ops.gemmtune.linear.default, torch.ops.gemmtune.linear_out.default
    modes = {"inference_mode": torch.inference_mode, "no_grad": torch.no_grad}
    rows = []
    for mode, guard in modes.items():
        with guard():
            measured = {
                "torch.ops.gemmtune.linear": lambda: packet(x, w),
                "torch.ops.gemmtune.linear.default": lambda: linear(x, w),
                "torch.ops.gemmtune.linear_out.default": lambda: linear_out(x, w, out=out),
                "torch.ops.gemmtune.linear, no rows": lambda: packet(none, w),
                "torch.ops.gemmtune.linear_out.default, no rows": lambda: linear_out(none, w, out=none_out),
                "gemmtune.linear": lambda: gemmtune.linear(x, w),
                "nn.Linear": lambda: layer(x),
                "torch.ops.gemmtune.tuned_linear_out.default, no row": lambda: tuned(x, transposed, None, True, out=out),
                "F.linear": lambda: functional.linear(x, w),
                "torch.mm(out=)": lambda: torch.mm(x, w, out=out),
            }
            for name, call in measured.items():
                rows.append({"call": name, "mode": mode, "us": smallest_mean(call, options.device)})
            with gemmtune.torch.patch(layer):
                rows.append({"call": "nn.Linear, patched", "mode": mode, "us": smallest_mean(lambda: layer(x), options.device)})
    print(f"PyTorch {torch.__version__}, {options.device}, x [1, 64], w [64, 64], {dtype}; microseconds a call")
    print(f"{'call':48}" + "".join(f"{mode:>16}" for mode in modes))
    for name in dict.fromkeys(row["call"] for row in rows):
        print(f"{name:48}" + "".join(f"{row['us']:16.2f}" for row in rows if row["call"] == name))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
