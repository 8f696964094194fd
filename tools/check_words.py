#!/usr/bin/env python3
"""Refuses words that the glossary replaces (docs/contributing.md, "Words"). Prints one line a finding (file:line: word: use ... instead) and
exits 1 on any.

Manual pages (README.md, CONTRIBUTING.md and docs/*.md, not docs/lab) also have no diaries, no sentence of more than 30 words, and at most
1,500 words beside the tables that a tool makes. What they still have is in tools/prose_exceptions.csv, a number for each page and kind,
which only shrinks.

Usage: check_words.py [ROOT]        (ROOT: the repository, default: the folder above this script)
       check_words.py --shrink      lowers the numbers of tools/prose_exceptions.csv to what the pages have
"""

import csv
import re
import sys
from pathlib import Path

# (pattern, what to write instead). Patterns match whole words where a part of a word may be right.
WORDS = [
    (r"second[- ]level cache", "L2"),
    (r"first[- ]level cache", "L1"),
    (r"matrix[- _]unit", "tensor core"),
    (r"tile[- _]?units?\b", "AMX tile"),
    (r"copy engine", "TMA, bulk tensor copy"),
    (r"parts of k\b", "split-K"),
    (r"the way to y\b", "epilogue"),
    (r"\breferees?\b", "OutputVerifier"),
    (r"\bjudgements?\b", "check report"),
    (r"\bentrants?\b", "candidate, finalist"),
    (r"\bcontestants?\b", "candidate, finalist"),
    (r"\blooker\b", "confirmation pass"),
    (r"second[_ ]looks?\b", "confirmation pass"),
    (r"\bcomplaints?\b", "diagnostics"),
    (r"(?<!AITER's )\b(?:un)?shuffle_weight", "pack_weight, unpack_weight"),
    (r"\b(?:most|least|largest|usual)_[a-z]", "max_, min_, default_"),
    (r"_a_(?:thread|block|round|call|folder|stage|warp|row|step|launch|second|tile|family|worker|sample|candidate|(?:micro|multi)\w+)\b", "_per_"),
    (r"\b(?:is|are|was|were|being) told\b", "say who calls what"),
    (r"\btells? nobody\b", "say who signals what"),
]
EXEMPT = {"tools/check_words.py", "tests/cli/check_words_test.py"}  # they list the words
AITER_NAMES = ("python/gemmtune/aiter/", "tests/python/aiter_test.py")  # functions that have AITER's names
ENDINGS = {".h", ".cpp", ".c", ".cu", ".cuh", ".inc", ".md", ".py", ".sh", ".cmake", ".txt"}
FOLDERS = ("src", "include", "tests", "bench", "examples", "tools", "cmake", "python", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "configs", "models", "shapes")
EXCEPTIONS = "tools/prose_exceptions.csv"
MAX_WORDS = 30
MAX_PAGE_WORDS = 1500
MADE_TABLE = re.compile(r"<!-- table \w+ -->.*?<!-- end -->", re.S)
# (kind, pattern, what to do instead) of manual pages.
PROSE = [
    ("diary", re.compile(r"\bof (?:another|that|the same) (?:day|time)\b|\bof the day before\b", re.IGNORECASE), "say the run and its date"),
    ("goal", re.compile(r"\bnot met\b|\bgoals?\b", re.IGNORECASE), "say the figure; goals are the project's"),
]
COMPILED = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in WORDS]


def files(root):
    for folder in FOLDERS:
        top = root / folder
        for path in sorted(top.rglob("*") if top.is_dir() else [top]):
            name = path.relative_to(root).as_posix()
            if path.suffix in ENDINGS and name not in EXEMPT and not name.startswith(AITER_NAMES) and "/data/" not in name and path.is_file():
                yield name, path


def findings(root):
    for name, path in files(root):
        text = path.read_text(encoding="utf-8")
        there = [(pattern, instead) for pattern, instead in COMPILED if pattern.search(text)]
        for number, line in enumerate(text.splitlines() if there else [], 1):
            for pattern, instead in there:
                match = pattern.search(line)
                if match:
                    yield f"{name}:{number}: '{match.group(0)}': write {instead}"


def manual_pages(root):
    return [page for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))] if page.is_file()]


def passages(text):
    """(line, text) of what holds whole sentences: a paragraph, an item of a list, a cell of a table."""
    paragraph, start, fenced = [], 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("```"):
            fenced = not fenced
        apart = fenced or line.startswith(("```", "#", "|", "    ")) or not line.strip()
        if (apart or re.match(r"\s*(?:[-*]|\d+\.) ", line)) and paragraph:
            yield start, " ".join(paragraph)
            paragraph = []
        if line.startswith("|") and not fenced:
            yield from ((number, cell) for cell in line.strip("|").split("|"))
        elif not apart:
            start = start if paragraph else number
            paragraph.append(line.strip())


def sentences(text):
    """(line of its passage, number of words) of each sentence. A span of code and a link's label count as they read."""
    for number, passage in passages(text):
        plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", passage))
        for sentence in re.split(r"[.!?]\)?(?:\s|$)", plain):
            yield number, sum(1 for word in sentence.split() if re.search(r"\w", word))


def prose(page):
    """kind -> lines of the findings of a manual page, each (line, text)."""
    text = page.read_text(encoding="utf-8")
    found = {kind: [(number, f"'{match.group(0)}': {instead}") for number, line in enumerate(text.splitlines(), 1)
                    for match in pattern.finditer(line)] for kind, pattern, instead in PROSE}
    own = MADE_TABLE.sub(lambda table: "\n" * table[0].count("\n"), text)
    found["long"] = [(number, f"a sentence of {words} words: at most {MAX_WORDS}") for number, words in sentences(own) if words > MAX_WORDS]
    words = len(own.split())
    found["page"] = [(1, f"a page of {words} words: at most {MAX_PAGE_WORDS}, split it by task")] if words > MAX_PAGE_WORDS else []
    return {kind: lines for kind, lines in found.items() if lines}


def exceptions(root):
    """(page, kind) -> findings that are allowed."""
    if not (root / EXCEPTIONS).is_file():
        return {}
    with open(root / EXCEPTIONS, encoding="utf-8", newline="") as file:
        return {(row["page"], row["kind"]): int(row["at_most"]) for row in csv.DictReader(file)}


def prose_findings(root):
    allowed = exceptions(root)
    for page in manual_pages(root):
        name = page.relative_to(root).as_posix()
        for kind, lines in prose(page).items():
            at_most = allowed.get((name, kind), 0)
            if len(lines) > at_most:
                yield from (f"{name}:{number}: {text}" for number, text in lines)
                if at_most:
                    yield f"{name}: {len(lines)} of kind {kind}, {EXCEPTIONS} allows {at_most}"


def shrink(root):
    """Lowers each number to what the page has. Raises none and adds none."""
    there = {(page.relative_to(root).as_posix(), kind): len(lines) for page in manual_pages(root) for kind, lines in prose(page).items()}
    with open(root / EXCEPTIONS, "r+", encoding="utf-8", newline="") as file:
        rows = [(row["page"], row["kind"], min(int(row["at_most"]), there.get((row["page"], row["kind"]), 0))) for row in csv.DictReader(file)]
        file.seek(0)
        file.truncate()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("page", "kind", "at_most"), *(row for row in rows if row[2])])


def main():
    arguments = [word for word in sys.argv[1:] if word != "--shrink"]
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent).resolve()
    if "--shrink" in sys.argv[1:]:
        shrink(root)
    found = [*findings(root), *prose_findings(root)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
