"""Views of the operands of torch.ops.gemmtune.*: right as their contiguous copies, or refused. GEMMTUNE_SOAK=1 draws 10,000 an
operation; GEMMTUNE_SEED begins with another seed."""

import sys
import unittest
import warnings

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"SKIPPED: this Python has no {missing.name} (GEMMTUNE_TEST_PYTHON names another)")
    sys.exit(77)
if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 9):
    print(f"SKIPPED: PyTorch {torch.__version__} is older than 2.9")
    sys.exit(77)

import operand_views

import gemmtune
import gemmtune.torch
from gemmtune import errors

DTYPES = {"bf16": torch.bfloat16, "f8_e4m3fn": torch.float8_e4m3fn}


def tensor_of(array, word):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of arrays that are read-only, as those of stride 0
        tensor = torch.from_numpy(array)
    return tensor.view(DTYPES[word]) if word in DTYPES else tensor


@operand_views.add_tests
class Views(unittest.TestCase, operand_views.Properties):
    kinds = operand_views.STRIDED
    refusal = (errors.InvalidArgument, errors.Unsupported)  # a transposed fp8 weight has no kernel on a CPU

    def run_call(self, call, operands, out):
        tensors = {name: tensor_of(np.asarray(bits.array), bits.word) for name, bits in operands.items()}
        getattr(gemmtune, call.function)(**tensors, out=tensor_of(out, call.result[1]), **call.words)


class Contract(unittest.TestCase):
    def setUp(self):
        self.x, self.w = torch.arange(32.0).view(4, 8), torch.ones(5, 8)

    def test_one_row_whose_elements_lie_apart(self):
        h = torch.arange(32.0).view(8, 4)
        self.assertEqual(torch.ops.gemmtune.linear(h[:, 3:4].t(), self.w)[0, 0], 136)

    def test_sizes_of_zero_are_as_in_torch(self):
        bias = torch.arange(5.0)
        for x, w, b in ((self.x[:, :0], self.w[:, :0], None), (self.x[:, :0], self.w[:, :0], bias), (self.x, self.w[:0], None),
                        (self.x[:0], self.w, bias), (self.x.view(2, 2, 8)[:, :0], self.w, bias)):
            expected = torch.nn.functional.linear(x, w, b)
            torch.testing.assert_close(torch.ops.gemmtune.linear(x, w, b), expected, rtol=0, atol=0)
            out = torch.full_like(expected, 7)
            torch.ops.gemmtune.linear_out(x, w, b, out=out)
            torch.testing.assert_close(out, expected, rtol=0, atol=0)
        empty = torch.ops.gemmtune.batched_bf16(torch.zeros(2, 3, 0).bfloat16(), torch.zeros(2, 5, 0).bfloat16())
        torch.testing.assert_close(empty, torch.zeros(2, 3, 5).bfloat16(), rtol=0, atol=0)

    def test_scales_have_their_shape(self):
        x, w = (torch.zeros(shape, dtype=torch.uint8).view(torch.float8_e4m3fn) for shape in ((6, 384), (256, 384)))
        x_scale, w_scale = torch.rand(6, 3), torch.rand(2, 3)
        y = gemmtune.a8w8_blockscale(x, w, x_scale, w_scale)
        torch.testing.assert_close(gemmtune.a8w8_blockscale(x, w, x_scale.t().contiguous().t(), w_scale), y, rtol=0, atol=0)
        for x_wrong, w_wrong, text in ((x_scale.view(3, 6), w_scale, r"x_scale has shape \[3, 6\], expected \[6, 3\]"),
                                       (x_scale, w_scale.view(3, 2), r"w_scale has shape \[3, 2\], expected \[2, 3\]"),
                                       (x_scale, w_scale.t().contiguous().t(), r"w_scale has strides \[1, 2\]")):
            with self.assertRaisesRegex(errors.InvalidArgument, text):
                gemmtune.a8w8_blockscale(x, w, x_wrong, w_wrong)

    def test_results_of_types_that_gemmtune_does_not_write(self):
        with self.assertRaisesRegex(errors.WrongType, "dtype of out is one that gemmtune does not know"):
            gemmtune.linear(self.x, self.w, out=torch.empty(4, 5).double())
        with self.assertRaisesRegex(RuntimeError, "dtype of the result is one that gemmtune does not know"):
            torch.ops.gemmtune.linear.full(self.x, self.w, out_dtype=torch.float64)

    def test_an_out_and_another_out_dtype(self):
        out = torch.empty(4, 5)
        for word in ("f16", torch.float16):
            with self.assertRaisesRegex(errors.InvalidArgument, "out is torch.float32 and out_dtype torch.float16"):
                gemmtune.linear(self.x, self.w, out=out, out_dtype=word)
        self.assertIs(gemmtune.linear(self.x, self.w, out=out, out_dtype="f32"), out)
        with self.assertRaisesRegex(errors.InvalidArgument, "out is torch.bfloat16 and out_dtype torch.float16"):
            gemmtune.a8w8(torch.ones(4, 8, dtype=torch.int8), torch.ones(5, 8, dtype=torch.int8), torch.ones(4), torch.ones(5),
                          out=torch.empty(4, 5).bfloat16(), out_dtype="f16")

    def test_a_bias_of_another_stride(self):
        with self.assertRaisesRegex(errors.InvalidArgument, r"bias has strides \[2\] and shape \[5\], expected a contiguous array"):
            gemmtune.linear(self.x, self.w, torch.ones(10)[::2])

    def test_an_output_that_overlaps_an_input(self):
        room = torch.zeros(4, 13)
        room[:, :8] = self.x
        torch.ops.gemmtune.linear_out(room[:, :8], self.w, out=room[:, 8:])  # rows take turns
        torch.testing.assert_close(room[:, 8:], self.x.sum(1, keepdim=True).expand(4, 5))
        with self.assertRaisesRegex(RuntimeError, "y overlaps x in memory"):
            torch.ops.gemmtune.linear_out(room[:, :8], self.w, out=room[:, 7:12])
        with self.assertRaisesRegex(RuntimeError, "y overlaps w in memory"):
            torch.ops.gemmtune.linear_out(self.x, room.view(-1)[:40].view(5, 8), out=room.view(-1)[20:40].view(4, 5))
        gate = torch.randn(4, 8)
        with self.assertRaisesRegex(RuntimeError, "y overlaps gate in memory"):
            torch.ops.gemmtune.silu_and_mul_out(gate.view(-1)[:16].view(2, 8), torch.randn(2, 8), out=gate.view(-1)[8:24].view(2, 8))


if __name__ == "__main__":
    unittest.main()
