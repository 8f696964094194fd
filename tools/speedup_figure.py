#!/usr/bin/env python3
"""Draws the figure of the documents: the speed-up of tuned shapes by M, from a table of `tools/bench_gpu.py` in bench/results.

Usage: speedup_figure.py CSV SVG TITLE
       speedup_figure.py --check    compares every figure of FIGURES with what its table gives; exits 1 if one differs

A box holds the middle half of the shapes of one M, its whisker all of them, its line their geometric mean. A gray box means that a
quarter of the shapes or more gains less than 1 %. The colours follow the reader's light or dark scheme.
"""

import csv
import math
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIGURES = [("bench/results/h200/dense_bf16.csv", "docs/images/h200_speedup_by_m.svg",
            "One H200: tuned kernels against cuBLASLt's first choice, bf16")]
WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 74, 52
NO_GAIN = 1.01

STYLE = """text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-size:16px;font-weight:600}.note{fill:#59636e}
.grid{stroke:#d1d9e0}.one{stroke:#1f2328}.box{fill:#0969da;fill-opacity:.25;stroke:#0969da}.none{fill:#818b98;fill-opacity:.25;stroke:#818b98}
.mean{stroke-width:3}.dot{fill:#bc4c00}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.note{fill:#9198a1}.grid{stroke:#3d444d}.one{stroke:#f0f6fc}
.box{fill:#4493f8;stroke:#4493f8}.none{fill:#9198a1;stroke:#9198a1}.dot{fill:#f0883e}}"""


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def quantile(values, share):
    """Linear between the two nearest of the sorted values."""
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def by_m(path):
    """M -> (sorted speed-ups of plain launches, speed-ups of dependent launches)."""
    groups = {}
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            plain, dependent = groups.setdefault(int(row["M"]), ([], []))
            plain.append(float(row["speedup"]))
            if row.get("speedup_dependent"):
                dependent.append(float(row["speedup_dependent"]))
    if not groups:
        sys.exit(f"{path}: no row")
    return {m: (sorted(plain), dependent) for m, (plain, dependent) in sorted(groups.items())}


def draw(groups, title):
    lowest = min(1.0, min(plain[0] for plain, _ in groups.values()))
    highest = max(max([plain[-1], *([geometric_mean(dependent)] if dependent else [])]) for plain, dependent in groups.values())
    floor, ceiling = math.floor(lowest * 10 - 0.5) / 10, math.ceil(highest * 10) / 10
    step = (WIDTH - LEFT - RIGHT) / len(groups)

    def y(value):
        return round(HEIGHT - BOTTOM - (value - floor) / (ceiling - floor) * (HEIGHT - TOP - BOTTOM), 1)

    shapes = sum(len(plain) for plain, _ in groups.values())
    everything = geometric_mean([value for plain, _ in groups.values() for value in plain])
    slower = sum(value < 1 for plain, _ in groups.values() for value in plain)
    same = sum(1 <= value < NO_GAIN for plain, _ in groups.values() for value in plain)
    summary = f"{shapes} shapes of LLMs: {everything:.2f} on average; {same} gain less than 1 %, {slower} are slower."
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">', f"<title>{escape(title)}</title>",
           f"<desc>{escape(summary)}</desc>", f"<style>{STYLE}</style>", f'<text class="title" x="{LEFT}" y="22">{escape(title)}</text>',
           f'<text class="note" x="{LEFT}" y="42">{escape(summary)}</text>',
           f'<text class="note" x="{LEFT}" y="60">box: middle half of the shapes; whisker: all; line: geometric mean; gray: a quarter gains less than 1 %</text>']
    for tenths in range(round(floor * 10), round(ceiling * 10) + 1):
        value = tenths / 10
        kind = "one" if tenths == 10 else "grid"
        out.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" y2="{y(value)}"/>')
        if tenths % 2 == 0:
            out.append(f'<text class="note" x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.1f}</text>')
    for place, (m, (plain, dependent)) in enumerate(groups.items()):
        middle = round(LEFT + step * (place + 0.5), 1)
        kind = "none" if quantile(plain, 0.25) < NO_GAIN else "box"
        mean, low, high = geometric_mean(plain), quantile(plain, 0.25), quantile(plain, 0.75)
        out.append(f'<g class="{kind}"><title>M = {m}: {mean:.2f}, from {plain[0]:.2f} to {plain[-1]:.2f}</title>'
                   f'<line x1="{middle}" x2="{middle}" y1="{y(plain[0])}" y2="{y(plain[-1])}"/>'
                   f'<rect x="{middle - 14:.1f}" width="28" y="{y(high)}" height="{y(low) - y(high):.1f}"/>'
                   f'<line class="mean" x1="{middle - 14:.1f}" x2="{middle + 14:.1f}" y1="{y(mean)}" y2="{y(mean)}"/></g>')
        if dependent:
            out.append(f'<circle class="dot" cx="{middle}" cy="{y(geometric_mean(dependent))}" r="4"/>')
        out.append(f'<text x="{middle}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{m}</text>')
    out.append(f'<text class="note" x="{LEFT}" y="{HEIGHT - 10}">M: rows of x (tokens of a call)</text>')
    if any(dependent for _, dependent in groups.values()):
        out.append(f'<circle class="dot" cx="{WIDTH - RIGHT - 222}" cy="{HEIGHT - 14}" r="4"/>'
                   f'<text class="note" x="{WIDTH - RIGHT - 212}" y="{HEIGHT - 10}">mean with dependent launches</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    if sys.argv[1:] == ["--check"]:
        stale = [(table, figure) for table, figure, title in FIGURES
                 if not (ROOT / figure).exists() or (ROOT / figure).read_text(encoding="utf-8") != draw(by_m(ROOT / table), title)]
        for table, figure in stale:
            print(f"{figure}: differs from what {table} gives; write it again with tools/speedup_figure.py")
        return 1 if stale else 0
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(draw(by_m(sys.argv[1]), sys.argv[3]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
