#!/usr/bin/env python3
"""Tunes the same list of shapes from nothing several times, and says how often the runs name the same winner: equal
names, or each inside the other's tie set (kernels that its rounds could not tell from the winner). Then times the first
run's rows against the default kernel on fresh data. Needs a quiet machine. Exit code 1 where a limit is missed.

Usage: repeat_tuning.py PROGRAM SHAPES [--runs 2] [--limit 0.95] [--out FOLDER] [-- further words for gemmtune tune]
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path


def call(words, allowed=(0,)):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, check=False)
    if done.returncode not in allowed:
        sys.exit(f"{words}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def same(a, b):
    """Design decision: equal, or each is in the other's tie set."""
    return a["kernelName"] == b["kernelName"] or (a["kernelName"] in b["ties"] and b["kernelName"] in a["ties"])


def compare(runs):
    """All pairs of runs, shape by shape; the share that agrees."""
    agreed = equal = count = 0
    for first, second in itertools.combinations(runs, 2):
        for key in first:
            if key not in second:
                continue
            a, b = first[key], second[key]
            count += 1
            equal += a["kernelName"] == b["kernelName"]
            agreed += same(a, b)
            if not same(a, b):
                print(f"{key}: {a['kernelName']} ({a['verdict']}, {a['us']:.1f} us) or "
                      f"{b['kernelName']} ({b['verdict']}, {b['us']:.1f} us)")
    print(f"{count} shapes: same name {equal / count:.3f}, same winner (ties included) {agreed / count:.3f}")
    return agreed / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("shapes")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0.95)
    parser.add_argument("--out", help="keep the tuned files here")
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.out or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = []
        for number in range(1, options.runs + 1):
            tuned = folder / f"run{number}.csv"
            result = call([options.program, "tune", "-i", options.shapes, "-o", tuned, "--all", "--no-resume", "--json",
                           "-q", *more])
            rows = {row["problem"]: row for row in result["problems"] if "kernelName" in row}
            (folder / f"run{number}.json").write_text(json.dumps(result), encoding="utf-8")
            runs.append(rows)
            busy = sum(4 * row["rounds"]["disturbed"] > row["rounds"]["used"] for row in rows.values())
            print(f"run {number}: {len(rows)} rows, {result['candidates']} candidates, {result['seconds']:.0f} s, "
                  f"speed-up {result['geometric_mean_speedup']:.3f}, {busy} on a busy machine", flush=True)
        share = compare(runs)
        again = call([options.program, "bench", folder / "run1.csv", "--rounds", "60", "--json", "-q"], (0, 1))
        slower = [row for row in again["rows"] if (row["certain_ratio"] or 0) > 1.01]
        wrong = [row for row in again["rows"] if row["status"] != "OK"]
        print(f"measured again: {len(again['rows'])} rows, speed-up {again['geometric_mean_speedup']:.3f}, "
              f"{len(slower)} slower than the default (99.9 %, 1 %), {len(wrong)} not right")
        for row in slower + wrong:
            print(f"  {row['problem']}: {row['kernelName']} {row['ratio']} {row['reason']}")
    return 0 if share >= options.limit and not slower and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
