"""What the tests of this folder share: a recording that is tuned whole and in shards, without timing, so that the tables
must be equal byte for byte."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("GEMMTUNE", ROOT / "build" / "gemmtune")).resolve()
RECORDING = ROOT / "tests" / "data" / "recordings" / "cpu-amx.jsonl.gz"
REPLAY = ["--replay", str(RECORDING), "--confirmations", "1"]


sys.path.insert(0, str(ROOT / "tests" / "support"))
from operation_lists import QUICK, OperationLists  # noqa: E402, F401


def run(words, **more):
    return subprocess.run([str(word) for word in words], text=True, capture_output=True, check=False, **more)


class ShardsOfARecording(OperationLists, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="gemmtune-machines-")
        cls.folder = pathlib.Path(cls.temporary.name)
        done = run([PROGRAM, "tune", *REPLAY, "-o", cls.folder / "whole.csv", "-q"])
        assert done.returncode == 0, done.stderr
        cls.whole = (cls.folder / "whole.csv").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def file(self, name):
        return self.folder / name

    def slow_program(self, seconds):
        """gemmtune, whose shards begin after so many seconds: time to end one in the middle."""
        path = self.file("slow-gemmtune")
        path.write_text(f'#!/bin/sh\ncase " $* " in *" --list "*|"merge "*|" merge "*) ;; *) sleep {seconds} ;; esac\n'
                        f'exec {PROGRAM} "$@"\n')
        path.chmod(0o755)
        return path

    def merge(self, count, name="tuned"):
        return run([PROGRAM, "merge", self.file(f"{name}.*of{count}.csv"), "--expect-shards", count, "-o", self.file(f"{name}.csv")])

    def expect_whole(self, name="tuned.csv"):
        self.assertEqual(self.file(name).read_bytes(), self.whole)


def main():
    if not PROGRAM.is_file():
        sys.exit(f"{PROGRAM}: no program; build it, or set GEMMTUNE")
    unittest.main(argv=sys.argv)
