"""tools/check_words.py refuses words that the glossary replaces in a small tree of its own, and nothing in a right one."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_words.py"
RIGHT = {
    "src/gpu/limits.h": "std::size_t shared_bytes_per_block = 0;  // the most of one block\n",
    "src/numbers/layout.h": "// AITER's shuffle_weight(w, (16, 16))\n",
    "docs/design.md": "A tile is a unit of work. One that tells two kernels apart.\n",
    "README.md": "tensor cores, AMX tiles\n",
}


def run(changes):
    """The check's exit status and output over RIGHT with `changes` on top."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {**RIGHT, **changes}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class CheckWords(unittest.TestCase):
    def red(self, changes, line):
        self.assertEqual(run(changes), (1, line + "\n"))

    def test_right_tree_is_green(self):
        self.assertEqual(run({}), (0, ""))

    def test_superlative_as_a_bound(self):
        self.red({"src/x.cpp": "\nint most_problems = 3;\n"}, "src/x.cpp:2: 'most_p': write max_, min_, default_")

    def test_unit_per_thing(self):
        self.red({"src/x.h": "int registers_a_thread;\n"}, "src/x.h:1: '_a_thread': write _per_")

    def test_old_name_of_a_unit(self):
        self.red({"docs/x.md": "The tile unit adds.\n"}, "docs/x.md:1: 'tile unit': write AMX tile")
        self.red({"src/x.h": "struct TileUnit {};\n"}, "src/x.h:1: 'TileUnit': write AMX tile")

    def test_our_own_shuffle(self):
        self.red({"src/x.h": "void shuffle_weight();\n"}, "src/x.h:1: 'shuffle_weight': write pack_weight, unpack_weight")

    def test_code_that_is_told(self):
        self.red({"README.md": "The device is told.\n"}, "README.md:1: 'is told': write say who calls what")

    def test_diaries_and_goals_of_manual_pages(self):
        self.red({"docs/x.md": "\nFigures of another day.\n"}, "docs/x.md:2: 'of another day': say the run and its date")
        self.red({"README.md": "1.2: **not met**\n"}, "README.md:1: 'not met': say the figure; goals are the project's")
        self.assertEqual(run({"docs/lab/x.md": "Of another day, not met.\n", "CHANGELOG.md": "Of another day.\n"}), (0, ""))

    def test_long_sentences_of_manual_pages(self):
        long = " ".join(["word"] * 31)
        red = "a sentence of 31 words: at most 30"
        self.red({"docs/x.md": f"Short.\n\n{long}.\n"}, f"docs/x.md:3: {red}")
        self.red({"docs/x.md": f"- short\n- {long}\n"}, f"docs/x.md:2: {red}")
        self.red({"docs/x.md": f"| a | {long} |\n"}, f"docs/x.md:1: {red}")
        self.red({"docs/x.md": " ".join(["word"] * 16) + "\n" + " ".join(["word"] * 15) + "\n"}, f"docs/x.md:1: {red}")
        half = " ".join(["word"] * 16)
        for right in (f"{half}. {half}.", f"{half}\n\n{half}", f"- {half}\n- {half}", f"| {half} | {half} |", f"```sh\n{long}\n```",
                      " ".join(["word"] * 29) + " [`a b c`](d.md)"):
            self.assertEqual(run({"docs/x.md": right + "\n"}), (0, ""), right)

    def test_pages_are_short_but_for_made_tables(self):
        words = "word. " * 1501
        self.red({"docs/x.md": words}, "docs/x.md:1: a page of 1501 words: at most 1500, split it by task")
        self.assertEqual(run({"docs/x.md": "word. " * 1500 + f"\n<!-- table made -->\n{words}\n<!-- end -->\n"}), (0, ""))

    def test_exceptions_allow_a_number_and_no_more(self):
        two = {"docs/x.md": "Not met.\n\nNot met.\n"}
        self.assertEqual(run({**two, "tools/prose_exceptions.csv": "page,kind,at_most\ndocs/x.md,goal,2\n"}), (0, ""))
        status, lines = run({**two, "tools/prose_exceptions.csv": "page,kind,at_most\ndocs/x.md,goal,1\n"})
        self.assertEqual((status, lines.splitlines()[-1]), (1, "docs/x.md: 2 of kind goal, tools/prose_exceptions.csv allows 1"))

    def test_exceptions_shrink_and_never_grow(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "docs").mkdir()
            (root / "tools").mkdir()
            (root / "docs/x.md").write_text("Not met.\n\nNot met.\n", encoding="utf-8")
            (root / "docs/y.md").write_text("Not met.\n\nNot met.\n", encoding="utf-8")
            listed = root / "tools/prose_exceptions.csv"
            listed.write_text("page,kind,at_most\ndocs/gone.md,goal,4\ndocs/x.md,goal,5\ndocs/y.md,goal,1\n", encoding="utf-8")
            subprocess.run([sys.executable, CHECK, "--shrink", root], capture_output=True, check=False)
            self.assertEqual(listed.read_text(encoding="utf-8"), "page,kind,at_most\ndocs/x.md,goal,2\ndocs/y.md,goal,1\n")

    def test_data_of_tests_and_the_list_itself_are_exempt(self):
        self.assertEqual(run({"tests/data/x.txt": "copy engine\n", "tools/check_words.py": "copy engine\n"}), (0, ""))


if __name__ == "__main__":
    unittest.main()
