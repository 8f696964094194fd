#!/usr/bin/env python3
"""Refuses words that the glossary replaces (docs/contributing.md, "Words"). Prints one line a finding (file:line: word: use ... instead) and
exits 1 on any.

Usage: check_words.py [ROOT]   (ROOT: the repository, default: the folder above this script)
"""

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
FOLDERS = ("src", "include", "tests", "bench", "examples", "tools", "cmake", "python", "docs", "README.md", "CHANGELOG.md", "configs", "shapes")
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


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    found = list(findings(root))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
