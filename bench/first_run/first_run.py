#!/usr/bin/env python3
"""What a new user's first run gets: the layers of Llama-3.2-1B in bf16, in a C++ and a Python program, with nothing tuned, after
some minutes of online tuning, with the shipped table of this CPU (where there is one) and tuned; beside PyTorch's F.linear.

Each member is a process; they take turns, one at a time, in rounds. Ratios are PyTorch's time over the member's, of one round
each: above 1 the member is faster. Printed: the median ratio and its quartiles; last, geometric means by M.

Usage: first_run.py BUILD PYTHON [--rounds 9] [--calls 20] [--load N] [--budget 150] [--online 120] [--table FILE] [--csv FILE]
  BUILD   the build folder (build/gemmtune, build/bench/first_run_member)
  PYTHON  a Python with PyTorch and the wheels of gemmtune
  --load  so many further processes that only compute, while members are measured
  --table the tuned rows; without it they are tuned first, for --budget seconds"""

import argparse
import csv
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = [(m, n, k) for m in (1, 16, 128) for n, k in ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192))]


class Member:
    """A process that answers lines of stdin with a number."""

    def __init__(self, name, command, home, **variables):
        self.name = name
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("GEMMTUNE_", "AITER_", "HIP_ONLINE", "XDG_"))}
        environment.update(HOME=str(home / name.replace(" ", "-")), **variables)
        Path(environment["HOME"]).mkdir()
        self.errors = open(home / (name.replace(" ", "-") + ".err"), "w+", encoding="utf-8")  # until the process ends
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, env=environment)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            self.errors.seek(0)
            sys.exit(f"{self.name} has ended: {self.errors.read()[-2000:]}")
        return float(answer)

    def microseconds(self, size, calls):
        return self.ask(" ".join(map(str, (*size, calls))))

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.errors.close()


def quartiles(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 4], statistics.median(ordered), ordered[len(ordered) * 3 // 4]


def tune(options, home):
    shapes, tuned = home / "shapes.csv", home / "tuned.csv"
    with open(shapes, "w", encoding="utf-8") as file:
        file.write("M,N,K,bias,dtype,outdtype\n")
        for size in SIZES:
            file.write(",".join(map(str, size)) + ",False,torch.bfloat16,torch.bfloat16\n")
    command = [options.build / "gemmtune", "tune", "-i", shapes, "-o", tuned, "--budget", options.budget, "-q"]
    done = subprocess.run([str(word) for word in command], check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"gemmtune tune: exit code {done.returncode}")
    return tuned


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: Path(text).resolve())
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--budget", type=float, default=150)
    parser.add_argument("--online", type=float, default=120)
    parser.add_argument("--table", type=lambda text: Path(text).resolve())
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    if options.rounds < 1 or options.calls < 1 or options.load < 0:
        parser.error("--rounds and --calls: expected at least 1, --load: at least 0")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        table = options.table or tune(options, home)
        programs = {"C++": [options.build / "bench" / "first_run_member"], "Python": [options.python, HERE / "member.py", "gemmtune"]}
        states = {"untuned": {"GEMMTUNE_SHIPPED": "0"}, "shipped": {}, "online": {"GEMMTUNE_ONLINE_TUNING": "1", "GEMMTUNE_SHIPPED": "0"},
                  "tuned": {"GEMMTUNE_CONFIG_A16W16": str(table)}}
        reference = Member("PyTorch", [options.python, HERE / "member.py", "torch"], home)
        members = [Member(f"{program} {state}", command, home, **variables)
                   for state, variables in states.items() for program, command in programs.items()]
        for member in members:
            if "online" in member.name and options.online > 0:
                sizes = " ".join(str(word) for size in SIZES for word in size)
                print(f"{member.name}: {member.ask(f'serve {options.online} {sizes}'):.0f} calls in {options.online:.0f} s", flush=True)
        load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)]
        rows = []
        try:
            print(f"{options.rounds} rounds of {options.calls} calls, {options.load} processes of load; PyTorch's time over each member's")
            for size in SIZES:
                times = {member.name: [] for member in (reference, *members)}
                for number in range(options.rounds):
                    turn = [reference, *members]
                    for member in turn[number % len(turn):] + turn[: number % len(turn)]:
                        times[member.name].append(member.microseconds(size, options.calls))
                print("x".join(map(str, size)) + f": PyTorch {statistics.median(times['PyTorch']):.0f} us", flush=True)
                for member in members:
                    low, middle, high = quartiles([a / b for a, b in zip(times["PyTorch"], times[member.name])])
                    us = statistics.median(times[member.name])
                    rows.append({"size": "x".join(map(str, size)), "m": size[0], "member": member.name, "us": round(us, 1),
                                 "torch_us": round(statistics.median(times["PyTorch"]), 1), "ratio": round(middle, 4), "low": round(low, 4), "high": round(high, 4)})
                    print(f"  {member.name:16} {us:9.0f} us  {middle:6.3f} ({low:.3f} to {high:.3f})", flush=True)
        finally:
            for process in load:
                process.kill()
                process.wait()
        for member in (reference, *members):
            member.end()
    for m in sorted({row["m"] for row in rows}):
        means = {member.name: math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows if row["member"] == member.name and row["m"] == m))
                 for member in members}
        print(f"M = {m}: " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()))
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
