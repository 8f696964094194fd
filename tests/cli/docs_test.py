"""The documents match the tree: the C++ block of the README compiles, every `gemmtune` command line has a command and
options that its help knows, links lead to files and headings, and paths, functions and variables that are named exist.

Usage: docs_test.py PROGRAM COMPILER
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM, COMPILER = sys.argv[1:3]
FOLDERS = ["docs", "src", "bench", "configs", "tests"]
PAGES = [*sorted(ROOT.glob("*.md")), *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md")))]
# What was true of an older version stays in the changelog.
TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
# A path from the root of the repository, as far as it has no placeholder.
TREE_PATH = re.compile(r"(?<![\w./~-])(?:src|docs|bench|tools|tests|shapes|configs|examples|include|cmake)/[\w./-]*")
SINGLE_DASH = {"-o2": "--profile-file"}


def text_of(page):
    return page.read_text(encoding="utf-8")


def blocks(page, language):
    return [text for name, text in BLOCK.findall(text_of(page)) if name == language]


def command_lines():
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                words = line.split("#")[0].split()
                if words and words[0] == "gemmtune":
                    yield page.name, words[1:]


def anchors(page):
    """What a heading is called in a link."""
    headings = re.findall(r"^#+ (.*)$", BLOCK.sub("", text_of(page)), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named_in(*patterns):
    files = [file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()]
    return {word for file in files for word in re.findall(r"\w+", file.read_text(encoding="utf-8", errors="replace"))}


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
            if words[0] in ("help", "completion", "man", "version"):
                done = subprocess.run([PROGRAM, *words], capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, (page, words))
                continue
            done = subprocess.run([PROGRAM, words[0], "--help-all"], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, (page, words))
            known = set(re.findall(r"(?<![\w-])--?[\w-]+", done.stdout))
            for word in words[1:]:
                if re.fullmatch(r"--?[A-Za-z][\w-]*", word):
                    name = SINGLE_DASH.get(word, word)
                    name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
                    self.assertIn(name, known, (page, words))

    def test_links_lead_to_files_and_headings(self):
        links = 0
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
                if "://" in target:
                    continue
                path, _, anchor = target.partition("#")
                file = page.parent / path if path else page
                self.assertTrue(file.exists(), (str(page), target))
                if anchor:
                    self.assertIn(anchor, anchors(file), (str(page), target))
                links += 1
        self.assertGreater(links, 30)

    def test_paths_exist(self):
        paths = [(page, path) for page in TODAY for code in CODE.findall(text_of(page)) if not re.search(r"[<>*…]", code)
                 for path in TREE_PATH.findall(code)]
        self.assertGreater(len(paths), 30)
        for page, path in paths:
            # A program is named without its source's ending.
            self.assertTrue((ROOT / path).exists() or (ROOT / f"{path}.cpp").exists(), (str(page), path))

    def test_every_variable_that_is_read_is_explained(self):
        words = subprocess.run([PROGRAM, "help", "variables"], text=True, capture_output=True, check=True).stdout
        explained = set(re.findall(r"^  ([A-Z].*?)(?:  |$)", words, re.M))
        explained = {name for names in explained for name in names.split(", ")}
        readers = re.compile(r"getenv\(|first_set\(|environ\b|user_folder\(|read_number|NumberVariable|_variable = |\{\"VIRTUAL_ENV\"")
        read = set()
        for path in [*ROOT.glob("src/**/*.cpp"), *ROOT.glob("src/**/*.h"), *ROOT.glob("python/**/*.py"), ROOT / "tools" / "prebuild_kernels.sh"]:
            for line in path.read_text(encoding="utf-8").splitlines():
                if readers.search(line):
                    read |= set(re.findall(r"\"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|HOME|PATH)\"", line))
                if path.suffix == ".sh":
                    read |= set(re.findall(r"\$\{?(GEMMTUNE_[A-Z_]+|PREBUILD_[A-Z_]+)", line))
        self.assertGreater(len(read), 30)
        self.assertEqual(read - explained, set())
        # Built from names of operations, or a list of its own (scheduler_variable_names).
        made = {name for name in explained if name.startswith(("GEMMTUNE_CONFIG_A", "GEMMTUNE_CONFIG_B", "GEMMTUNE_CONFIG_F", "AITER_CONFIG_"))}
        sources = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "src/base/environment.cpp", ROOT / "src/problem/operation.cpp"])
        self.assertEqual({name for name in explained - read - made if f'"{name}"' not in sources}, set(), "explained and not read")

    def test_functions_and_variables_exist(self):
        functions = named_in("include/gemmtune/*", "CMakeLists.txt", "cmake/*", "src/**/CMakeLists.txt", "src/**/*.cmake")
        functions |= {path.name for path in (ROOT / "python").iterdir()}  # packages
        variables = functions | named_in("Makefile", "python/**/*.py", "src/**/*.cpp", "src/**/*.h", "tools/*", "tests/**/*.cpp",
                                         "tests/support/*")
        for page in TODAY:
            for code in [*CODE.findall(text_of(page)), *(text for _, text in BLOCK.findall(text_of(page)))]:
                for name in re.findall(r"\bgemmtune_[a-z0-9_]*[a-z0-9]\b", code):
                    self.assertTrue(name in functions, (str(page), name))
                for name in re.findall(r"\bGEMMTUNE_[A-Z0-9_]*[A-Z0-9]\b", code):
                    self.assertTrue(name in variables, (str(page), name))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
