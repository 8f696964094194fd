#!/usr/bin/env python3
"""Measures what the cost models of the NVIDIA families are fitted to: kernels spread over each family's space, and the first ones by its model, for 12 (N, K)
and M from 1 to 4096. It runs build/bench/kernel_times, which appends to FOLDER/cost_FAMILY.csv (problem, kernel, us, card). A run that was cut off is gone
on with: problems of which a family has rows are left out. Problems come in an order that does not depend on their sizes, so a part of a run is a sample.

Usage: cost_rows.py KERNEL_TIMES DEVICE FOLDER [--families wgmma,skinny] [--rounds 3] [--seconds 240] [--print]
--print: writes the lines for kernel_times and measures nothing."""

import argparse
import random
import subprocess
import sys

SIZES = [(1280, 8192), (2112, 7168), (4096, 7168), (7168, 2048), (8192, 1024), (24576, 1536), (4096, 4096), (14336, 4096), (4096, 14336), (2880, 2880),
         (5120, 5120), (6144, 16384)]
ROWS = [1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
# Of fp8 with a scale a row, and with scales of blocks, where untuned calls choose between two families.
FEW_SIZES = [(4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (1280, 8192), (5120, 5120), (24576, 1536), (8192, 1024), (3072, 1536)]
FEW_ROWS = [1, 8, 16, 24, 32, 48, 64]

# Mixtures of experts: experts, topk, inter_dim, model_dim; and tokens.
LAYERS = [(128, 8, 768, 2048), (64, 6, 1408, 2048), (8, 2, 3584, 4096), (32, 4, 2880, 2880)]
TOKENS = [1, 2, 4, 16, 64, 256, 1024, 4096]


def of(family, first, spread, text=""):
    """The words of kernel_times: the `first` kernels by the model and `spread` ones over the space, of those whose names hold `text`."""
    text = text and f":{text}"
    return f"{family}:{first}{text} {family}~{spread}{text}"


def dense():
    """Lines of two operands. Each (N, K) has a third of the M, another third for its neighbour."""
    for i, (n, k) in enumerate(SIZES):
        for j, m in enumerate(ROWS):
            if (i + j) % 3 == 0:
                words = [of("wgmma", 4, 9, "pdl0")] + ([of("skinny", 4, 9, "pdl0")] if m <= 64 else [])
                yield f"{m} {n} {k} {' '.join(words)}"
                yield f"op=a16w4 packed=1 {m} {n} {k} {' '.join([of('mxfp4', 4, 9, 'pdl0')] + ([of('mxfp4_skinny', 4, 8, 'pdl0')] if m <= 32 else []))}"
            if (i + j) % 6 == 1:
                yield f"dtype=fp8 {m} {n} {k} {of('wgmma', 4, 8, 'pdl0')}{' ' + of('skinny', 3, 6, 'pdl0') if m <= 64 else ''}"
            if (i + j) % 6 == 2 and k % 128 == 0 and n % 128 == 0:
                yield f"op=a8w8_blockscale {m} {n} {k} {of('wgmma', 4, 8, 'pdl0')}{' ' + of('skinny', 3, 6, 'pdl0') if m <= 64 else ''}"
            if (i + j) % 6 == 4 and m in (1, 16, 32, 256):
                yield f"op=a16w4 {m} {n} {k} {of('mxfp4', 3, 6, 'pdl0')}{' ' + of('mxfp4_skinny', 3, 5, 'pdl0') if m <= 32 else ''}"


def few_rows():
    """Lines of fp8 that has a scale a row or scales of blocks: each (N, K) has half of the M, of the other half with the other scales."""
    for i, (n, k) in enumerate(FEW_SIZES):
        for j, m in enumerate(FEW_ROWS):
            operation = "op=a8w8 dtype=fp8" if (i + j) % 2 else "op=a8w8_blockscale"
            yield f"{operation} {m} {n} {k} {of('wgmma', 5, 9, 'pdl0')} {of('skinny', 3, 5, 'pdl0')}"


def mixtures():
    """Lines of fused_moe: bf16, fp8 with scales of blocks, MXFP4 weights."""
    for i, (experts, topk, n, k) in enumerate(LAYERS):
        for j, m in enumerate(TOKENS):
            pairs = m * topk
            decode = " " + of("moe_decode", 2, 6) if m <= 8 and pairs <= 128 else ""
            stream = " " + of("mxfp4_stream", 4, 8) if pairs <= 16 * experts else ""
            layer = f"moe={experts},{topk},silu"
            if (i + j) % 2 == 0:
                yield f"op=fused_moe {layer},No {m} {n} {k} {of('wgmma_moe', 3, 7)}{decode}"
            if (i + j) % 3 == 0 and n % 128 == 0 and k % 128 == 0:
                yield f"op=fused_moe dtype=fp8 {layer},per_1x128 {m} {n} {k} {of('wgmma_moe', 3, 7)}{decode}"
            if (i + j) % 2 == 1:
                yield f"op=fused_moe x=bf16 w=fp4 {layer},per_1x32 {m} {n} {k} {of('wgmma_moe', 3, 7)}{decode}{stream}"


def lines_of(families):
    """All lines in a fixed order without a pattern, with the words of `families` alone; empty: of all."""
    lines = list(dense()) + list(few_rows()) + list(mixtures())
    random.Random(1).shuffle(lines)
    for line in lines:
        words = line.split()
        kept = [word for word in words if ":" not in word and "~" not in word or not families or word.partition(":")[0].partition("~")[0] in families]
        if any(":" in word for word in kept):
            yield " ".join(kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel_times")
    parser.add_argument("device")
    parser.add_argument("folder")
    parser.add_argument("--families", default="")
    parser.add_argument("--rounds", default="3")
    parser.add_argument("--seconds", default="240")
    parser.add_argument("--print", action="store_true", dest="only_print")
    options = parser.parse_args()
    text = "\n".join(lines_of([name for name in options.families.split(",") if name])) + "\n"
    if options.only_print:
        sys.stdout.write(text)
        return 0
    words = [options.kernel_times, options.device, options.rounds, f"csv={options.folder}", f"seconds={options.seconds}"]
    return subprocess.run(words, input=text, text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
