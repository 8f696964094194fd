"""The table of items, items.csv: what the five documents name (and what later versions of those programs have added), what it is here, and the
tests that show it, or, without one, the reason in `here`. No line lacks both, each named test exists, each step of a walk-through is named, and
the tables of docs/coming_from_*.md have the items whose `page` they are, and none that is not listed."""

import ast
import csv
import re
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
DOCS = TESTS.parent / "docs"
CODE = re.compile(r"`([^`]+)`")
REASON_WORDS = 4  # a reason is a sentence


def items():
    with open(HERE / "items.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def several(cell):
    return [part.strip() for part in cell.split(";") if part.strip()]


def methods(path):
    """The tests of a Python file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)}


def rows_of_tables(page):
    """The first cell of each row of the page's tables."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for above, line in zip(["", *lines], lines):
        if above.startswith("|") and line.startswith("|") and not re.fullmatch(r"\|[ |:-]+\|", line):
            yield line.split("|")[1].strip()


class Items(unittest.TestCase):
    def test_each_has_a_test_or_a_reason(self):
        self.assertGreater(len(items()), 100)
        for item in items():
            with self.subTest(item["item"]):
                self.assertTrue(item["document"] and item["item"] and item["here"])
                if not item["shown_by"]:
                    self.assertGreaterEqual(len(item["here"].split()), REASON_WORDS, "a reason why nothing shows it")

    def test_tests_exist(self):
        for item in items():
            for named in several(item["shown_by"]):
                with self.subTest(item=item["item"], test=named):
                    path, _, name = named.rpartition(":") if ":" in named else ("", "", named) if named.startswith("test_") else (named, "", "")
                    path = path or f"{item['document']}_test.py"
                    file = TESTS / path if "/" in path else HERE / path
                    self.assertTrue(file.is_file(), file)
                    if file.suffix == ".py" and name:
                        self.assertIn(name, methods(file))
                    elif name:
                        suite, case = name.split(".")
                        self.assertRegex(file.read_text(encoding="utf-8"), rf"TEST(_F|_P)?\({suite}, {case}\)")

    def test_each_step_shows_an_item(self):
        for path in sorted(HERE.glob("*_test.py")):
            if path == Path(__file__).resolve():
                continue
            document = path.name.removesuffix("_test.py")
            named = {test.rpartition(":")[2] for item in items() for test in several(item["shown_by"])
                     if test.startswith(f"{path.name}:") or (item["document"] == document and ":" not in test)}
            self.assertEqual({name for name in methods(path) if name.startswith("test_")} - named, set(), path.name)

    def test_pages_have_the_same_items(self):
        known = {name for item in items() for name in several(item["item"])}
        for page in sorted(DOCS.glob("coming_from_*.md")):
            listed = {name for item in items() if item["page"] == page.name for name in several(item["item"])}
            self.assertGreater(len(listed), 10, page.name)
            there = set()
            for cell in rows_of_tables(page):
                names = CODE.findall(cell) or [cell]
                with self.subTest(page=page.name, row=cell):
                    self.assertEqual(set(names) - known, set(), "not in items.csv")
                there |= set(names)
            self.assertEqual(listed - there, set(), f"{page.name} has no row of these")


if __name__ == "__main__":
    unittest.main()
