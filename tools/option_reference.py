#!/usr/bin/env python3
"""Writes the tables of docs/options.md, all options of all commands, from the program's manual page (`gemmtune man`).

Usage: option_reference.py PROGRAM [--check]     --check: exit code 1 if the page differs, and nothing is written
"""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs/options.md"
HEAD = """# Options

All options of all commands, made from the program by `tools/option_reference.py` (`gemmtune COMMAND --help-all` prints them).
In option names `-` and `_` are equal. [tuning.md](tuning.md) and the other pages say when to use which.

"""


def plain(text):
    """Without roff's escapes and fonts, as a cell of a table."""
    text = re.sub(r"\\f[BIRP]", "", text)
    return text.replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "").replace("\\e", "\\").replace("|", "\\|").strip()


def page(manual):
    """The page of a manual page: a section and a table for each of its `.SH "gemmtune COMMAND"`."""
    parts = re.split(r'^\.SH "(gemmtune [^"]+)"\n', manual, flags=re.M)
    text = HEAD
    for name, body in zip(parts[1::2], parts[2::2]):
        body = re.split(r"^\.SH ", body, flags=re.M)[0]
        about, *options = re.split(r"^\.TP\n", body.split("\n.PP\n")[0], flags=re.M)
        text += f"## {name}\n\n{plain(about)}\n\n<!-- table {name.replace(' ', '_')} -->\n| option | meaning |\n| --- | --- |\n"
        for option in options:
            head, _, meaning = option.partition("\n")
            words = plain(head.removeprefix(".B ")).strip('"')
            cell = " ".join(plain(line) for line in meaning.splitlines())
            text += f"| `{words}` | {cell} |\n"
        text += "<!-- end -->\n\n"
    return text.rstrip("\n") + "\n"


def main():
    program, check = (sys.argv[1:] + [""])[:2]
    if not sys.argv[1:] or check not in ("", "--check"):
        sys.exit(__doc__)
    made = page(subprocess.run([program, "man"], check=True, capture_output=True, text=True).stdout)
    if made.count("## gemmtune") < 10:
        sys.exit(f"{program} man: {made.count('## gemmtune')} commands, expected 10 or more")
    left = re.search(r"(?:^|\s)\.[A-Za-z]{2}\s", made)
    if left:
        sys.exit(f"{program} man: '{left[0].strip()}' is in the page: a request of roff that page() does not know")
    if check:
        if PAGE.read_text(encoding="utf-8") != made:
            sys.exit(f"{PAGE}: differs from the program's options; run tools/option_reference.py {program}")
        return
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
