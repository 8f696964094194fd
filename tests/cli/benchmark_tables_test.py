"""tools/benchmark_tables.py: README.md and docs/benchmarks.md have the tables that bench/results gives, and a loss is shown as one."""

import importlib.util
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "benchmark_tables.py"
spec = importlib.util.spec_from_file_location("benchmark_tables", TOOL)
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


class BenchmarkTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("RESULTS", "ROOT"):
            self.addCleanup(setattr, tables, name, getattr(tables, name))

    def result(self, name, text):
        tables.RESULTS = self.folder
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def test_the_page_is_that_of_the_files(self):
        done = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_another_figure_and_a_missing_table_are_findings(self):
        tables.ROOT = self.folder
        self.addCleanup(setattr, sys, "argv", sys.argv)
        sys.argv = ["benchmark_tables.py", "--check"]
        (self.folder / "docs").mkdir()
        for name, makers in tables.PAGES.items():
            page = "".join(f"<!-- table {make.__name__} -->\n{make()}<!-- end -->\n" for make in makers)
            figure = re.search(r"\d\.\d\d", page)[0]
            for text, status in ((page.replace(figure, "9.87", 1), 1), (page.replace("<!-- end -->", "", 1), 1), (page, 0)):
                with self.subTest(name=name, status=status):
                    for other, others in tables.PAGES.items():
                        whole = "".join(f"<!-- table {make.__name__} -->\n{make()}<!-- end -->\n" for make in others)
                        (self.folder / other).write_text(text if other == name else whole, encoding="utf-8")
                    self.assertEqual(tables.main(), status)

    def test_a_loss_is_bold(self):
        self.assertEqual([tables.ratio(value) for value in ("1.004", "0.994", "0.999")], ["1.00", "**0.99**", "1.00"])

    def test_the_best_peer_and_the_worst_shape(self):
        for name in ("h100/dense_8bit_blocks_peers.csv", "h100/dense_8bit_rows_peers.csv", "h200/batched_peers.csv"):
            self.result(name, "format,run,n,k,m,who,us\n")
        self.result("h200/mxfp4_humming.csv", "n,k,m,who,us\n8,8,1,gemmtune,10\n8,8,1,humming,20\n8,9,1,gemmtune,10\n8,9,1,humming,5\n"
                                              "8,8,1,F.linear bf16,40\n8,8,1,gemmtune bf16,30\n")
        lines = tables.peers().splitlines()
        self.assertIn("| humming-kernels | 1.00, **0.50** |", lines[5])
        self.assertIn("| 3.00, 3.00 |", lines[6])  # of the faster one, where there is one


if __name__ == "__main__":
    unittest.main()
