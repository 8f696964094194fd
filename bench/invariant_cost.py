#!/usr/bin/env python3
"""What a bit class costs, as a CSV: M, N, K, best_us, class_us, ratio (the class's kernel over the best kernel), library (the vendor library's time
over the class's kernel, empty if the library does not run), best, of_class, bits. The last line on stderr has geometric means. Each weight is tuned twice, without and with --invariant rows; then both kernels of an M are timed side by side by build/bench/kernel_times.

Usage: invariant_cost.py GEMMTUNE KERNEL_TIMES DEVICE [--dtype bf16] [--m 1,2,7,16,33,128] [--sizes 512x2048,…] [--rounds 15] [--packed] [--invariant rows|tp] >CSV"""

import argparse
import csv
import pathlib
import statistics
import subprocess
import sys
import tempfile

from few_rows import ROW, number

COLUMNS = "M N K best_us class_us ratio library best of_class bits".split()


def tuned(options, n, k, folder, *words):
    """M -> the row of a table of this weight."""
    table = pathlib.Path(folder) / f"{n}x{k}{'_'.join(words)}.csv"
    packed = ["--bpreshuffle"] if options.packed else []
    done = subprocess.run([options.gemmtune, "tune", "-m", options.m, "-n", n, "-k", k, "--indtype", options.dtype, "--device", options.device, "-o",
                           str(table), "--quiet", *packed, *words], check=False, stdout=subprocess.DEVNULL)
    if done.returncode != 0 or not table.exists():
        sys.exit(f"invariant_cost: tuning {n} x {k} {' '.join(words)} ended with {done.returncode}")
    with open(table, newline="", encoding="utf-8") as file:
        return {row["M"]: row for row in csv.DictReader(file)}


def times_of(options, m, n, k, kernels):
    """Kernel name -> median microseconds, and the library's time over it (text, may be empty)."""
    line = f"dtype={options.dtype} {'packed=1 ' if options.packed else ''}{m} {n} {k} {' '.join(kernels)}\n"
    done = subprocess.run([options.kernel_times, options.device, str(options.rounds)], input=line, text=True, check=True, stdout=subprocess.PIPE)
    rows = (ROW.match(text) for text in done.stdout.splitlines())
    return {row[8]: (float(row[4]), number(row[5])) for row in rows if row}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gemmtune")
    parser.add_argument("kernel_times")
    parser.add_argument("device")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--m", default="1,2,7,16,33,128")
    parser.add_argument("--sizes", default="512x2048,2048x2048,2048x512,4096x1024")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--invariant", default="rows")
    options = parser.parse_args()
    out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    out.writeheader()
    costs, leads = [], []
    for size in options.sizes.split(","):
        n, k = size.split("x")
        with tempfile.TemporaryDirectory() as folder:
            best = tuned(options, n, k, folder)
            of_class = tuned(options, n, k, folder, "--invariant", options.invariant)
        for m, row in of_class.items():
            names = [best[m]["kernelName"], row["kernelName"]]
            times = times_of(options, m, n, k, dict.fromkeys(names))
            (best_us, _), (class_us, library) = (times[name] for name in names)
            out.writerow(dict(zip(COLUMNS, [m, n, k, best_us, class_us, f"{class_us / best_us:.3f}", library, *names, row["bits"]])))
            sys.stdout.flush()
            costs.append(class_us / best_us)
            leads += [float(library)] if library else []
    means = [f"{statistics.geometric_mean(values):.3f}" if values else "none" for values in (costs, leads)]
    print(f"invariant_cost: geometric means: {means[0]} of the best kernel's time, the library takes {means[1]} times the class's", file=sys.stderr)


if __name__ == "__main__":
    main()
