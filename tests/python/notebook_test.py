"""What a notebook shows: rows of a run as they are settled, and a report's page. A double stands for Jupyter."""

import sys
import tempfile
import types
import unittest
from pathlib import Path

try:
    import numpy as np  # noqa: F401
except ImportError:
    print("SKIPPED: this Python has no numpy")
    sys.exit(77)

import gemmtune
from gemmtune import _notebook

QUICK = {"libtype": "reference", "iters": 2, "confirmations": 1, "indtype": "f32"}


class ZMQInteractiveShell:
    """Jupyter's shell by its name."""


class Handle:
    def __init__(self):
        self.shown = []

    def update(self, what):
        self.shown.append(what)


class Notebook(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Path(folder.name)
        self.handles = []

        def display(what, display_id):
            self.assertTrue(display_id)
            self.handles.append(Handle())
            self.handles[-1].update(what)
            return self.handles[-1]

        ipython = types.ModuleType("IPython")
        ipython.get_ipython = ZMQInteractiveShell
        shown = types.ModuleType("IPython.display")
        shown.HTML, shown.display = str, display
        for name, module in (("IPython", ipython), ("IPython.display", shown)):
            sys.modules[name] = module
            self.addCleanup(sys.modules.pop, name)

    def test_tune_shows_its_rows_in_one_place(self):
        self.assertTrue(_notebook.is_here())
        done = gemmtune.tune([(2, 32, 64), (3, 32, 64)], self.place / "tuned.csv", **QUICK)
        self.assertEqual(done["exit_code"], 0)
        self.assertEqual(len(self.handles), 1)
        last = self.handles[0].shown[-1]
        self.assertIn("2 of 2 shapes settled", last)
        self.assertIn("3x32x64: ", last)
        self.assertNotIn("in work", last)

    def test_a_settled_row_is_counted_before_it_is_done(self):
        progress = _notebook.Progress()
        progress({"event": "run_started", "waiting": [0, 1]})
        progress({"event": "problem_settled", "index": 1, "m": 1, "n": 2, "k": 3, "verdict": "win", "speedup": 1.25, "us": 4.0, "kernelName": "a<b"})
        self.assertIn("1 of 2 shapes settled, 1 won", progress.text())
        self.assertIn("1x2x3: win 1.250x  4.00 µs  a<b", progress.text())
        progress({"event": "run_ended", "state": "done"})
        self.assertIn("a&lt;b", self.handles[0].shown[-1])

    def test_a_callback_of_the_caller_is_the_only_one(self):
        seen = []
        gemmtune.tune([(2, 32, 64)], self.place / "tuned.csv", seen.append, **QUICK)
        self.assertEqual(self.handles, [])
        self.assertEqual(seen[-1]["event"], "run_ended")

    def test_report_is_shown_inline(self):
        table = self.place / "tuned.csv"
        gemmtune.tune([(2, 32, 64)], table, lambda event: None, **QUICK)
        page = gemmtune.report(table)
        self.assertIsNone(page.path)
        self.assertEqual([row["m"] for row in page.tables["rows"]], [2])
        self.assertIn("<iframe srcdoc=\"&lt;!doctype html&gt;", page._repr_html_())
        self.assertIn("1 row", repr(page))
        kept = gemmtune.report(table, output=self.place / "page.html", title="Mine")
        self.assertIn("<h1>Mine</h1>", (self.place / "page.html").read_text(encoding="utf-8"))
        self.assertEqual(kept.html, (self.place / "page.html").read_text(encoding="utf-8"))

    def test_plain_python_is_no_notebook(self):
        del sys.modules["IPython"]
        self.assertFalse(_notebook.is_here())
        sys.modules["IPython"] = types.ModuleType("IPython")


if __name__ == "__main__":
    unittest.main()
