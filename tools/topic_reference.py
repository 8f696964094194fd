#!/usr/bin/env python3
"""Writes docs/verdicts.md, docs/columns.md and docs/variables.md from the lists in the program's manual page (`gemmtune man`), which
`gemmtune help verdicts`, `help columns` and `help variables` show too.

Usage: topic_reference.py PROGRAM [--check]     --check: exit code 1 if a page differs, and nothing is written
"""

import re
import subprocess
import sys
from pathlib import Path

from option_reference import plain

DOCS = Path(__file__).resolve().parent.parent / "docs"
TITLES = {"verdicts": "Verdicts", "columns": "Columns of tuned files", "variables": "Environment variables"}
NOTES = {
    "verdicts": "The tests behind these words: [statistics.md](statistics.md).",
    "columns": "How files are read and written, and which table has which key: [tuned_csv.md](tuned_csv.md).",
    "variables": "When they are read, and what a wrong value does: [environment.md](environment.md).",
}


def cell(text):
    """A cell of a table; pages that the text names are links."""
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", " ".join(plain(line) for line in text.splitlines()))


def page(topic, manual):
    section = re.search(rf"^\.SH {topic.upper()}\n(.*?)(?=^\.SH |\Z)", manual, re.M | re.S)
    if not section:
        sys.exit(f"man: no section {topic.upper()}")
    about, *groups = re.split(r"^\.SS ", section[1], flags=re.M)
    text = f"# {TITLES[topic]}\n\n{cell(about)} {NOTES[topic]}\n\n"
    text += f"Made from the program by `tools/topic_reference.py`; `gemmtune help {topic}` prints it.\n"
    for number, group in enumerate(groups, 1):
        heading, _, body = group.partition("\n")
        text += f"\n<!-- table {topic}_{number} -->\n| {plain(heading)} | meaning |\n| --- | --- |\n"
        for entry in re.split(r"^\.TP\n", body, flags=re.M)[1:]:
            names, _, meaning = entry.partition("\n")
            words = plain(names.removeprefix(".B "))
            shown = words if topic == "verdicts" and number > 2 else ", ".join(f"`{name}`" for name in words.split(", "))
            text += f"| {shown} | {cell(meaning)} |\n"
        text += "<!-- end -->\n"
    return text


def main():
    program, check = (sys.argv[1:] + [""])[:2]
    if not sys.argv[1:] or check not in ("", "--check"):
        sys.exit(__doc__)
    manual = subprocess.run([program, "man"], check=True, capture_output=True, text=True).stdout
    differ = []
    for topic in TITLES:
        path, made = DOCS / f"{topic}.md", page(topic, manual)
        left = re.search(r"(?:^|\s)\.[A-Z]{2}\s", made)
        if left:
            sys.exit(f"{program} man: '{left[0].strip()}' is in {path.name}: a request of roff that page() does not know")
        if not check:
            path.write_text(made, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != made:
            differ.append(path.name)
    if differ:
        sys.exit(f"{', '.join(differ)}: differ from the program's lists; run tools/topic_reference.py {program}")


if __name__ == "__main__":
    main()
