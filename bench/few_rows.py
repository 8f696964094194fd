#!/usr/bin/env python3
"""Default kernels of our families beside the vendor's library for few rows, as a CSV: dtype, M, N, K, family, us (median), ratio (of the library's
time to it, median of paired rounds, with its 99 % interval: low, high; empty if the library does not run), kernel. It runs build/bench/kernel_times:
interleaved rounds in one process, cold weights, verified kernels.

Usage: few_rows.py KERNEL_TIMES DEVICE FAMILIES [--dtype bf16,fp32] [--m 1,2,4,8,16,32,64] [--sizes 2048x2048,…] [--rounds 9] [--seconds 0] >CSV
FAMILIES: skinny,tiled,openblas on a CPU, skinny,skinny:1,wgmma,wgmma:1 on an NVIDIA GPU (:1 is the kernel that the cost model puts first).
--seconds: after how many it is cut off; 0: never."""

import argparse
import csv
import re
import subprocess
import sys
import time

# Layers of Llama-3.2-1B, Qwen2.5-0.5B, 1.5B and 3B, and of what is small and square; for a GPU those of shapes/llm_dense_192.csv beside four of Llama.
SIZES = {"cpu": "1024x1024 2048x512 1536x256 2048x2048 3072x2048 16384x2048 2048x8192 512x2048 896x896 1152x896 9728x896 896x4864 1536x1536 2048x1536 "
                "17920x1536 1536x8960 4096x1024 1024x4096 4096x4096 768x3072",
         "cuda": "256x7168 1280x8192 2112x7168 1536x7168 4096x512 7168x2048 8192x1024 7168x256 4096x7168 24576x1536 7168x8192 8192x3584 5120x5120 "
                 "5120x8192 10240x5120 51200x5120 3072x2048 2048x2048 16384x2048 2048x8192"}
ROW = re.compile(r"(\d+) (\d+) (\d+) +([\d.]+) ([\d.naif-]+) \[([\d.naif-]+) ([\d.naif-]+)\] model +[\d.]+ (\S+)$")


def number(text):
    return text if re.fullmatch(r"[\d.]+", text) else ""


def rows_of(options, dtype, deadline):
    """Rows of one type, until the deadline."""
    sizes = options.sizes or SIZES.get(options.device.partition(":")[0], SIZES["cpu"])
    lines = [f"dtype={dtype} {m} {size.replace('x', ' ')} {options.families.replace(',', ' ')}" for size in sizes.replace(",", " ").split() for m in options.m.split(",")]
    words = [options.kernel_times, options.device, options.rounds]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.close()
        for text in process.stdout:
            if row := ROW.match(text):
                m, n, k, us, ratio, low, high, kernel = row.groups()
                yield [dtype, m, n, k, kernel.partition("_")[0], us, number(ratio), number(low), number(high), kernel]
            else:
                print(f"few_rows: {dtype} {text.rstrip()}", file=sys.stderr)
            if deadline and time.monotonic() > deadline:
                print(f"few_rows: {dtype}: cut off after {options.seconds} s", file=sys.stderr)
                process.terminate()
                return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel_times")
    parser.add_argument("device")
    parser.add_argument("families")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--m", default="1,2,4,8,16,32,64")
    parser.add_argument("--sizes", default="")
    parser.add_argument("--rounds", default="9")
    parser.add_argument("--seconds", type=float, default=0)
    options = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["dtype", "M", "N", "K", "family", "us", "ratio", "low", "high", "kernel"])
    deadline = time.monotonic() + options.seconds if options.seconds else 0
    for dtype in options.dtype.split(","):
        for row in rows_of(options, dtype, deadline):
            out.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
