"""check_invariant() and patch(invariant=True)."""

import argparse
import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

import needs_torch  # noqa: F401
import torch
from torch import nn

import gemmtune
import gemmtune.torch as gt
from gemmtune import errors

N, K = 96, 1031


class SplitByM(nn.Linear):
    """Another order of sums from 8 rows on."""

    def forward(self, x):
        x, w = x.float(), self.weight.float()
        half = x.shape[1] // 2 if len(x) >= 8 else x.shape[1]
        sums = torch.zeros(len(x), len(w))
        for part in (slice(None, half), slice(half, None)):
            total = torch.zeros_like(sums)
            for k in range(part.start or 0, part.stop or x.shape[1]):
                total = total + x[:, k:k + 1] * w[:, k]
            sums = sums + total
        return sums


class Fixed(SplitByM):
    def forward(self, x):
        return torch.cat([super(Fixed, self).forward(row[None]) for row in x])


def sweep():
    """bench/invariant_sweep.py as a module."""
    path = Path(__file__).resolve().parents[2] / "bench" / "invariant_sweep.py"
    spec = importlib.util.spec_from_file_location("invariant_sweep", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclasses
    spec.loader.exec_module(module)
    return module


class Sweep(unittest.TestCase):
    """What bench/invariant_sweep.py finds in operations that are written here."""

    def case(self, layer):
        module = sweep()
        options = argparse.Namespace(device="cpu", on_gpu=False, every=9, drawn=3, most=24)

        def make(data):
            linear = layer(data.k, data.n, bias=False)
            linear.weight = nn.Parameter(data.weight(torch.bfloat16), requires_grad=False)
            return module.Operands([data.x(torch.bfloat16)], lambda x, out: out.copy_(linear(x)), None, data.n, torch.bfloat16)

        case = module.Case(argparse.Namespace(make=make), 5, 288, options)
        with torch.inference_mode():
            case.run()
            return case.first_difference(), int(case.other.sum())

    def test_equal_bits(self):
        self.assertEqual(self.case(Fixed), ("", 0))

    def test_another_order_from_some_m_on(self):
        first, bits = self.case(SplitByM)
        self.assertRegex(first, r"^M = 8 row \d \(probe \d\) column \d$")
        self.assertGreater(bits, 0)


class CheckInvariant(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def test_names_m_row_and_element(self):
        model = nn.Sequential(SplitByM(67, 5, bias=False), Fixed(67, 5, bias=False)).float()
        found = gt.check_invariant(model, (1, 2, 9))
        self.assertEqual(found.invariant, ["1"])
        self.assertEqual(list(found.different), ["0"])
        self.assertRegex(found.different["0"], r"^M = 9, row \d, element \d has the bits .* in row 0 of M = 1$")
        self.assertFalse(found)
        self.assertIn("1 of 2 layers are batch-invariant", str(found))
        self.assertTrue(gt.check_invariant(model, (1, 2, 7)))

    def test_a_patched_model_with_rows_of_one_class(self):
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "tuned.csv"
            gemmtune.tune([(m, N, K) for m in (1, 7, 40)], table, libtype="tiled,skinny", search="random", iters=2, invariant="rows")
            gemmtune.use(table)
            self.addCleanup(gemmtune.use, None)
            model = nn.Sequential(nn.Linear(K, N, bias=False)).to(torch.bfloat16)
            with gt.patch(model, invariant=True):
                found = gt.check_invariant(model, (1, 2, 3, 7, 16, 33, 40, 64, 130))
                self.assertTrue(found, found)
            model.append(nn.Linear(N, 64, bias=False).to(torch.bfloat16))
            with self.assertRaisesRegex(errors.NotFound, "1 layers have no rows of a bit class: 1; "):
                gt.patch(model, invariant=True)
            self.assertIs(type(model[0]), nn.Linear)


class RowsOfPlansAhead(unittest.TestCase):
    def test_are_not_zero_and_leave_pytorchs_generator_alone(self):
        state = torch.get_rng_state()
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn):
            x = gt._operators.random_rows(5, 64, dtype, torch.device("cpu"))
            self.assertEqual((x.dtype, tuple(x.shape)), (dtype, (5, 64)))
            self.assertGreater(int((x.float() != 0).sum()), 300)
            self.assertTrue(torch.equal(x.float(), gt._operators.random_rows(5, 64, dtype, torch.device("cpu")).float()))
        self.assertTrue(torch.equal(torch.get_rng_state(), state))


if __name__ == "__main__":
    unittest.main()
