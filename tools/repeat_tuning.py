#!/usr/bin/env python3
"""Tunes the same list of shapes from nothing several times, and says how often the runs name the same winner: equal
names, or each inside the other's tie set (kernels that its rounds could not tell from the winner). Then times the first
run's rows (--every-run: all rows of every run) against the default kernel on fresh data. Needs a quiet machine. Exit
code 1 where a limit is missed.

--load COMMAND runs beside the tuning and is ended before rows are measured again: no row may then be slower than the
default, and the intervals of the speed-ups must hold the quiet ratio in a share of --contain of the rows. The quiet ratio
is the median of --passes passes over all rows, because it moves from minute to minute too.

Usage: repeat_tuning.py PROGRAM SHAPES [--runs 2] [--limit 0.95] [--out FOLDER] [--every-run] [--load COMMAND]
                        [--contain 0.9] [--passes 1] [-- further words for gemmtune tune]
"""

import argparse
import contextlib
import itertools
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def call(words, allowed=(0,)):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, check=False)
    if done.returncode not in allowed:
        sys.exit(f"{words}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


@contextlib.contextmanager
def beside(command):
    """Runs a command, if there is one, until the block ends."""
    if not command:
        yield
        return
    with subprocess.Popen(shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(1)
        if process.poll() is not None:
            sys.exit(f"--load {command}: ended at once, exit code {process.returncode}")
        try:
            yield
        finally:
            process.terminate()
            process.wait()


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


def measure(program, tuned):
    """One pass over a run's rows: its answer, and the rows that are slower than the default or not right."""
    again = call([program, "bench", tuned, "--rounds", "30", "--json", "-q"], (0, 1))
    slower = [row for row in again["rows"] if (row["certain_ratio"] or 0) > 1.01]
    wrong = [row for row in again["rows"] if row["status"] != "OK"]
    print(f"{tuned.name} measured again: {len(again['rows'])} rows, speed-up {again['geometric_mean_speedup']:.3f}, "
          f"{len(slower)} slower than the default (99.9 %, 1 %), {len(wrong)} not right", flush=True)
    for row in slower + wrong:
        print(f"  {row['problem']}: {row['kernelName']} {row['ratio']} {row['reason']}")
    return again["rows"], len(slower) + len(wrong)


def intervals_that_hold(tuned, rows, passes):
    """How many intervals of a run's rows hold the median of their quiet ratios, and of how many."""
    ratios = {}
    for row in itertools.chain.from_iterable(passes):
        if row["ratio"]:
            ratios.setdefault(row["problem"], []).append(1 / row["ratio"])
    held = compared = 0
    for problem, quiet_ratios in ratios.items():
        tuned_row = rows.get(problem)
        if tuned_row is None or tuned_row.get("speedup_low") is None:
            continue
        compared += 1
        quiet = statistics.median(quiet_ratios)
        holds = tuned_row["speedup_low"] <= quiet <= tuned_row["speedup_high"]
        held += holds
        if not holds:
            print(f"  {problem}: {tuned_row['kernelName']} {tuned_row['speedup']:.3f} "
                  f"({tuned_row['speedup_low']:.3f} to {tuned_row['speedup_high']:.3f}), quiet {quiet:.3f} "
                  f"({min(quiet_ratios):.3f} to {max(quiet_ratios):.3f})")
    print(f"{tuned.name}: {held} of {compared} intervals hold the quiet ratio", flush=True)
    return held, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("shapes")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=0.95)
    parser.add_argument("--out", help="keep the tuned files here")
    parser.add_argument("--every-run", action="store_true", help="measure the rows of every run again, not of the first")
    parser.add_argument("--load", help="a command that runs beside the tuning")
    parser.add_argument("--passes", type=int, default=1, help="how often rows are measured again")
    parser.add_argument("--contain", type=float, default=0.9, help="share of intervals that must hold the ratio, with --load")
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.out or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        runs = []
        with beside(options.load):
            for number in range(1, options.runs + 1):
                tuned = folder / f"run{number}.csv"
                result = call([options.program, "tune", "-i", options.shapes, "-o", tuned, "--all", "--no-resume",
                               "--json", "-q", *more])
                rows = {row["problem"]: row for row in result["problems"] if "kernelName" in row}
                (folder / f"run{number}.json").write_text(json.dumps(result), encoding="utf-8")
                runs.append(rows)
                busy = sum(4 * row["rounds"]["disturbed"] > row["rounds"]["used"] for row in rows.values())
                print(f"run {number}: {len(rows)} rows, {result['candidates']} candidates, {result['seconds']:.0f} s, "
                      f"speed-up {result['geometric_mean_speedup']:.3f}, {busy} on a busy machine", flush=True)
        share = compare(runs) if len(runs) > 1 else 1
        measured = runs if options.every_run else runs[:1]
        files = [folder / f"run{number}.csv" for number in range(1, len(measured) + 1)]
        passes = [[measure(options.program, tuned) for tuned in files] for _ in range(options.passes)]
        bad = sum(count for of_pass in passes for _, count in of_pass)
        held = compared = 0
        for i, (tuned, rows) in enumerate(zip(files, measured)):
            of_run = intervals_that_hold(tuned, rows, [of_pass[i][0] for of_pass in passes])
            held, compared = held + of_run[0], compared + of_run[1]
    contained = not options.load or held >= options.contain * compared
    return 0 if share >= options.limit and bad == 0 and contained else 1


if __name__ == "__main__":
    sys.exit(main())
