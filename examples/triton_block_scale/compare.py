#!/usr/bin/env python3
"""Two files of configs side by side on the kernel of block_scale.py: each M in turns, cold weights, CUDA graphs."""

import argparse
import math
import random
import statistics

import torch

import block_scale


def operands(M, N, K, copies):
    """x, its scales and `copies` of w with its scales: random, of the size that activations have."""
    x = torch.randn(M, K, device="cuda").to(torch.float8_e4m3fn)
    x_scale = torch.rand(M, K // 128, device="cuda") * 0.01 + 0.01
    weights = []
    for _ in range(copies):
        w = torch.randn(N, K, device="cuda").to(torch.float8_e4m3fn)
        weights.append((w, torch.rand((N + 127) // 128, K // 128, device="cuda") * 0.01 + 0.01))
    return x, x_scale, weights


def graph_of(x, x_scale, weights, config):
    """A graph that goes over all weights once."""
    M, K = x.shape
    N = weights[0][0].shape[0]
    y = torch.empty((M, N), dtype=torch.bfloat16, device="cuda")
    splits = config["NUM_KSPLIT"]
    partial = torch.empty((splits, M, N), dtype=torch.float32, device="cuda") if splits > 1 else None

    def call(weight):
        block_scale.launch(x, weight[0], x_scale, weight[1], y, M, N, K, K, N, config, partial)

    call(weights[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for weight in weights:
            call(weight)
    return graph, y


def microseconds(graph, launches):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / launches


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("-k", type=int, required=True)
    parser.add_argument("-m", type=int, nargs="*", default=[1, 16, 64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    files = [block_scale.read_configs(path) for path in (options.first, options.second)]
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    copies = min(256, max(4, math.ceil(5 * cache / (options.n * options.k))))
    logs = []
    print(f"{'M':>6} {'first µs':>10} {'second µs':>10} {'second / first':>15}")
    for M in options.m:
        x, x_scale, weights = operands(M, options.n, options.k, copies)
        runs = [graph_of(x, x_scale, weights, block_scale.config_for(file, M)) for file in files]
        times = [[], []]
        for graph, _ in runs:
            microseconds(graph, copies)
        for _ in range(options.rounds):
            for which in random.sample((0, 1), 2):
                times[which].append(microseconds(runs[which][0], copies))
        ratios = [second / first for first, second in zip(*times)]
        logs.append(math.log(statistics.median(ratios)))
        print(f"{M:>6} {statistics.median(times[0]):>10.2f} {statistics.median(times[1]):>10.2f} "
              f"{statistics.median(ratios):>15.3f}")
    print(f"geometric mean {math.exp(statistics.mean(logs)):.3f}: above 1, the first file is faster")


if __name__ == "__main__":
    main()
