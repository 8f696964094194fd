#!/usr/bin/env python3
"""Layers with int4 weights on a CPU: gemmtune's a16w4_int4 against the kernel of vLLM's CPU backend, in one process and in turns.

Usage: vllm_cpu_int4.py [--sizes 2048x2048,8192x2048] [-m 1,4,16,64,256] [--group 128] [--zero-points] [--rounds 21] [--tuned FILE]

Run it in vLLM's environment, on the cores that vLLM's worker would have (taskset, OMP_NUM_THREADS). Sizes are NxK. Each call has another weight
(bench/cold_weights.py), so that weights come from memory. Both get the same words, scales and zero points; the outputs must agree. Prints CSV: the
medians in µs, and the median of the paired ratios vLLM / gemmtune with its quartiles. --tuned: rows of a16w4_int4; without it gemmtune's default kernel
runs."""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "bench")]

import torch  # noqa: E402
from cold_weights import copies  # noqa: E402
from quantized import Int4  # noqa: E402
from torch import nn  # noqa: E402
from vllm import _custom_ops  # noqa: E402, F401  registers vLLM's operators
from vllm.model_executor.kernels.linear.mixed_precision.cpu import CPUWNA16LinearKernel  # noqa: E402
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearLayerConfig  # noqa: E402
from vllm.scalar_type import scalar_types  # noqa: E402

import gemmtune.torch  # noqa: E402
from gemmtune import checkpoints  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2048x2048,8192x2048,2048x8192")
    parser.add_argument("-m", default="1,4,16,64,256")
    parser.add_argument("--group", type=int, default=128)
    parser.add_argument("--zero-points", action="store_true")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--tuned")
    return parser.parse_args()


def parameter(tensor, **where):
    made = nn.Parameter(tensor, requires_grad=False)
    for name, value in where.items():
        setattr(made, name, value)
    return made


def of_vllm(weight, n, k, group, zero_points):
    """A function of x."""
    tensors, layer = weight.compressed(), nn.Module()
    layer.bias = None
    layer.words = parameter(tensors["weight_packed"], input_dim=1, packed_dim=1)
    layer.scale = parameter(tensors["weight_scale"], output_dim=0)
    if zero_points:
        layer.zeros = parameter(tensors["weight_zero_point"], output_dim=0)
    config = MPLinearLayerConfig((k, n), (k, n), scalar_types.uint4 if zero_points else scalar_types.uint4b8, torch.bfloat16, group, zero_points)
    kernel = CPUWNA16LinearKernel(config, "words", "scale", "zeros")
    kernel.process_weights_after_loading(layer)
    return lambda x: kernel.apply_weights(layer, x)


def of_gemmtune(weight, group, zero_points):
    tensors = weight.compressed()
    del tensors["weight_g_idx"]
    if not zero_points:
        del tensors["weight_zero_point"]
    made = checkpoints.compressed_int4(**tensors, group=group)
    w = gemmtune.torch.pack(made.w, operation="a16w4_int4", y_type="bf16", group=made.group, zero_points=zero_points)
    return lambda x: gemmtune.torch.a16w4_int4(x, w, made.w_scale, made.w_zero_points)


def seconds(function, x):
    begin = time.perf_counter()
    function(x)
    return time.perf_counter() - begin


def main():
    asked = options()
    if asked.tuned:
        gemmtune.use({"a16w4_int4": asked.tuned})
    print("M,N,K,group,zero_points,vllm_us,gemmtune_us,ratio,ratio_low,ratio_high")
    for n, k in (map(int, size.split("x")) for size in asked.sizes.split(",")):
        count = copies(n * k // 2, competitors=2)
        weights = [Int4(n, k, asked.group, (0, 15) if asked.zero_points else (8, 8), torch.bfloat16) for _ in range(2)]
        pools = [[make(weights[i % 2]) for i in range(count)] for make in (
            lambda weight: of_vllm(weight, n, k, asked.group, asked.zero_points), lambda weight: of_gemmtune(weight, asked.group, asked.zero_points))]
        for m in map(int, asked.m.split(",")):
            x = torch.randn(m, k).to(torch.bfloat16)
            expected, found = (pool[0](x).double() for pool in pools)
            if (expected - found).norm() > 2e-2 * expected.norm():
                sys.exit(f"M = {m}, N = {n}, K = {k}: the outputs differ by {float((expected - found).norm() / expected.norm()):.3f} of their norm")
            times = [[], []]
            for i in range(asked.rounds + 2):
                for side in (0, 1) if i % 2 else (1, 0):
                    times[side].append(seconds(pools[side][i % count], x))
            times = [one[2:] for one in times]
            low, middle, high = statistics.quantiles([a / b for a, b in zip(*times)], n=4)
            print(f"{m},{n},{k},{asked.group},{asked.zero_points},{statistics.median(times[0]) * 1e6:.1f},{statistics.median(times[1]) * 1e6:.1f},"
                  f"{middle:.3f},{low:.3f},{high:.3f}", flush=True)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
