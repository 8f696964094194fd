"""tools/speedup_figure.py: the figures of the documents are those of their tables, and a figure says what its table says."""

import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "speedup_figure.py"


def run(*arguments):
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False)


class Figure(unittest.TestCase):
    def drawn(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            table, figure = Path(folder) / "t.csv", Path(folder) / "f.svg"
            table.write_text("M,speedup,speedup_dependent\n" + rows, encoding="utf-8")
            done = run(table, figure, "A & B")
            self.assertEqual(done.returncode, 0, done.stderr)
            text = figure.read_text(encoding="utf-8")
            return xml.fromstring(text), text

    def test_figures_are_those_of_their_tables(self):
        done = run("--check")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_mean_range_and_counts(self):
        _, text = self.drawn("1,2.0,\n1,0.5,\n16,1.005,\n16,1.005,\n")
        self.assertIn("M = 1: 1.00, from 0.50 to 2.00", text)
        self.assertIn("2 gain less than 1 %, 1 are slower", text)
        self.assertIn("A &amp; B", text)

    def test_gray_where_a_quarter_gains_nothing(self):
        root, _ = self.drawn("1,1.2,\n1,1.3,\n16,1.0,\n16,1.0,\n16,1.5,\n")
        boxes = [group.get("class") for group in root.iter("{http://www.w3.org/2000/svg}g")]
        self.assertEqual(boxes, ["box", "none"])

    def test_dots_are_of_dependent_launches(self):
        _, with_dots = self.drawn("1,1.2,1.4\n16,1.1,\n")
        _, without = self.drawn("1,1.2,\n16,1.1,\n")
        self.assertEqual((len(re.findall("<circle", with_dots)), len(re.findall("<circle", without))), (2, 0))  # one is the legend's

    def test_table_without_rows_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "t.csv"
            table.write_text("M,speedup\n", encoding="utf-8")
            self.assertNotEqual(run(table, Path(folder) / "f.svg", "x").returncode, 0)


if __name__ == "__main__":
    unittest.main()
