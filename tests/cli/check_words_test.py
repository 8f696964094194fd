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

    def test_data_of_tests_and_the_list_itself_are_exempt(self):
        self.assertEqual(run({"tests/data/x.txt": "copy engine\n", "tools/check_words.py": "copy engine\n"}), (0, ""))


if __name__ == "__main__":
    unittest.main()
