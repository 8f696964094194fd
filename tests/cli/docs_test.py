"""The documents do not lie about what can be tried: the C++ block of the README compiles, every `gemmtune` command
line has a command and options that its help knows, and links lead to files.

Usage: docs_test.py PROGRAM COMPILER
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM, COMPILER = sys.argv[1:3]
PAGES = [ROOT / "README.md", ROOT / "src" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
SINGLE_DASH = {"-o2": "--profile-file"}


def blocks(page, language):
    return [text for name, text in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def command_lines():
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                words = line.split("#")[0].split()
                if words and words[0] == "gemmtune":
                    yield page.name, words[1:]


class Docs(unittest.TestCase):
    def test_readme_block_compiles(self):
        code = blocks(ROOT / "README.md", "cpp")
        self.assertEqual(len(code), 1)
        done = subprocess.run(
            [COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", "-xc++", "-"],
            input=code[0], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_commands_and_options_exist(self):
        lines = list(command_lines())
        self.assertGreater(len(lines), 10)
        for page, words in lines:
            done = subprocess.run([PROGRAM, words[0], "--help"], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, (page, words))
            known = set(re.findall(r"(?<![\w-])--?[\w-]+", done.stdout))
            for word in words[1:]:
                if re.fullmatch(r"--?[A-Za-z][\w-]*", word):
                    name = SINGLE_DASH.get(word, word)
                    name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
                    self.assertIn(name, known, (page, words))

    def test_links_lead_to_files(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
                if "://" not in target:
                    self.assertTrue((page.parent / target).exists(), (page.name, target))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
