"""tools/slurm/tune.sh merges the shards of an output whatever characters its path has. sbatch is a script that keeps what it is given."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[2] / "tools" / "slurm" / "tune.sh"
SBATCH = """#!/bin/sh
for word; do wrapped=$word; done
printf '%s\\n' "$wrapped" >>"$WRAPPED"
echo 7
"""


class SlurmPaths(unittest.TestCase):
    def test_a_path_with_characters_of_patterns(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder).resolve()
            (place / "sbatch").write_text(SBATCH, encoding="utf-8")
            (place / "sbatch").chmod(0o755)
            (place / "words").write_text('#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\n', encoding="utf-8")
            (place / "words").chmod(0o755)
            work = place / "a[b] c*"
            work.mkdir()
            shards = [work / f"tuned.{index}of2.csv" for index in (1, 2)]
            for shard in shards:
                shard.touch()
            environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "WRAPPED": str(place / "wrapped"), "GEMMTUNE": str(place / "words")}
            subprocess.run([RECIPE, "2", work / "tuned.csv", "-i", "list.csv"], env=environment, check=True, capture_output=True)
            merge = (place / "wrapped").read_text(encoding="utf-8").splitlines()[1]
            words = subprocess.run(["sh", "-c", merge], check=True, capture_output=True, text=True).stdout.splitlines()
            self.assertEqual(words, ["merge", *map(str, shards), "--expect-shards", "2", "-o", str(work / "tuned.csv")])


if __name__ == "__main__":
    unittest.main()
