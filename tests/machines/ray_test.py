#!/usr/bin/env python3
"""`python3 -m gemmtune.ray` with two workers, one of which is killed in the middle, and one that hangs. Run it with a Python
that has ray (`python3 -m venv V && V/bin/pip install ray && V/bin/python tests/machines/ray_test.py`)."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

from shards_of_a_recording import PROGRAM, QUICK, REPLAY, ROOT, ShardsOfARecording, main, run

MARK = f"gemmtune-ray-test-{uuid.uuid4()}"


def busy_workers():
    """Ray's processes of this test that are at a shard."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"ray::Worker.tune" in (folder / "cmdline").read_bytes() and MARK.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue  # it has ended
    return found


class Ray(ShardsOfARecording):
    def words(self, program, *more):
        # Of a file alone: the package around it needs its library, which this test does not.
        return [sys.executable, "-m", "gemmtune.ray", "-o", self.file("tuned.csv"), "--gemmtune", program, "--workers", "2", *more,
                *REPLAY]

    def environment(self):
        package = self.folder / "package" / "gemmtune"
        package.mkdir(parents=True, exist_ok=True)
        (package / "ray.py").write_bytes((ROOT / "python" / "gemmtune" / "ray.py").read_bytes())
        return {**os.environ, "PYTHONPATH": str(package.parent), "GEMMTUNE_TEST_MARK": MARK}

    def setUp(self):
        for path in self.folder.glob("tuned.csv*"):
            run(["rm", "-rf", path])

    def test_a_worker_that_is_killed_costs_its_shard_alone(self):
        driver = subprocess.Popen(self.words(self.slow_program(1), "--shards", "6"), env=self.environment(), cwd=self.folder,
                                  text=True, stderr=subprocess.PIPE)
        victim = None
        for _ in range(600):
            workers = busy_workers()
            if len(list(self.folder.glob("tuned.csv.shards/*.shard.json"))) >= 1 and workers:
                victim = workers[0]
                os.kill(victim, signal.SIGKILL)
                break
            time.sleep(0.1)
        _, messages = driver.communicate(timeout=300)
        self.assertIsNotNone(victim, messages)
        self.assertEqual(driver.returncode, 0, messages)
        self.assertIn("its worker is lost", messages)
        self.expect_whole()
        again = run(self.words(PROGRAM, "--shards", "6"), env=self.environment(), cwd=self.folder)
        self.assertIn("6 shards are there already", again.stderr)
        self.expect_whole()

    def test_every_operation(self):
        for operation, folder in self.each_operation():
            with self.subTest(operation):
                done = run([sys.executable, "-m", "gemmtune.ray", "-i", folder / "list.csv", "-o", folder / "tuned.csv", "--gemmtune", PROGRAM, "--workers",
                            "2", "--shards", "2", "--merge-seconds", "0", "--op", operation, *QUICK], env=self.environment(), cwd=folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_both_rows(folder / "tuned.csv", done.stderr)

    def test_a_straggler_is_started_again(self):
        program = self.file("hanging-gemmtune")
        # The first process that gets shard 2 hangs.
        program.write_text(f'#!/bin/sh\ncase " $* " in *" --list "*) ;; *" --shard 2/4 "*) mkdir {self.folder}/hung 2>/dev/null '
                           f'&& exec sleep 600 ;; esac\nexec {PROGRAM} "$@"\n')
        program.chmod(0o755)
        done = run(self.words(program, "--shards", "4"), env=self.environment(), cwd=self.folder, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("shard 2: takes long, is started again", done.stderr)
        self.expect_whole()

    def test_a_wrong_option_ends_the_run(self):
        done = run(self.words(PROGRAM, "--shards", "2", "--search", "nonsense"), env=self.environment(), cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--search nonsense", done.stderr)


if __name__ == "__main__":
    main()
