"""print(patched) and compare(): which layers run, which sizes are tuned, and is it faster."""

import argparse
import csv
import importlib.util
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import needs_torch  # noqa: F401
import torch
from torch import nn

import gemmtune
import gemmtune.torch as gt


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 96, bias=False)
        self.second = nn.Linear(96, 64)
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(64, 8))

    def forward(self, x):
        return self.normed(self.second(self.first(x)))


class Compare(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.model = Layers().to(torch.bfloat16)
        self.x = torch.randn(4, 64, dtype=torch.bfloat16)

    def test_print_says_layers_sizes_and_what_was_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "tuned.csv"
            gemmtune.tune([(4, 96, 64)], table, libtype="tiled", search="random", iters=2, confirmations=1)
            gemmtune.use(table)
            self.addCleanup(gemmtune.use, None)
            with gt.patch(self.model) as patched:
                text = str(patched)
        self.assertIn("2 of 3 layers run gemmtune's kernels", text)
        self.assertIn("cpu: 1 of 2 sizes have rows of a tuned file (1 of 2 layers)", text)
        self.assertIn("N=96 K=64: 1 layer, 1 rows", text)
        self.assertIn("N=64 K=96: 1 layer, untuned", text)
        self.assertIn(str(table), text)
        self.assertIn("left alone: 1 (normed): its weight or bias is computed", text)
        self.assertIn("2 layers, 1 left alone", repr(patched))

    def test_a_paused_patch_runs_as_before_and_comes_back(self):
        plain = self.model(self.x)
        with gt.patch(self.model) as patched:
            kind = type(self.model.first)
            self.assertIsNot(kind, nn.Linear)
            with patched.paused():
                self.assertIs(type(self.model.first), nn.Linear)
                self.assertTrue(torch.equal(self.model(self.x), plain))
            self.assertIs(type(self.model.first), kind)
        self.assertIs(type(self.model.first), nn.Linear)

    def test_compare_sees_a_slowdown_with_its_interval(self):
        class Sleeping(nn.Linear):  # what runs while the patch is paused
            def forward(self, x):
                time.sleep(0.05)
                return super().forward(x)

        model = nn.Sequential(nn.Linear(64, 64, bias=False)).to(torch.bfloat16)
        patched = gt.patch(model)
        patched._changed = [(model[0], Sleeping)]
        found = gt.compare(model, torch.zeros(2, 64, dtype=torch.bfloat16), rounds=9, warmup=1, patched=patched)
        self.assertGreater(found.before, found.after)
        self.assertGreater(found.low, 1)
        self.assertIn("faster", str(found))
        patched.undo()

    def test_compare_undoes_its_own_patch_and_counts_tokens(self):
        class Embedded(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.head = nn.Embedding(16, 32), nn.Linear(32, 16)

            def forward(self, input_ids):
                return {"logits": self.head(self.table(input_ids))}

        model = Embedded().to(torch.bfloat16)
        found = gt.compare(model, {"input_ids": torch.zeros(2, 5, dtype=torch.int64)}, rounds=6, warmup=1)
        self.assertEqual(found.tokens, 10)
        self.assertIn("tokens/s", str(found))
        self.assertLess(found.difference, 0.02)
        self.assertIs(type(model.head), nn.Linear)

    def test_what_cannot_be_compared_is_said(self):
        with self.assertRaisesRegex(gemmtune.Error, "rounds is 3, expected at least 6"):
            gt.compare(self.model, self.x, rounds=3)


class Pack(unittest.TestCase):
    def test_a_large_packed_weight_begins_at_a_huge_page(self):
        weight = torch.randint(-8, 8, (2048, 1536), dtype=torch.int8)
        apart = [torch.empty(4100 * n, dtype=torch.uint8) for n in range(1, 40)]  # so that the heap's next place is no multiple by itself
        for of_one in (weight, weight.numpy()):
            packed = [gemmtune.pack(of_one, operation="a8w8_bpreshuffle") for _ in range(3)]
            for one in packed:
                self.assertNotEqual(one.layout_name, "plain")
                begin = one.bits.ctypes.data if of_one is not weight else one.bits.data_ptr()
                self.assertEqual(begin % (2 << 20), 0)
                self.assertGreaterEqual(one.bits.nbytes, weight.numel())
        self.assertTrue(torch.equal(gemmtune.unpack(gemmtune.pack(weight, operation="a8w8_bpreshuffle")), weight))
        del apart


class LanguageModelBenchmark(unittest.TestCase):
    """bench/end_to_end/language_model.py: what it tunes on a CPU."""

    def setUp(self):
        path = Path(__file__).resolve().parents[2] / "bench" / "end_to_end" / "language_model.py"
        spec = importlib.util.spec_from_file_location("language_model", path)
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.addCleanup(gemmtune.use, None)

    def tune(self, variants, tune):
        options = argparse.Namespace(device="cpu", tuned=None, untuned=False, budget=8, variants=variants)
        model, x = Layers().to(torch.bfloat16), torch.randn(4, 64, dtype=torch.bfloat16)
        with mock.patch.object(gemmtune, "tune", tune):
            return self.module.tune(options, [model], [argparse.Namespace(run=lambda one: one(x))], self.folder, "small")

    def test_sizes_of_plain_weights_are_tuned_for_the_variant_that_keeps_them(self):
        for variants, expected in ((["patched"], {("True", 8)}), (["plain weights", "patched"], {("True", 4), ("False", 4)})):
            seen = set()

            def tune(path, tuned, budget, seen=seen, **options):
                with open(path) as file:
                    rows = list(csv.DictReader(file))
                self.assertEqual({(row["M"], row["N"], row["K"]) for row in rows}, {("4", "96", "64"), ("4", "64", "96"), ("4", "8", "64")})
                seen.update((row["bpreshuffle"], budget) for row in rows)
                return gemmtune_tune(path, tuned, libtype="tiled", search="random", iters=2, confirmations=1)

            gemmtune_tune = gemmtune.tune
            self.assertIsNotNone(self.tune(variants, tune))
            self.assertEqual(seen, expected)

    def test_without_a_row_it_runs_untuned(self):
        self.assertIsNone(self.tune(["patched"], lambda *arguments, **options: {"exit_code": 0}))


if __name__ == "__main__":
    unittest.main()
