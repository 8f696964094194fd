#!/usr/bin/env python3
"""Fits the constants of a family's cost model to measured rows, by the program's own formula (build/bench/cost_model), and prints them as the row of
src/backends/cuda/families/FAMILY/FAMILY_cost.cpp. Every fifth problem is held out: its errors are of rows that the fit has not seen.

Usage: fit.py COST_MODEL FAMILY CARD [--rows FILE] [--seconds 60] [--keep NAME,…] [--factor 2.5]
CARD: h200 or h100; rows are bench/results/CARD/cost_FAMILY.csv. --seconds 0 prints the errors of the constants as they are. --keep: constants that stay.
--factor: by how much one may change.

Errors: of log(predicted / measured) the median and the 90th percentile of its size, as percent; `regret`: how much slower the kernel that the model
puts first is than the fastest measured one of the problem, mean and worst. loss() says what is minimized."""

import argparse
import csv
import math
import pathlib
import random
import subprocess
import sys
import time

PEAK = {"h100": 3.35e6, "h200": 4.81e6}  # bytes a microsecond: no `from_memory` is more
RESULTS = pathlib.Path(__file__).resolve().parent / "results"


class Model:
    """The program with a file of rows."""

    def __init__(self, program, family, card, rows):
        self.process = subprocess.Popen([program, family, card, str(rows)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.constants = {}
        for word in self.process.stdout.readline().split():
            name, _, value = word.partition("=")
            self.constants[name] = float(value)
        if not self.constants:
            sys.exit(f"fit: {program} printed no constants of {family}")

    def predicted(self, constants):
        self.process.stdin.write(" ".join(f"{name}={value!r}" for name, value in constants.items()) + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]


class Rows:
    """Measured microseconds, and the rows of each problem."""

    def __init__(self, path):
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.microseconds = [float(row["us"]) for row in rows]
        self.problems = {}
        for i, row in enumerate(rows):
            self.problems.setdefault(row["problem"], []).append(i)

    def part(self, held_out):
        return [rows for i, rows in enumerate(self.problems.values()) if (i % 5 == 2) == held_out]


def regrets(problems, measured, predicted):
    """log(time of the model's first kernel / fastest time) of each problem with several kernels."""
    return [math.log(measured[min(rows, key=lambda i: predicted[i])] / min(measured[i] for i in rows)) for rows in problems if len(rows) > 1]


def loss(problems, measured, predicted):
    """What is minimized: the mean error, the mean error beside the problem's own mean, and three times the mean regret if kernels are chosen with
    probabilities that fall by e for each 4 % of predicted time. A row weighs as the square of the problem's fastest time over its own."""
    errors = inner = weights = regret = 0.0
    for rows in problems:
        fastest = min(measured[i] for i in rows)
        first = min(predicted[i] for i in rows)
        logs = [(math.log(predicted[i] / measured[i]), (fastest / measured[i]) ** 2) for i in rows]
        weight = sum(w for _, w in logs)
        mean = sum(value * w for value, w in logs) / weight
        errors += sum(abs(value) * w for value, w in logs)
        inner += sum(abs(value - mean) * w for value, w in logs)
        weights += weight
        chances = [(first / predicted[i]) ** 25 for i in rows]
        regret += sum(chance * math.log(measured[i] / fastest) for chance, i in zip(chances, rows)) / sum(chances)
    return (errors + inner) / weights + 3 * regret / len(problems)


def describe(problems, measured, predicted):
    errors = sorted(abs(math.log(predicted[i] / measured[i])) for rows in problems for i in rows)
    regret = regrets(problems, measured, predicted) or [0.0]
    percent = [100 * (math.exp(value) - 1) for value in (errors[len(errors) // 2], errors[len(errors) * 9 // 10], sum(regret) / len(regret), max(regret))]
    return "median {:.1f} %, p90 {:.1f} %; regret mean {:.2f} %, worst {:.1f} %".format(*percent)


def fit(model, problems, measured, options):
    """A random search: one to four constants are changed at once, by less where that seldom helps. What hardly matters stays as it was."""
    kept = set(options.keep.split(","))
    start = model.constants
    names = [name for name, value in start.items() if value > 0 and name not in kept]
    random_numbers = random.Random(1)
    best = dict(start)
    least = loss(problems, measured, model.predicted(best))
    size = 0.15
    deadline = time.monotonic() + options.seconds
    while time.monotonic() < deadline and size > 0.004:
        tried = dict(best)
        for name in random_numbers.sample(names, min(len(names), random_numbers.randint(1, 4))):
            factor = tried[name] / start[name] * math.exp(random_numbers.gauss(0, size))
            tried[name] = start[name] * min(max(factor, 1 / options.factor), options.factor)
            if name == "from_memory":
                tried[name] = min(tried[name], PEAK[options.card])
        value = loss(problems, measured, model.predicted(tried))
        if value < least:
            best, least = tried, value
            size = min(0.3, size * 1.3)
        else:
            size *= 0.9993
    for name in names:
        tried = {**best, name: start[name]}
        value = loss(problems, measured, model.predicted(tried))
        if value < least * 1.002:
            best, least = tried, value
    return {name: float(f"{value:.3g}") for name, value in best.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cost_model")
    parser.add_argument("family")
    parser.add_argument("card")
    parser.add_argument("--rows", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--keep", default="")
    parser.add_argument("--factor", type=float, default=2.5)
    options = parser.parse_args()
    path = options.rows or RESULTS / options.card / f"cost_{options.family}.csv"
    rows = Rows(path)
    model = Model(options.cost_model, options.family, options.card, path)
    print(f"{options.family}: {len(rows.microseconds)} rows of {len(rows.problems)} problems")
    constants = dict(model.constants)
    for title in ["as they are", "fitted"][: 2 if options.seconds > 0 else 1]:
        if title == "fitted":
            constants = fit(model, rows.part(False), rows.microseconds, options)
        predicted = model.predicted(constants)
        for part, held_out in [("seen", False), ("held out", True)]:
            print(f"{title}, {part}: {describe(rows.part(held_out), rows.microseconds, predicted)}")
    if options.seconds > 0:
        print(" ".join(f".{name} = {value:g}," for name, value in constants.items()))


if __name__ == "__main__":
    main()
