#!/usr/bin/env python3
"""What ranges of M cost: for one weight, tunes ranges (or takes a table that has them), tunes random M that the ranges were
not made from each by itself, times both answers of each M in paired rounds, and prints the regret: geometric mean, worst,
and the rows of both tables. Needs a quiet machine. Exit code 1 where the mean regret or the number of rows is above the bar.

Usage: m_range_regret.py PROGRAM -n N -k K [--m-range 1:8192] [--points 200] [--table ranges.csv] [--seconds 600]
                         [-- further words for gemmtune tune]
"""

import argparse
import csv
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

# Shares of the whole time: the ranges, the dense table, the paired rounds take what is left.
RANGE_SHARE, DENSE_SHARE = 0.35, 0.45


def call(words, good=(0,)):
    done = subprocess.run(words, text=True, capture_output=True, check=False)
    if done.returncode not in good:
        sys.exit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def range_tops(path, n, k):
    """The M of the table's range rows of this weight."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["N"] == str(n) and row["K"] == str(k)]
    return [int(row["M"]) for row in rows if row.get("m_from")]


def held_out(first, last, points, known, seed):
    """Distinct M, uniform in log M, none of them a row of the range table."""
    generator = random.Random(seed)
    free = last - first + 1 - len([m for m in set(known) if first <= m <= last])
    chosen = set()
    while len(chosen) < min(points, free):
        m = round(math.exp(generator.uniform(math.log(first), math.log(last + 1)) - 1e-9))
        if first <= m <= last and m not in known:
            chosen.add(m)
        elif last - first < 4 * points:  # a short axis: the rest in order
            chosen.update([m for m in range(first, last + 1) if m not in known and m not in chosen][:1])
    return sorted(chosen)


def regrets(rows):
    """[(M, regret, kernel of the range, kernel found for this M)]; the same kernel has no regret."""
    for row in rows:
        if row["ratio"] is None:
            continue
        # ratio: the dense row's time over the range's, the median of the paired rounds.
        same = row["kernelName"] == row["other_kernel"]
        yield row["m"], 0.0 if same else max(0.0, 1 / row["ratio"] - 1), row["other_kernel"], row["kernelName"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("-k", type=int, required=True)
    parser.add_argument("--m-range", default="1:8192")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--table", help="a table with ranges; made where it is not there")
    parser.add_argument("--seconds", type=float, default=600, help="for all of it")
    parser.add_argument("--rounds", type=int, default=5, help="paired rounds of each M")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=0.02, help="of the mean regret")
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    first, last = (int(part) for part in options.m_range.split(":"))
    with tempfile.TemporaryDirectory() as folder:
        ranges = Path(options.table) if options.table else Path(folder) / "ranges.csv"
        if not ranges.exists():
            call([options.program, "tune", "-n", str(options.n), "-k", str(options.k), "--m-range", options.m_range,
                  "-o", str(ranges), "-q", "--budget", str(options.seconds * RANGE_SHARE), *more])
        tops = range_tops(ranges, options.n, options.k)
        points = held_out(first, last, options.points, tops, options.seed)
        shapes, dense = Path(folder) / "shapes.csv", Path(folder) / "dense.csv"
        shapes.write_text("M,N,K\n" + "".join(f"{m},{options.n},{options.k}\n" for m in points), encoding="utf-8")
        types = [] if "--indtype" in more else ["--indtype", "bf16"]
        call([options.program, "tune", "-i", str(shapes), "--op", "a16w16", *types, "-o", str(dense), "-q",
              "--budget", str(options.seconds * DENSE_SHARE), *more], good=(0, 1))
        answer = json.loads(call([options.program, "bench", str(dense), "--against", str(ranges), "--json", "-q",
                                  "--rounds", str(options.rounds)], good=(0, 1)))
    found = list(regrets(answer["rows"]))
    unanswered = [row["m"] for row in answer["rows"] if row["ratio"] is None]
    if not found:
        sys.exit("no M was answered by both tables")
    mean = math.exp(sum(math.log1p(regret) for _, regret, _, _ in found) / len(found)) - 1
    for m, regret, ours, best in sorted(found, key=lambda entry: -entry[1])[:5]:
        print(f"M = {m}: {100 * regret:.2f} %, {ours} instead of {best}")
    worst = max(regret for _, regret, _, _ in found)
    print(f"{len(found)} held-out M of {first} to {last}, N = {options.n}, K = {options.k}: "
          f"regret {100 * mean:.2f} % (geometric mean), {100 * worst:.2f} % (worst)")
    print(f"rows: {len(tops)} of ranges, {len(found)} of a dense table ({len(found) / max(1, len(tops)):.1f}x fewer)")
    if unanswered:
        print(f"not answered by both tables: M = {', '.join(map(str, unanswered))}")
    return 0 if mean <= options.limit and 5 * len(tops) <= len(found) and not unanswered else 1


if __name__ == "__main__":
    sys.exit(main())
