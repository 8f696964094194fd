"""The first steps of a user: a short script that captures, a line of log for each problem, files that are not used. Each is
a process of its own, as the variables are read once and the ends of a process differ."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np  # noqa: F401
except ImportError:
    print("SKIPPED: this Python has no numpy")
    sys.exit(77)

import gemmtune

CALLS = """
import os, signal, sys, threading
import numpy as np
import gemmtune

def call(m=3):
    for rows in range(1, m + 1):
        gemmtune.linear(np.ones((rows, 64), np.float32), np.ones((32, 64), np.float32))

"""
HEADER = ("gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw\n")


class Scripts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = Path(self.folder.name)

    def run_script(self, script, **variables):
        removed = ("GEMMTUNE_LOG_CONFIG", "AITER_LOG_TUNED_CONFIG", "GEMMTUNE_CONFIG_A16W16", "AITER_CONFIG_GEMM_BF16")
        environment = {name: value for name, value in os.environ.items() if name not in removed}
        environment.update(variables, GEMMTUNE_CONFIG_DIR=str(self.place))
        return subprocess.run([sys.executable, "-c", CALLS + script], env=environment, capture_output=True, text=True, check=False)

    def captured(self):
        """Sizes with a line, and calls of all."""
        path = self.place / "bf16_untuned_gemm.csv"
        if not path.exists():
            return [], 0
        with path.open(newline="") as file:
            sizes = [int(row["M"]) for row in csv.DictReader(file)]
        store = Path(str(path) + ".calls.json")
        calls = 0
        if store.exists():
            calls = sum(one["calls"] for one in json.loads(store.read_text()).values())
        return sizes, calls

    def table(self, gfx, cu_num):
        path = self.place / "t.csv"
        path.write_text(HEADER + f"{gfx},{cu_num},1,32,64,False,torch.float32,torch.float32,False,False,tiled,0,0,5.0,tiled_none,0,,\n")
        return str(path)


class Capture(Scripts):
    def test_a_script_that_ends_at_once(self):
        for number, end in enumerate(("", "sys.exit(3)", "raise ValueError('nobody catches this')",
                                      "threading.Thread(target=call, args=(2,)).start()")):
            with self.subTest(end=end):
                for file in self.place.iterdir():
                    file.unlink()
                done = self.run_script("call()\n" + end, AITER_TUNE_GEMM="1")
                self.assertEqual(done.returncode, (0, 3, 1, 0)[number], done.stderr)
                self.assertEqual(self.captured(), ([1, 2, 3], 5 if number == 3 else 3), done.stderr)

    def test_ends_that_run_nothing_keep_the_sizes(self):
        for end in ("os._exit(0)", "os.kill(os.getpid(), signal.SIGTERM)", "os.kill(os.getpid(), signal.SIGKILL)"):
            with self.subTest(end=end):
                for _ in range(5):  # a process that is stopped for long in between leaves its lines to another thread
                    for file in self.place.iterdir():
                        file.unlink()
                    self.run_script("call()\n" + end, AITER_TUNE_GEMM="1")
                    if self.captured()[0] == [1, 2, 3]:
                        break
                self.assertEqual(self.captured()[0], [1, 2, 3])

    def test_children(self):
        done = self.run_script("""
call(2)
child = os.fork()
if child == 0:
    call(3)
    sys.exit(0)
os.waitpid(child, 0)
""", AITER_TUNE_GEMM="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.captured(), ([1, 2, 3], 5))

    def test_workers_of_multiprocessing(self):
        done = self.run_script("""
import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=call)
worker.start()
worker.join()
""", AITER_TUNE_GEMM="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.captured(), ([1, 2, 3], 3))


class Log(Scripts):
    def test_the_variables_print_without_set_up(self):
        for variable in ("AITER_LOG_TUNED_CONFIG", "GEMMTUNE_LOG_CONFIG"):
            done = self.run_script("call(1)\ncall(1)", **{variable: "1"})
            lines = [line for line in done.stderr.splitlines() if "shape is M:1, N:32, K:64" in line]
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertTrue(lines[0].startswith("[gemmtune] "), lines)
            self.assertRegex(lines[0], "not found tuned config in .*bf16_tuned_gemm.csv, will use default config! using ")
        self.assertEqual(self.run_script("call(1)").stderr, "")

    def test_the_logger_is_the_programs(self):
        script = """
import logging
logging.basicConfig(level=logging.INFO, format="%(name)s|%(levelname)s|%(message)s", stream=sys.stdout)
call(1)
"""
        done = self.run_script(script)
        self.assertIn("gemmtune|INFO|shape is M:1, N:32, K:64", done.stdout)
        self.assertEqual(done.stderr, "")
        done = self.run_script(script, GEMMTUNE_LOG_CONFIG="1")
        self.assertEqual((done.stdout.count("shape is M:1"), done.stderr), (1, ""))

    def test_a_file_of_another_device_says_so_once(self):
        path = self.table("gfx950", 256)
        done = self.run_script("call(2)\nprint(gemmtune.sources()[0]['unused'])", AITER_CONFIG_GEMM_BF16=path)
        text = f"{path} is not used: 1 row of gfx950/256, none of this device, x86-"
        self.assertEqual(done.stderr.count(text), 1, done.stderr)
        self.assertIn(text, done.stdout)

    def test_a_file_that_is_missing_says_so(self):
        done = self.run_script("call(1)", GEMMTUNE_CONFIG_A16W16="/none/t.csv")
        self.assertIn("/none/t.csv: no such file", done.stderr)

    def test_rows_of_fewer_threads(self):
        device = gemmtune.Context("cpu").device()
        path = self.table(device["gfx"], device["cu_num"] + 1)
        done = self.run_script("call(1)", GEMMTUNE_CONFIG_A16W16=path)
        self.assertIn(f"(this process may use {device['cu_num']} thread", done.stderr)
        with self.assertRaisesRegex(gemmtune.errors.OtherDevice, "is not used: 1 row of x86-"):
            gemmtune.use(path)
        if device["cu_num"] > 1:
            path = self.table(device["gfx"], device["cu_num"] - 1)
            gemmtune.use(path)
            file = gemmtune.sources()[0]
            self.assertEqual((file["path"], file["rows"], file["own_rows"], file["fewer_threads_rows"]), (path, 1, 0, 1))
            self.assertEqual(file["unused"], "")


if __name__ == "__main__":
    unittest.main()
