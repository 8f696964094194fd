#!/usr/bin/env python3
"""What isolation costs: tunes the same list of shapes in process and through the worker, in turn, and prints the ratio
of the times. Needs a quiet machine. Exit code 1 where the median ratio is above the limit.

Usage: isolation_tax.py PROGRAM SHAPES [--pairs 5] [--limit 1.05] [-- further words for gemmtune tune]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def seconds_of(program, shapes, more):
    """Time of one run from nothing, as its own summary has it."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "tuned.csv"
        words = [program, "tune", "-i", shapes, "-o", str(output), "--search", "exhaustive", "--json", "-q", *more]
        done = subprocess.run(words, text=True, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("shapes")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=1.05)
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    ratios = []
    for pair in range(options.pairs):
        order = [("in process", ["--in-process"]), ("worker", [])]
        times = {}
        for name, words in order if pair % 2 == 0 else reversed(order):
            times[name] = seconds_of(options.program, options.shapes, words + more)
        ratios.append(times["worker"] / times["in process"])
        print(f"pair {pair + 1}: in process {times['in process']:.2f} s, worker {times['worker']:.2f} s, "
              f"ratio {ratios[-1]:.3f}", flush=True)
    middle = statistics.median(ratios)
    print(f"median ratio {middle:.3f}, limit {options.limit}")
    return 0 if middle <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
