#!/usr/bin/env python3
"""Mixtures with 4-bit experts on a CPU beside the same layer in bf16, as a CSV: threads, experts, topk, inter_dim, model_dim, tokens, format, us (of the
untuned kernel), panels_us (of the fastest kernel by the cost model that decodes experts into panels), over_panels (panels' time over us, median of paired rounds,
with its 99 % interval: low, high), over_bf16 (bf16's us over us), GB_per_s (bytes of the experts that have tokens, expected for uniform routing, over us), kernel.
It runs build/bench/kernel_times: interleaved rounds in one process, cold weights, verified kernels. Formats of a layer alternate with bf16 in each
pass; us are medians of passes.

Usage: four_bit_experts.py KERNEL_TIMES [--threads 1] [--layers 32,4,768,2048 …] [--tokens 1,4,16] [--rounds 11] [--passes 3] >CSV"""

import argparse
import csv
import os
import statistics
import subprocess
import sys

from few_rows import ROW

COLUMNS = "threads experts topk inter_dim model_dim tokens format us panels_us over_panels low high over_bf16 GB_per_s kernel".split()
# Name: words of kernel_times, quantization, bits of an element with its scale (and zero point).
FORMATS = {"bf16": ("w=bf16", "No", 16), "mxfp4": ("w=fp4", "per_1x32", 4 + 8 / 32), "nvfp4": ("w=fp4", "per_1x16", 4 + 8 / 16),
           "int4_g128": ("w=i4 group=128", "per_group", 4 + 16 / 128), "int4_g32": ("w=i4 group=32", "per_group", 4 + 16 / 32),
           "int4_g128_zero_points": ("w=i4 group=128 zero_points=1", "per_group", 4 + 24 / 128)}


def line_of(layer, tokens, name):
    """A line of kernel_times."""
    experts, topk, inter_dim, model_dim = layer
    words, quantization, _ = FORMATS[name]
    kernels = "moe" if name == "bf16" else "moe:1:rows0 moe"
    return f"op=fused_moe x=bf16 {words} moe={experts},{topk},silu,{quantization} {tokens} {inter_dim} {model_dim} {kernels}"


def times_of(options, lines):
    """Rows of each line, as kernel_times prints them: (us, ratio to the first kernel, low, high, kernel)."""
    environment = os.environ | {"GEMMTUNE_NUM_THREADS": options.threads}
    done = subprocess.run([options.kernel_times, "cpu", options.rounds], input="\n".join(lines) + "\n", text=True, check=True, stdout=subprocess.PIPE,
                          env=environment)
    rows = [ROW.match(text) for text in done.stdout.splitlines()]
    if None in rows or len(rows) != sum(line.count("moe:1") + 1 for line in lines):
        sys.exit(f"four_bit_experts: expected a row a kernel, found\n{done.stdout}")
    kernels = iter([(float(row[4]), float(row[5]), float(row[6]), float(row[7]), row[8]) for row in rows])
    return [[next(kernels) for _ in range(line.count("moe:1") + 1)] for line in lines]


def gigabytes(layer, tokens, bits):
    """Of the weights of the experts that have tokens."""
    experts, topk, inter_dim, model_dim = layer
    chosen = experts * (1 - (1 - topk / experts) ** tokens)
    return chosen * 3 * inter_dim * model_dim * bits / 8 / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel_times")
    parser.add_argument("--threads", default=str(os.cpu_count()))
    parser.add_argument("--layers", nargs="+", default=["32,4,768,2048", "8,2,1536,4096", "32,4,2880,2880"])
    parser.add_argument("--tokens", default="1,4,16")
    parser.add_argument("--rounds", default="11")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    for layer in [tuple(int(number) for number in text.split(",")) for text in options.layers]:
        for tokens in [int(number) for number in options.tokens.split(",")]:
            # int4 in groups of 128 takes sizes of whole groups.
            names = [name for name in FORMATS if "g128" not in name or all(size % 128 == 0 for size in layer[2:])]
            lines = [line_of(layer, tokens, name) for name in names]
            passes = [times_of(options, lines) for _ in range(options.passes)]
            of_bf16 = statistics.median(one[0][0][0] for one in passes)
            for i, name in enumerate(names):
                def median(kernel, column):
                    """Of the passes: `kernel` is a test of its name."""
                    return statistics.median(row[column] for one in passes for row in one[i] if kernel(row[4]))

                def panels(kernel):
                    return "rows0" in kernel

                def rows(kernel):
                    return "rows1" in kernel

                us = median(rows, 0)
                beside = [f"{median(panels, 0):.1f}"] + [f"{median(rows, column):.3f}" for column in (1, 2, 3)] if name != "bf16" else [""] * 4
                out.writerow([options.threads, *layer, tokens, name, f"{us:.1f}", *beside, f"{of_bf16 / us:.2f}",
                              f"{gigabytes(layer, tokens, FORMATS[name][2]) / us * 1e6:.1f}", next(row[4] for row in passes[0][i] if rows(row[4]))])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
