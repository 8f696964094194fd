"""numpy's views of every operation's operands: right as their contiguous copies, or refused. GEMMTUNE_SOAK=1 draws 10,000 an
operation; GEMMTUNE_SEED begins with another seed."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: this Python has no numpy (apt-get install python3-numpy)")
    sys.exit(77)

import operand_views
from operand_views import RESULTS, Bits

import gemmtune
from gemmtune import errors


def typed(bits):
    return bits.array if bits.word in (None, "f32", "f16") else gemmtune.as_type(bits.array, bits.word)


@operand_views.add_tests
class Views(unittest.TestCase, operand_views.Properties):
    kinds = operand_views.ANY
    refusal = (errors.InvalidArgument, errors.Unsupported)  # a transposed fp8 weight has no kernel on a CPU

    def run_call(self, call, operands, out):
        arrays = {name: typed(bits) for name, bits in operands.items()}
        getattr(gemmtune, call.function)(**arrays, out=typed(Bits(out, "bf16" if out.dtype == np.uint16 else None)), **call.words)


class Contract(unittest.TestCase):
    def setUp(self):
        self.x, self.w = np.arange(32, dtype=np.float32).reshape(4, 8), np.ones((5, 8), np.float32)

    def test_one_row_whose_elements_lie_apart(self):
        h = np.arange(32, dtype=np.float32).reshape(8, 4)
        self.assertEqual(gemmtune.linear(h[:, 3:4].T, self.w)[0, 0], 136)
        small = (h % 4).astype(np.int8)
        one = np.ones(1, np.float32)
        self.assertEqual(gemmtune.a8w8(small[:, 3:4].T, self.w.astype(np.int8), one, one, out_dtype="f16")[0, 0], 24)

    def test_sizes_of_zero_are_as_in_torch(self):
        bias = np.arange(5, dtype=np.float32)
        np.testing.assert_array_equal(gemmtune.linear(self.x[:, :0], self.w[:, :0]), np.zeros((4, 5)))
        np.testing.assert_array_equal(gemmtune.linear(self.x[:, :0], self.w[:, :0], bias), np.tile(bias, (4, 1)))
        self.assertEqual(gemmtune.linear(self.x, self.w[:0]).shape, (4, 0))
        self.assertEqual(gemmtune.linear(self.x[:0], self.w, bias).shape, (0, 5))
        out = np.full((2, 3, 5), 7, np.uint16)
        none = gemmtune.as_type(np.zeros((2, 3, 0), np.uint16), "bf16"), gemmtune.as_type(np.zeros((2, 5, 0), np.uint16), "bf16")
        gemmtune.batched_bf16(*none, out=gemmtune.as_type(out, "bf16"))
        self.assertEqual(out.max(), 0)

    def test_types_that_are_none(self):
        record = np.zeros((4, 8), [("a", np.float32), ("b", np.int32)])
        for wrong in (record, np.zeros((4, 8), "datetime64[ns]"), np.zeros((4, 8), object), np.zeros((4, 8), "U4")):
            with self.assertRaisesRegex(errors.WrongType, "x has elements of type .*, expected one of f32"):
                gemmtune.linear(wrong, self.w)
        self.assertEqual(gemmtune.linear(np.ones((4, 8), [("a", np.float32), ("b", np.int32)])["a"], self.w)[0, 0], 8)
        with self.assertRaisesRegex(errors.InvalidArgument, r"x has elements of foreign byte order \(>f4\)"):
            gemmtune.linear(self.x.astype(">f4"), self.w)
        with self.assertRaisesRegex(errors.InvalidArgument, r"x has elements of 4 bytes with strides of \[56, 7\] bytes"):
            gemmtune.linear(np.ones((4, 8), [("a", np.float32), ("b", np.uint8, 3)])["a"], self.w)
        with self.assertRaisesRegex(errors.WrongType, "x has elements of 4 bytes, expected 2 as those of bf16"):
            gemmtune.linear(gemmtune.as_type(self.x, "bf16"), self.w)

    def test_a_number_of_numpy_is_a_scale(self):
        x, w = (np.full(shape, 0x38, np.uint8) for shape in ((4, 8), (5, 8)))
        for _ in range(100):
            y = gemmtune.linear(gemmtune.as_type(x, "f8_e4m3fn"), gemmtune.as_type(w, "f8_e4m3fn"), x_scale=np.float32(0.5),
                                w_scale=np.float32(4), out_dtype="f16")
            np.testing.assert_array_equal(y, np.full((4, 5), 16))

    def test_an_out_and_another_out_dtype(self):
        with self.assertRaisesRegex(errors.InvalidArgument, "out is f32 and out_dtype f16"):
            gemmtune.linear(self.x, self.w, out=np.zeros((4, 5), np.float32), out_dtype="f16")

    def test_a_bias_of_another_stride(self):
        with self.assertRaisesRegex(errors.InvalidArgument, r"bias has strides \[2\] and shape \[5\], expected a contiguous array"):
            gemmtune.linear(self.x, self.w, np.ones(10, np.float32)[::2])

    def test_a_packed_weight_of_another_width(self):
        packed = gemmtune.PackedWeight(np.zeros(4096, np.uint8), 2, 5, 16, "f32", "a16w16")
        with self.assertRaisesRegex(errors.InvalidArgument, "w has 16 columns, expected 8 as x has"):
            gemmtune.linear(self.x, packed)


if __name__ == "__main__":
    unittest.main()
