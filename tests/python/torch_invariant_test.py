"""check_invariant() and patch(invariant=True)."""

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


if __name__ == "__main__":
    unittest.main()
