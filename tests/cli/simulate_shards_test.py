"""tools/simulate_shards.py runs, and its figures keep what they must: nothing is faster than the bound, and nothing that deals by
cost is slower than dealing in turns.

Usage: simulate_shards_test.py PROGRAM
"""

import csv
import io
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1]


class SimulateShards(unittest.TestCase):
    def test_figures_keep_their_bounds(self):
        done = subprocess.run([sys.executable, ROOT / "tools" / "simulate_shards.py", PROGRAM, "--nodes", "8", "--shapes", "192,2000",
                               "--seeds", "3", "--kinds", "GPU"], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        self.assertEqual([row["shapes"] for row in rows], ["192", "2000"])
        for row in rows:
            for way in ("round_robin", "static", "dynamic", "static_lost", "dynamic_lost"):
                self.assertGreaterEqual(float(row[way]), 0.999, (way, row))
            self.assertLess(float(row["predicted_balance"]), 1.1)
            self.assertLess(float(row["static"]), float(row["round_robin"]) + 0.02)
            self.assertLess(float(row["dynamic"]), float(row["static"]) + 0.02)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
