"""tune --invariant rows, check --invariant and hunt --invariant: real kernels, simulated times.

Usage: invariant_test.py PROGRAM
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
MS = (1, 7, 40)
QUICK = ("--search", "random", "--iters", "2", "--libtype", "tiled,skinny", "--quiet")


class Invariant(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gemmtune-invariant-")))
        cls.table = cls.folder / "tuned.csv"
        done = cls.run_program("tune", "-m", ",".join(map(str, MS)), "-n", "96", "-k", "1031", "--invariant", "rows", "-o", cls.table, *QUICK)
        assert done.returncode == 0, done.stdout + done.stderr

    @classmethod
    def run_program(cls, *words):
        environment = {**os.environ, "GEMMTUNE_CONFIG_DIR": str(cls.folder / "config"), "GEMMTUNE_SHIPPED": "0", "XDG_RUNTIME_DIR": str(cls.folder)}
        return subprocess.run([str(PROGRAM), *map(str, words)], env=environment, text=True, capture_output=True, check=False)

    def rows(self, table=None):
        with open(table or self.table, newline="") as file:
            return list(csv.DictReader(file))

    def written(self, name, rows):
        path = self.folder / name
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
        return path

    def test_all_rows_have_one_class_and_the_environment_says_on_what(self):
        rows = self.rows()
        self.assertEqual([int(row["M"]) for row in rows], list(MS))
        self.assertEqual(len({row["bits"] for row in rows}), 1, rows)
        self.assertRegex(rows[0]["bits"], r"^f32-[0-9a-f]{12}$")
        environment = json.loads(pathlib.Path(f"{self.table}.env.json").read_text())
        shown = environment[rows[0]["env"]]["observations"]["bits"]
        self.assertEqual({one["class"] for one in shown.values()}, {rows[0]["bits"]})
        self.assertIn("at M = 7 and M = 1, 6, 8", "".join(one["evidence"] for one in shown.values()))

    def test_the_table_is_invariant(self):
        done = self.run_program("check", self.table, "--invariant")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"invariant, class {self.rows()[0]['bits']}, M = 1, 7, 40", done.stdout)
        self.assertIn("1 of 1 weight invariant", done.stdout)

    def test_every_m_is_served_by_the_nearest_row(self):
        for m, row in ((2, 1), (3, 7), (16, 7), (17, 40), (5000, 40)):
            done = self.run_program("lookup", "-m", m, "-n", "96", "-k", "1031", "--table", self.table, "--json")
            found = json.loads(done.stdout)
            self.assertEqual((found["level"], found["hit_m"]), ("exact" if m == row else "range", row), done.stdout)

    def test_a_row_of_another_class_is_named(self):
        rows = self.rows()
        kernel = rows[2]["kernelName"]
        self.assertRegex(kernel, "^(tiled|skinny)_")
        rows[2]["kernelName"] = kernel.replace("_sk1", "_sk2") if "_sk1" in kernel else kernel.replace("_sk2", "_sk1")
        self.assertNotEqual(rows[2]["kernelName"], kernel)
        done = self.run_program("check", self.written("other.csv", rows), "--invariant")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"not invariant: bits of a row change with M: M = 40, row \d+, element \d+ is 0x")
        self.assertRegex(done.stdout, r"M = 1 has class f32-\w+, M = 40 class f32-\w+")
        done = self.run_program("check", self.folder / "other.csv", "--invariant", "--json")
        weight, = json.loads(done.stdout)["weights"]
        self.assertEqual((weight["invariant"], len(weight["kernels"])), (False, 3))

    def test_one_kernel_has_a_class(self):
        done = self.run_program("check", "-m", "16", "-n", "96", "-k", "1031", "--libtype", "tiled", "--invariant", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(json.loads(done.stdout)["bits"], "^f32-")

    def test_what_runs_untuned_is_hunted(self):
        done = self.run_program("hunt", "--invariant", "--budget", "5", "--json")
        self.assertIn(done.returncode, (0, 1), done.stderr)
        weights = json.loads(done.stdout)["weights"]
        self.assertTrue(weights)
        for weight in weights:
            self.assertEqual(weight["invariant"], bool(weight["bits"]))
            self.assertEqual(bool(weight["difference"]), not weight["invariant"])

    def test_ranks_of_a_weight_have_its_order_of_sums(self):
        table = self.folder / "tp.csv"
        for n, k in ((96, 1024), (48, 1024), (96, 512)):
            done = self.run_program("tune", "-m", "1,40", "-n", n, "-k", k, "--invariant", "tp", "-o", table, *QUICK)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = self.rows(table)
        self.assertEqual(len(rows), 6)
        for row in rows:
            self.assertIn("_tree1", row["kernelName"])
        done = self.run_program("check", table, "--invariant", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        weights = json.loads(done.stdout)["weights"]
        orders = {weight["sum_order"] for weight in weights}
        self.assertEqual(len(orders), 1, orders)
        self.assertRegex(orders.pop(), "^tree of 256 in chain-")
        self.assertEqual([weight["ranks_by_n"] for weight in weights], [[2, 4, 8]] * 3)
        self.assertEqual(sorted(weight["ranks_by_k"] for weight in weights), [[2], [2, 4], [2, 4]])
        self.assertIn("the same bits of ranks: 2, 4, 8 by N, 2, 4 by K", self.run_program("check", table, "--invariant").stdout)

    def test_no_tree_is_no_row(self):
        done = self.run_program("tune", "-m", "1", "-n", "96", "-k", "512", "--invariant", "tp", "--libtype", "onednn,openblas,reference", "-o",
                                self.folder / "none.csv", "--search", "random", "--iters", "2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("adds no segments of k in pairs", done.stdout + done.stderr)

    def test_wrong_words(self):
        self.assertIn("expected rows or tp", self.run_program("tune", "-m", "1", "-n", "8", "-k", "8", "--invariant", "all").stderr)
        done = self.run_program("tune", "-m", "1", "-n", "8", "-k", "8", "--invariant", "rows", "--budget", "5")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--invariant rows: not with --budget", done.stderr)
        self.assertEqual(self.run_program("check", "--invariant").returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
