"""baseline="torch": rows of a run are compared with torch.nn.functional.linear of this Python, which is named in them."""

import csv
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

import needs_torch  # noqa: F401
import torch

import gemmtune

# The budget holds what a busy machine takes to import PyTorch in the worker.
FAST = {"backend": "cpu", "libtype": "skinny,tiled", "budget": 60, "search": "random", "iters": 2, "confirmations": 1}


class Baseline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.output = Path(folder.name) / "tuned.csv"

    def tune(self, shapes, **options):
        result = gemmtune.tune(shapes, output=self.output, baseline="torch", **FAST, **options)
        with open(self.output, newline="") as file:
            rows = list(csv.DictReader(file))
        return result, rows

    def check(self, row):
        self.assertEqual(row["default_kernel"], "pytorch_r1")
        self.assertIn(row["libtype"], ("skinny", "tiled"))
        self.assertIn(row["verdict"], ("win", "undecided"))
        self.assertGreater(float(row["default_us"]), 0)
        self.assertGreater(float(row["speedup"]), 0)

    def test_rows_are_compared_with_linear_and_name_it(self):
        result, rows = self.tune([(2, 96, 80)])
        self.check(rows[0])
        version = torch.__version__
        environment = json.loads(Path(f"{self.output}.env.json").read_text())[rows[0]["env"]]
        self.assertTrue(environment["opponents"]["pytorch"].startswith(f"PyTorch {version}"), environment["opponents"])
        self.assertEqual(environment["libraries"]["PyTorch"], version)
        self.assertEqual(result["opponents"], [environment["opponents"]["pytorch"]])
        if onednn := re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show()):
            self.assertIn(f"PyTorch's oneDNN {onednn[1]}", environment["opponents"]["pytorch"])

    def test_the_other_types_and_a_bias_are_verified_against_the_reference(self):
        for dtype in ("f16", "f32"):
            with self.subTest(dtype):
                _, rows = self.tune([{"m": 3, "n": 40, "k": 72, "bias": True, "dtype": f"torch.{torch_name(dtype)}"}], all=True)
                self.check(rows[-1])

    def test_packed_weights_are_compared_with_the_plain_one(self):
        _, rows = self.tune([{"m": 2, "n": 96, "k": 64, "bpreshuffle": True, "dtype": "torch.bfloat16"}])
        self.check(rows[0])

    def test_a_python_without_pytorch_is_said(self):
        bare = self.output.parent / "python"
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        bare.chmod(0o755)
        with self.assertRaisesRegex(gemmtune.errors.CommandFailed, "No module named 'torch'"):
            gemmtune.tune([(2, 96, 80)], output=self.output, baseline="torch", python=bare, **FAST)


def torch_name(dtype):
    return {"f16": "float16", "f32": "float32"}[dtype]


if __name__ == "__main__":
    unittest.main()
