"""The package with numpy on a CPU: every operation against float64, commands, errors, Ctrl-C, fork."""

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("SKIPPED: this Python has no numpy (apt-get install python3-numpy)")
    sys.exit(77)

import gemmtune
from gemmtune import _library as c
from gemmtune import contexts, errors

RANDOM = np.random.default_rng(1)


def bf16_bits(values):
    """float32 as the bits of bf16, rounded to nearest even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def e4m3_values():
    """The value of each of the 256 bytes of fp8 e4m3fn (NaN as 0)."""
    table = np.zeros(256)
    for byte in range(256):
        sign, exponent, mantissa = -1 if byte & 128 else 1, byte >> 3 & 15, byte & 7
        if exponent == 15 and mantissa == 7:
            continue
        table[byte] = sign * ((mantissa / 8) * 2**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    return table


FP8 = e4m3_values()
FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def random_fp8(shape):
    bits = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    return np.where((bits & 0x7F) == 0x7F, 0, bits).astype(np.uint8)


def close(test, found, expected, relative):
    """Element by element, within `relative` of the size of the sums."""
    scale = np.abs(expected).max() or 1
    test.assertLess(np.abs(np.asarray(found, np.float64) - expected).max() / scale, relative)


class Operations(unittest.TestCase):
    def test_linear_in_all_forms(self):
        x, w, bias = (RANDOM.standard_normal(shape).astype(np.float32) for shape in ((6, 96), (40, 96), (40,)))
        exact = x.astype(float) @ w.astype(float).T
        close(self, gemmtune.linear(x, w), exact, 1e-6)
        close(self, gemmtune.linear(x, w, bias), exact + bias, 1e-6)
        close(self, gemmtune.linear(x.reshape(2, 3, 96), w), exact.reshape(2, 3, 40), 1e-6)
        close(self, gemmtune.linear(x[0], w), exact[0], 1e-6)
        close(self, gemmtune.linear(np.asfortranarray(x), np.asfortranarray(w)), exact, 1e-6)
        close(self, gemmtune.linear(x[::2], w), exact[::2], 1e-6)
        close(self, gemmtune.linear(x.reshape(2, 3, 96)[:, -1:], w), exact.reshape(2, 3, 40)[:, -1:], 1e-6)
        close(self, gemmtune.linear(x.reshape(2, 3, 96)[:, ::2], w), exact.reshape(2, 3, 40)[:, ::2], 1e-6)  # two distances: copied
        close(self, gemmtune.linear(x[:, 1:65], np.ascontiguousarray(w[:, 1:65])),
              x[:, 1:65].astype(float) @ w[:, 1:65].astype(float).T, 1e-6)  # 4 bytes off
        halves = gemmtune.linear(x.astype(np.float16), w.astype(np.float16))
        self.assertEqual(halves.dtype, np.float16)
        close(self, halves, exact, 2e-3)
        self.assertEqual(gemmtune.linear(x[:0], w).shape, (0, 40))

    def test_out_is_written_and_returned(self):
        x, w = RANDOM.standard_normal((3, 32)).astype(np.float32), RANDOM.standard_normal((8, 32)).astype(np.float32)
        wide = np.full((3, 10), 7, np.float32)
        out = wide[:, :8]
        self.assertIs(gemmtune.linear(x, w, out=out), out)
        close(self, out, x.astype(float) @ w.astype(float).T, 1e-6)
        self.assertTrue((wide[:, 8:] == 7).all())
        frozen = np.empty((3, 8), np.float32)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(errors.InvalidArgument, "out is read-only"):
            gemmtune.linear(x, w, out=frozen)

    def test_bf16_as_bits(self):
        x, w = bf16_bits(RANDOM.standard_normal((5, 64))), bf16_bits(RANDOM.standard_normal((24, 64)))
        y = gemmtune.linear(gemmtune.as_type(x, "bf16"), gemmtune.as_type(w, "bf16"))
        self.assertEqual(y.dtype, np.uint16)
        close(self, bf16_values(y), bf16_values(x) @ bf16_values(w).T, 1e-2)

    def test_quantized(self):
        m, n, k = 5, 256, 384
        x, w = (RANDOM.integers(-127, 128, shape, dtype=np.int8) for shape in ((m, k), (n, k)))
        x_scale, w_scale = RANDOM.random(m).astype(np.float32), RANDOM.random(n).astype(np.float32)
        exact = (x.astype(float) * x_scale[:, None]) @ (w.astype(float) * w_scale[:, None]).T
        close(self, gemmtune.a8w8(x, w, x_scale / 64, w_scale / 64, out_dtype="f16"), exact / 4096, 2e-3)
        one = np.array([1 / 4096], np.float32)
        close(self, gemmtune.a8w8(x, w, one, w_scale, out_dtype="f16"), x.astype(float) @ (w * w_scale[:, None]).T / 4096, 2e-3)
        x8, w8 = random_fp8((m, k)), random_fp8((n, k))
        blocks = (RANDOM.random((m, 3)) / 1e4).astype(np.float32), RANDOM.random((2, 3)).astype(np.float32)
        exact = (FP8[x8] * np.repeat(blocks[0], 128, 1)) @ (FP8[w8] * np.repeat(np.repeat(blocks[1], 128, 0), 128, 1)).T
        fp8 = [gemmtune.as_type(one, "f8_e4m3fn") for one in (x8, w8)]
        close(self, gemmtune.a8w8_blockscale(*fp8, *blocks, out_dtype="f16"), exact, 2e-3)
        powers = [RANDOM.integers(112, 116, (m, 3), dtype=np.uint8), RANDOM.integers(120, 128, (2, 3), dtype=np.uint8)]
        x_power, w_power = (2.0 ** (one.astype(float) - 127) for one in powers)
        exact = (FP8[x8] * np.repeat(x_power, 128, 1)) @ (FP8[w8] * np.repeat(np.repeat(w_power, 128, 0), 128, 1)).T
        close(self, gemmtune.a8w8_blockscale(*fp8, *powers, out_dtype="f16"), exact, 2e-3)
        with self.assertRaisesRegex(errors.WrongType, "x_scale is f32, expected e8m0 or u8"):
            gemmtune.a8w8_blockscale(*fp8, blocks[0], powers[1], out_dtype="f16")
        with self.assertRaisesRegex(errors.InvalidArgument, r"x_scale has shape \[5\], expected \[5, 3\]"):
            gemmtune.a8w8_blockscale(*fp8, x_scale, blocks[1], out_dtype="f16")
        with self.assertRaisesRegex(errors.WrongType, "x_scale is int32, expected f32"):
            gemmtune.a8w8(x, w, x_scale.astype(np.int32), w_scale, out_dtype="f16")
        x4, w4 = (RANDOM.integers(0, 256, (rows, k // 2), dtype=np.uint8) for rows in (m, n))
        e8m0 = [RANDOM.integers(118, 128, (rows, k // 32), dtype=np.uint8) for rows in (m, n)]
        values = [np.stack([FP4[bits & 15], FP4[bits >> 4]], -1).reshape(len(bits), k) *
                  np.repeat(2.0 ** (scale.astype(float) - 127), 32, 1) for bits, scale in zip((x4, w4), e8m0)]
        close(self, gemmtune.a4w4_blockscale(x4, w4, *e8m0, out_dtype="f16"), values[0] @ values[1].T, 2e-3)
        x16 = RANDOM.standard_normal((m, k)).astype(np.float16)
        close(self, gemmtune.a16w4(x16, w4, e8m0[1]), x16.astype(float) @ values[1].T, 2e-3)
        row_scale = (RANDOM.random(m) / 1e3).astype(np.float32)
        close(self, gemmtune.a8w4(fp8[0], w4, row_scale, e8m0[1], out_dtype="f16"), (FP8[x8] * row_scale[:, None]) @ values[1].T, 2e-3)
        with self.assertRaisesRegex(errors.InvalidArgument, r"w_scale has shape \[5, 12\], expected \[256, 12\]"):
            gemmtune.a16w4(x16, w4, e8m0[0])

    def test_nvfp4_and_int4_weights(self):
        m, n, k = 5, 40, 384
        x16, x8, xi = RANDOM.standard_normal((m, k)).astype(np.float16), random_fp8((m, k)), RANDOM.integers(-127, 128, (m, k), np.int8)
        row_scale, bias = (RANDOM.random(m) / 64).astype(np.float32), RANDOM.standard_normal(n).astype(np.float16)
        x4, w4 = (RANDOM.integers(0, 256, (rows, k // 2), dtype=np.uint8) for rows in (m, n))
        e4m3 = [RANDOM.integers(0x20, 0x48, (rows, k // 16), dtype=np.uint8) for rows in (m, n)]
        of_x, of_w = np.array(1 / 32, np.float32), np.array([1 / 64], np.float32)
        x, w = (np.stack([FP4[bits & 15], FP4[bits >> 4]], -1).reshape(len(bits), k) * np.repeat(FP8[scale], 16, 1) * one
                for bits, scale, one in zip((x4, w4), e4m3, (1 / 32, 1 / 64)))
        close(self, gemmtune.a16w4_nvfp4(x16, w4, e4m3[1], of_w, bias), x16.astype(float) @ w.T + bias, 2e-3)
        close(self, gemmtune.a8w4_nvfp4(gemmtune.as_type(x8, "f8_e4m3fn"), w4, row_scale, gemmtune.as_type(e4m3[1], "f8_e4m3fn"), of_w,
                                        out_dtype="f16"), (FP8[x8] * row_scale[:, None]) @ w.T, 2e-3)
        close(self, gemmtune.a4w4_nvfp4(x4, w4, *e4m3, of_x, of_w, out_dtype="f16"), x @ w.T, 2e-3)
        signed = np.stack([w4 & 15, w4 >> 4], -1).reshape(n, k).astype(np.int8)
        signed = np.where(signed > 7, signed - 16, signed).astype(float)
        for group in (32, 64, 128, k):
            scale = (RANDOM.random((n, k // group)) / 8).astype(np.float16)
            zero = RANDOM.integers(-8, 9, scale.shape, np.int8)
            spread = lambda values: np.repeat(values.astype(float), group, 1)
            close(self, gemmtune.a16w4_int4(x16, w4, scale), x16.astype(float) @ (signed * spread(scale)).T, 2e-3)
            w = (signed - spread(zero)) * spread(scale)
            close(self, gemmtune.a16w4_int4(x16, w4, scale, zero, bias), x16.astype(float) @ w.T + bias, 2e-3)
            close(self, gemmtune.a8w4_int4(xi, w4, row_scale / 64, scale, zero, out_dtype="f16"),
                  (xi * (row_scale / 64)[:, None]) @ w.T, 2e-3)
        scale = np.ones((n, 3), np.float16)
        for wrong, sentence in ((dict(w_scale=np.ones((n, 8), np.float16)), "group = 48, expected 32, 64, 128 or row"),
                                (dict(w_scale=np.ones((n, 5), np.float16)), r"w_scale has shape \[40, 5\], expected \[40, 384 / group\]"),
                                (dict(w_scale=scale, w_zero_points=np.zeros((n, 2), np.int8)), r"w_zero_points has shape \[40, 2\], expected \[40, 3\]"),
                                (dict(w_scale=scale.astype(np.float32)), "w_scale is f32, expected f16")):
            with self.assertRaisesRegex(errors.Error, sentence):
                gemmtune.a16w4_int4(x16, w4, **wrong)
        with self.assertRaisesRegex(errors.Error, "w_global_scale is missing"):
            gemmtune.a16w4_nvfp4(x16, w4, e4m3[1], None)
        with self.assertRaisesRegex(errors.Error, r"w_global_scale has shape \[40\]"):
            gemmtune.a16w4_nvfp4(x16, w4, e4m3[1], np.ones(n, np.float32))

    def test_batched(self):
        x, w = bf16_bits(RANDOM.standard_normal((3, 4, 32))), bf16_bits(RANDOM.standard_normal((3, 16, 32)))
        y = gemmtune.batched_bf16(gemmtune.as_type(x, "bf16"), gemmtune.as_type(w, "bf16"))
        close(self, bf16_values(y), np.einsum("bmk,bnk->bmn", bf16_values(x), bf16_values(w)), 1e-2)
        beside, out = np.ascontiguousarray(x.transpose(1, 0, 2)), np.zeros((4, 3, 16), np.uint16)  # [M, B, .]
        gemmtune.batched_bf16(*(gemmtune.as_type(one, "bf16") for one in (beside.transpose(1, 0, 2), w)),
                              out=gemmtune.as_type(out.transpose(1, 0, 2), "bf16"))
        np.testing.assert_array_equal(out.transpose(1, 0, 2), y)

    def test_fused_moe(self):
        tokens, experts, model, inter, topk = 4, 3, 64, 32, 2
        x = RANDOM.standard_normal((tokens, model)).astype(np.float16)
        w1 = (RANDOM.standard_normal((experts, 2 * inter, model)) / 8).astype(np.float16)
        w2 = (RANDOM.standard_normal((experts, model, inter)) / 8).astype(np.float16)
        ids = np.stack([RANDOM.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
        weights = RANDOM.random((tokens, topk)).astype(np.float32)
        expected = np.zeros((tokens, model))
        for token in range(tokens):
            for slot in range(topk):
                gate, up = np.split(w1[ids[token, slot]].astype(float) @ x[token].astype(float), 2)
                expected[token] += weights[token, slot] * (w2[ids[token, slot]].astype(float) @ (gate / (1 + np.exp(-gate)) * up))
        close(self, gemmtune.fused_moe(x, w1, w2, ids, weights), expected, 5e-3)

    def test_shared_experts_get_every_token_with_the_weight_1(self):
        tokens, experts, shared, model, inter = 4, 5, 2, 64, 32
        x = RANDOM.standard_normal((tokens, model)).astype(np.float16)
        w1 = (RANDOM.standard_normal((experts, 2 * inter, model)) / 8).astype(np.float16)
        w2 = (RANDOM.standard_normal((experts, model, inter)) / 8).astype(np.float16)
        ids = RANDOM.integers(0, experts - shared, (tokens, 1)).astype(np.int32)
        weights = RANDOM.random((tokens, 1)).astype(np.float32)
        all_ids = np.concatenate([ids, np.tile(np.arange(experts - shared, experts, dtype=np.int32), (tokens, 1))], 1)
        all_weights = np.concatenate([weights, np.ones((tokens, shared), np.float32)], 1)
        for activation in ("silu", "swiglu"):
            y = gemmtune.fused_moe(x, w1, w2, ids, weights, activation=activation, shared_experts=shared)
            close(self, y, gemmtune.fused_moe(x, w1, w2, all_ids, all_weights, activation=activation).astype(float), 1e-6)
        with self.assertRaisesRegex(errors.InvalidArgument, "expected 0 to 2"):
            gemmtune.fused_moe(x, w1, w2, np.full_like(ids, 3), weights, shared_experts=shared)

    def test_an_id_of_minus_one_is_an_empty_slot(self):
        tokens, experts, model, inter = 4, 5, 64, 32
        x = RANDOM.standard_normal((tokens, model)).astype(np.float16)
        w1 = (RANDOM.standard_normal((experts, 2 * inter, model)) / 8).astype(np.float16)
        w2 = (RANDOM.standard_normal((experts, model, inter)) / 8).astype(np.float16)
        ids = np.array([[0, 1], [2, 3], [4, 0], [1, 2]], np.int32)
        weights = RANDOM.random((tokens, 2)).astype(np.float32)
        empty = np.array([[True, False], [False, True], [True, True], [False, False]])
        y = gemmtune.fused_moe(x, w1, w2, np.where(empty, np.int32(-1), ids), np.where(empty, np.float32("nan"), weights))
        close(self, y, gemmtune.fused_moe(x, w1, w2, ids, np.where(empty, np.float32(0), weights)).astype(float), 1e-6)
        self.assertFalse(y[2].any())
        with self.assertRaisesRegex(errors.InvalidArgument, r"topk_ids\[0\]\[0\] = -2"):
            gemmtune.fused_moe(x, w1, w2, np.full_like(ids, -2), weights)

    def test_biases_of_experts(self):
        tokens, experts, model, inter, topk = 4, 3, 64, 32, 2
        x = RANDOM.standard_normal((tokens, model)).astype(np.float16)
        ids = np.stack([RANDOM.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
        weights = RANDOM.random((tokens, topk)).astype(np.float32)
        w2 = (RANDOM.standard_normal((experts, model, inter)) / 8).astype(np.float16)
        bias2 = RANDOM.standard_normal((experts, model)).astype(np.float32)
        for gated in (True, False):
            rows = inter * (2 if gated else 1)
            w1 = (RANDOM.standard_normal((experts, rows, model)) / 8).astype(np.float16)
            bias1 = RANDOM.standard_normal((experts, rows)).astype(np.float32)
            expected = np.zeros((tokens, model))
            for token in range(tokens):
                for slot in range(topk):
                    expert = ids[token, slot]
                    sums = w1[expert].astype(float) @ x[token].astype(float) + bias1[expert]
                    hidden = sums[:inter] / (1 + np.exp(-sums[:inter])) * (sums[inter:] if gated else 1)
                    expected[token] += weights[token, slot] * (w2[expert].astype(float) @ hidden + bias2[expert])
            y = gemmtune.fused_moe(x, w1, w2, ids, weights, gated=gated, bias1=bias1, bias2=bias2)
            close(self, y, expected, 5e-3)
        with self.assertRaisesRegex(errors.InvalidArgument, "bias2 is missing"):
            gemmtune.fused_moe(x, w1, w2, ids, weights, gated=False, bias1=bias1)
        with self.assertRaisesRegex(errors.InvalidArgument, "bias2 has shape"):
            gemmtune.fused_moe(x, w1, w2, ids, weights, gated=False, bias1=bias1, bias2=bias2[:2])
        with self.assertRaisesRegex(errors.WrongType, "bias1 is f16, expected f32"):
            gemmtune.fused_moe(x, w1, w2, ids, weights, gated=False, bias1=bias1.astype(np.float16), bias2=bias2)

    def test_quantized_tokens_with_mxfp4_weights(self):
        tokens, experts, model, inter, topk = 4, 3, 64, 32, 2
        codes = RANDOM.integers(0, 4, (tokens, model))
        values = np.array([1, 2, -1, 0.5])[codes]
        x = gemmtune.as_type(np.array([0x38, 0x40, 0xB8, 0x30], np.uint8)[codes], "f8_e4m3fn")
        w1, w2 = (gemmtune.as_type(RANDOM.integers(0, 256, shape).astype(np.uint8), "f4_e2m1")
                  for shape in ((experts, 2 * inter, model // 2), (experts, model, inter // 2)))
        scales = {"w1_scale": RANDOM.integers(122, 126, (experts, 2 * inter, model // 32)).astype(np.uint8),
                  "w2_scale": RANDOM.integers(122, 126, (experts, model, inter // 32)).astype(np.uint8)}
        ids = np.stack([RANDOM.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
        weights = RANDOM.random((tokens, topk)).astype(np.float32)
        powers = np.array([0.5, 1, 2, 4], np.float32)
        expected = gemmtune.fused_moe((values * powers[:, None]).astype(np.float16), w1, w2, ids, weights, quant_type="per_1x32", **scales)
        y = gemmtune.fused_moe(x, w1, w2, ids, weights, quant_type="per_token", x_scale=powers, out_dtype="f16", **scales)
        close(self, y, expected.astype(float), 5e-3)
        of_32 = np.repeat(np.array([126, 127, 128, 129], np.uint8)[:, None], model // 32, 1)
        y = gemmtune.fused_moe(x, w1, w2, ids, weights, quant_type="per_1x32", x_scale=of_32, out_dtype="f16", **scales)
        close(self, y, expected.astype(float), 5e-3)

    def test_experts_of_formats_of_weights_alone(self):
        tokens, experts, model, inter, topk = 4, 3, 64, 32, 2
        x = RANDOM.standard_normal((tokens, model)).astype(np.float16)
        packed = [RANDOM.integers(0, 256, shape).astype(np.uint8) for shape in ((experts, 2 * inter, model // 2), (experts, model, inter // 2))]
        codes = [np.stack((each & 15, each >> 4), -1).reshape(*each.shape[:2], -1) for each in packed]
        ids = np.stack([RANDOM.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
        weights = RANDOM.random((tokens, topk)).astype(np.float32)

        def check(w1, w2, **operands):
            expected = np.zeros((tokens, model))
            for token in range(tokens):
                for slot in range(topk):
                    gate, up = np.split(w1[ids[token, slot]] @ x[token].astype(float), 2)
                    expected[token] += weights[token, slot] * (w2[ids[token, slot]] @ (gate / (1 + np.exp(-gate)) * up))
            close(self, gemmtune.fused_moe(x, *packed, ids, weights, **operands), expected, 5e-3)

        e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
        scales = [RANDOM.integers(0x20, 0x30, (*each.shape[:2], each.shape[2] // 8)).astype(np.uint8) for each in packed]  # e4m3: 2^-3 to 2^-1
        values = [(8 + (scale & 7)) * 2.0 ** ((scale >> 3).astype(float) - 10) for scale in scales]
        of_experts = [(RANDOM.random(experts) / 4 + 0.1).astype(np.float32) for _ in packed]
        check(*(e2m1[code] * value.repeat(16, -1) * each[:, None, None] for code, value, each in zip(codes, values, of_experts)),
              quant_type="per_1x16", w1_scale=scales[0], w2_scale=scales[1], w1_global_scale=of_experts[0], w2_global_scale=of_experts[1])
        zero_points = [RANDOM.integers(-8, 9, (*each.shape[:2], each.shape[2] // 16)).astype(np.int8) for each in packed]
        scales = [(RANDOM.random(points.shape) / 40).astype(np.float16) for points in zero_points]
        numbers = [np.array([*range(8), *range(-8, 0)], float)[code] for code in codes]
        check(*((number - points.repeat(32, -1)) * scale.astype(float).repeat(32, -1) for number, points, scale in zip(numbers, zero_points, scales)),
              quant_type="per_group", w1_scale=scales[0], w2_scale=scales[1], w1_zero_points=zero_points[0], w2_zero_points=zero_points[1])

    def test_int4_weights_of_experts(self):
        tokens, experts, model, inter, topk = 4, 3, 64, 32, 2
        x = RANDOM.standard_normal((tokens, model)).astype(np.float16)
        bytes1, bytes2 = (RANDOM.integers(0, 256, shape).astype(np.uint8) for shape in ((experts, 2 * inter, model // 2), (experts, model, inter // 2)))
        scale1, scale2 = ((RANDOM.random(shape) / 40).astype(np.float32) for shape in ((experts, 2 * inter), (experts, model)))
        numbers = np.array([*range(8), *range(-8, 0)], float)
        w1, w2 = (numbers[np.stack((each & 15, each >> 4), -1).reshape(*each.shape[:2], -1)] * scale[..., None]
                  for each, scale in ((bytes1, scale1), (bytes2, scale2)))
        ids = np.stack([RANDOM.permutation(experts)[:topk] for _ in range(tokens)]).astype(np.int32)
        weights = RANDOM.random((tokens, topk)).astype(np.float32)
        expected = np.zeros((tokens, model))
        for token in range(tokens):
            for slot in range(topk):
                gate, up = np.split(w1[ids[token, slot]] @ x[token].astype(float), 2)
                expected[token] += weights[token, slot] * (w2[ids[token, slot]] @ (gate / (1 + np.exp(-gate)) * up))
        y = gemmtune.fused_moe(x, gemmtune.as_type(bytes1, "i4"), gemmtune.as_type(bytes2, "i4"), ids, weights, quant_type="per_token",
                               w1_scale=scale1, w2_scale=scale2)
        close(self, y, expected, 5e-3)

    def test_other_libraries_by_dlpack(self):
        class Tensor:  # of a library that has DLPack alone
            def __init__(self, array):
                self.array, self.dtype = array, array.dtype

            def __dlpack__(self, stream=None):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return (1, 0)

        x, w = RANDOM.standard_normal((3, 32)).astype(np.float32), RANDOM.standard_normal((8, 32)).astype(np.float32)
        out = np.empty((3, 8), np.float32)
        gemmtune.linear(Tensor(x), Tensor(w), out=Tensor(out))
        close(self, out, x.astype(float) @ w.astype(float).T, 1e-6)
        with self.assertRaisesRegex(errors.WrongType, "give out="):
            gemmtune.linear(Tensor(x), Tensor(w))


class Commands(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(gemmtune.use)  # the default files again

    def test_tune_a_size_and_call_it(self):
        table = self.folder / "tuned.csv"
        seen = []
        done = gemmtune.tune([{"m": 3, "n": 192, "k": 320}], table, seen.append, indtype="f32", confirmations=1,
                             libtype="skinny", search="random", iters=5)
        self.assertIn(done["problems"][0]["state"], ("tuned", "default"))
        self.assertEqual(seen[0]["event"], "run_started")
        self.assertEqual(sum(event["event"] == "problem_done" for event in seen), 1)
        self.assertTrue(any(event["event"] == "candidate" for event in seen))
        found = gemmtune.lookup(3, 192, 320, table, indtype="f32")
        self.assertEqual((found["level"], found["kernelName"]), ("exact", done["problems"][0]["kernelName"]))
        context = gemmtune.use(table)
        plan = context.plan(gemmtune.problem(3, 192, 320, x_type="f32"))
        self.assertEqual((plan["match"], plan["kernelName"]), ("exact", found["kernelName"]))
        x, w = RANDOM.standard_normal((3, 320)).astype(np.float32), RANDOM.standard_normal((192, 320)).astype(np.float32)
        before = context.counters()["exact"]
        close(self, gemmtune.linear(x, w), x.astype(float) @ w.astype(float).T, 1e-6)
        self.assertEqual(context.counters()["exact"], before + 1)
        self.assertEqual(gemmtune.audit(table)["exit_code"], 0)
        timed = gemmtune.bench(table, rounds=3, limit=1)
        self.assertEqual(timed["rows"][0]["status"], "OK")

    def test_packed_weight(self):
        table = self.folder / "packed.csv"
        gemmtune.tune([{"m": 1, "n": 64, "k": 64, "bpreshuffle": True}], table, indtype="f32", libtype="tiled",
                      search="random", iters=5, confirmations=1)
        context = gemmtune.use(table)
        x, w = RANDOM.standard_normal((1, 64)).astype(np.float32), RANDOM.standard_normal((64, 64)).astype(np.float32)
        packed = gemmtune.pack(w)
        self.assertIsInstance(packed, gemmtune.PackedWeight)
        close(self, gemmtune.linear(x, packed), x.astype(float) @ w.astype(float).T, 1e-6)
        self.assertEqual(context.counters()["exact"], 1)
        if packed.layout_name == "onednn":  # where that library was faster
            with self.assertRaises(errors.Unsupported):
                gemmtune.unpack(packed)
        else:
            np.testing.assert_array_equal(gemmtune.unpack(packed), w)
        other = RANDOM.standard_normal((64, 96)).astype(np.float32)
        self.assertIs(gemmtune.pack(other), other)  # no row: plain
        free = gemmtune.pack(other, layout="any")  # that of the kernel that runs
        named = gemmtune.pack(other, layout="panel16")
        self.assertEqual(named.layout_name, "panel16")
        y = x.repeat(2, 1)[:, :96].copy()
        for one in (free, named):
            close(self, gemmtune.linear(y, one), y.astype(float) @ other.astype(float).T, 1e-6)
        with self.assertRaisesRegex(errors.InvalidArgument, "layout is 'panel17', expected one of plain, any, aiter16x16, panel16"):
            gemmtune.pack(other, layout="panel17")

    def expect_no_process(self):
        """Of those that name the folder, once they have ended what they were at."""
        for _ in range(1200):
            running = subprocess.run(["pgrep", "-f", str(self.folder)], capture_output=True, text=True, check=False).stdout
            if not running:
                return
            time.sleep(0.1)
        self.fail(f"processes {running.split()} go on")

    def test_a_callback_or_ctrl_c_ends_the_run(self):
        table = self.folder / "tuned.csv"

        def stop(event):
            if event["event"] == "problem_done":
                raise KeyboardInterrupt

        shapes = [(m, 128, 128) for m in range(1, 40)]
        with self.assertRaises(KeyboardInterrupt):
            gemmtune.tune(shapes, table, stop, indtype="f32", libtype="reference", iters=5, confirmations=1)
        with open(table, newline="") as file:
            self.assertGreaterEqual(len(list(csv.DictReader(file))), 1)
        script = textwrap.dedent(f"""
            import gemmtune
            def started(event):
                if event["event"] == "problem_done": print("done one", flush=True)
            try: gemmtune.tune({shapes!r}, {str(self.folder / "second.csv")!r}, started, indtype="f32", libtype="reference")
            except KeyboardInterrupt: print("interrupted", flush=True)""")
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "done one\n")
        child.send_signal(signal.SIGINT)
        rest = child.communicate(timeout=600)[0]
        self.assertEqual((rest.splitlines()[-1], child.returncode), ("interrupted", 0))
        self.expect_no_process()  # no worker of the run lives on

    def test_a_list_of_sizes_is_bf16_as_a_single_size_is(self):
        quick = {"libtype": "reference", "search": "random", "iters": 1, "confirmations": 1}
        for number, (shapes, options) in enumerate(([[(3, 64, 64)], {}], [[{"m": 3, "n": 64, "k": 64}], {}], [None, {"m": 3, "n": 64, "k": 64}],
                                                    [[{"m": 3, "n": 64, "k": 64, "dtype": "torch.bfloat16"}], {}])):
            done = gemmtune.tune(shapes, self.folder / f"{number}.csv", **options, **quick)
            self.assertIn(" x=bf16 w=bf16 y=bf16 ", done["problems"][0]["problem"])
        done = gemmtune.tune([(3, 64, 64)], self.folder / "half.csv", indtype="f16", **quick)
        self.assertIn(" x=f16 ", done["problems"][0]["problem"])
        with self.assertRaisesRegex(errors.CommandFailed, "shapes:2: column M: value '-3'"):
            gemmtune.tune([(-3, 64, 64)], self.folder / "none.csv", strict=True)

    def test_the_end_of_python_ends_its_run(self):
        left = self.folder / "tmp"
        left.mkdir()
        shapes = [(m, 128, 128) for m in range(1, 200)]
        tune = f"gemmtune.tune({shapes!r}, {str(self.folder / 'tuned.csv')!r}, started, libtype='reference', all=True)"
        ends = {"os._exit": f"def started(event):\n    if event['event'] == 'problem_done': os._exit(3)\n{tune}",
                "SIGTERM": f"def started(event):\n    if event['event'] == 'problem_done': os.kill(os.getpid(), signal.SIGTERM)\n{tune}",
                "SIGKILL": f"def started(event):\n    if event['event'] == 'problem_done': os.kill(os.getpid(), signal.SIGKILL)\n{tune}",
                "a daemon thread": "began = threading.Event()\ndef started(event):\n    if event['event'] == 'problem_done': began.set()\n"
                                   f"threading.Thread(target=lambda: {tune}, daemon=True).start()\nbegan.wait()"}
        for end, script in ends.items():
            with self.subTest(end):
                subprocess.run([sys.executable, "-c", f"import os, signal, threading\nimport gemmtune\n{script}"], check=False,
                               env={**os.environ, "TMPDIR": str(left)}, stderr=subprocess.DEVNULL)
                self.expect_no_process()
                self.assertEqual(os.listdir(left), [])

    def test_a_parent_pipe_that_is_none_is_refused(self):
        for words in (["--parent-pipe"], ["--parent-pipe", "x"], ["--parent-pipe", "1000", "devices"]):
            done = subprocess.run([gemmtune.program.path(), *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertRegex(done.stderr, "--parent-pipe.*(expected a descriptor|descriptor 1000 is no pipe)")

    def test_a_slow_callback_does_not_hold_the_run_up(self):
        recorded = {"replay": Path(__file__).parents[1] / "data" / "recordings" / "cpu-amx.jsonl.gz", "confirmations": 1, "search": "exhaustive"}
        problems = len(gemmtune.tune(output=self.folder / "whole.csv", **recorded)["problems"])
        table = self.folder / "tuned.csv"
        seen = []

        def wait_for_the_end(event):
            seen.append(event)
            for _ in range(1200):
                if len(seen) > 1 or table.exists() and len(table.read_text().splitlines()) > problems:
                    return
                time.sleep(0.1)
            self.fail("the run waits for its first event's callback")

        gemmtune.tune(output=table, progress=wait_for_the_end, **recorded)
        self.assertEqual([event["event"] for event in seen].count("problem_done"), problems)
        self.assertGreater(sum(len(json.dumps(event)) for event in seen), 65536, "more than a pipe holds")

    def test_the_program_is_a_console_script(self):
        program = Path(sys.executable).parent / "gemmtune"
        if not program.exists():
            self.skipTest("the package was installed without pip")
        version = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(version, f"gemmtune {gemmtune.__version__}\n")

    def test_the_stand_in_for_cublas_loads_in_any_program(self):
        done = subprocess.run([sys.executable, "-c", "print(1)"], env={**os.environ, "LD_PRELOAD": gemmtune.cublas_library()},
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n", ""))

    def test_shipped_data(self):
        self.assertIn("sm_90", Path(gemmtune.data("model_configs/llama-3.2-1b_bf16_tuned_gemm.csv")).read_text())
        self.assertTrue(json.loads(Path(gemmtune.data("errata/cublaslt-split-k-tail.json")).read_text()))
        with self.assertRaisesRegex(FileNotFoundError, "shapes/llama-3.2-1b.csv"):
            gemmtune.data("shapes/none.csv")

    def test_shipped_tables_are_read(self):
        code = "import gemmtune; print(sorted({file['path'].partition('model_configs')[0] for file in gemmtune.Context('cpu').files() if file['shipped']}))"
        for switch, expected in ((None, [gemmtune.data("model_configs").partition("model_configs")[0]]), ("0", [])):
            environment = {name: value for name, value in os.environ.items() if name != "GEMMTUNE_SHIPPED"}
            if switch:
                environment["GEMMTUNE_SHIPPED"] = switch
            done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, f"{expected}\n")


class Errors(unittest.TestCase):
    def setUp(self):
        self.x, self.w = np.ones((2, 32), np.float32), np.ones((4, 32), np.float32)

    def test_wrong_types(self):
        with self.assertRaisesRegex(errors.WrongType, "x has elements of type float64, expected one of f32"):
            gemmtune.linear(self.x.astype(float), self.w)
        with self.assertRaisesRegex(errors.WrongType, "dtype of w is f16, expected the type of x, f32"):
            gemmtune.linear(self.x, self.w.astype(np.float16))
        with self.assertRaisesRegex(errors.WrongType, "i8"):
            gemmtune.linear(self.x.astype(np.int8), self.w.astype(np.int8))
        with self.assertRaisesRegex(errors.WrongType, "x is a list, expected an array"):
            gemmtune.linear([1.0], self.w)
        with self.assertRaisesRegex(errors.WrongType, "bias is f16, expected the result's type f32"):
            gemmtune.linear(self.x, self.w, np.ones(4, np.float16))
        self.assertTrue(issubclass(errors.WrongType, TypeError))

    def test_wrong_shapes(self):
        for call, text in ((lambda: gemmtune.linear(self.x[:, :8], self.w), r"w has shape \[4, 32\], expected \[N, 8\]"),
                           (lambda: gemmtune.linear(self.x, self.w[::2, ::2]), "w has shape|w has strides"),
                           (lambda: gemmtune.linear(self.x, self.w, np.ones(5, np.float32)), r"bias has shape \[5\]"),
                           (lambda: gemmtune.linear(self.x, self.w, out=self.x), r"out has shape \[2, 32\], expected \[2, 4\]")):
            with self.assertRaisesRegex(errors.InvalidArgument, text):
                call()

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has a GPU")
    def test_no_gpu(self):
        with self.assertRaisesRegex(errors.NoGpu, "backend cuda: no NVIDIA driver"):
            gemmtune.Context("cuda:0")

    def test_files(self):
        with self.assertRaisesRegex(errors.OtherDevice, "is not used: 12 rows of sm_90/132, none of this device, x86-"):
            gemmtune.use(gemmtune.data("model_configs/llama-3.2-1b_bf16_tuned_gemm.csv"))
        with self.assertRaisesRegex(errors.NotFound, "/none/tuned.csv does not exist"):
            gemmtune.use("/none/tuned.csv")
        with self.assertRaisesRegex(errors.CommandFailed, "-k 0: expected a whole number"):
            gemmtune.tune(m=1, n=1, k=0, output="/tmp/none.csv")
        with self.assertRaisesRegex(ValueError, r"shapes\[1\] has"):
            gemmtune.tune([(1, 2, 3), {"m": 1, "bias": True}], "/tmp/none.csv")

    def test_kinds(self):
        self.assertIs(type(errors.error_of(3, "NVRTC: libnvrtc.so.13 is not here")), errors.NoCompiler)
        self.assertIs(type(errors.error_of(5, "out of memory")), errors.OutOfMemory)
        self.assertTrue(issubclass(errors.OutOfMemory, MemoryError))


class Processes(unittest.TestCase):
    def test_threads_with_reloads(self):
        context = gemmtune.use()
        problems = [(m, *(RANDOM.standard_normal(shape).astype(np.float32) for shape in ((m, 64), (32, 64)))) for m in (1, 3, 8)]
        wrong = []

        def work():
            for turn in range(300):
                m, x, w = problems[turn % 3]
                if np.abs(gemmtune.linear(x, w) - x @ w.T).max() > 1e-4:
                    wrong.append(m)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            gemmtune.reload()
            time.sleep(0.01)
        self.assertEqual(wrong, [])
        self.assertEqual(context.counters()["untuned"], 2400)

    @staticmethod
    def threads():
        return len(os.listdir("/proc/self/task"))

    def test_words_of_types_are_the_devices(self):
        with gemmtune.Context("cpu") as context:
            self.assertEqual([context.type(word) for word in ("fp8", "int8", "bfloat16")], ["f8_e4m3fn", "i8", "bf16"])
            with self.assertRaisesRegex(errors.InvalidArgument, "word is 'fp7'"):
                context.type("fp7")

    def test_contexts_end_with_their_threads(self):
        x, w = np.ones((64, 256), np.float32), np.ones((256, 256), np.float32)
        gemmtune.use()
        gemmtune.linear(x, w)
        before = self.threads()
        for turn in range(300):
            gemmtune.use()
            if turn % 10 == 0:
                self.assertTrue((gemmtune.linear(x, w) == 256).all())
            with gemmtune.Context() as context:
                self.assertEqual(context.device()["backend"], "cpu")
            gemmtune.Context().close()
        self.assertLessEqual(self.threads(), before + 3)
        with self.assertRaisesRegex(errors.InvalidArgument, "the context is closed"):
            context.device()
        gemmtune.use().close()
        self.assertTrue((gemmtune.linear(x, w) == 256).all())  # in a context that it opens

    def test_a_context_ends_behind_the_calls_in_it(self):
        problems = [(m, *(RANDOM.standard_normal(shape).astype(np.float32) for shape in ((m, 64), (32, 64)))) for m in (1, 3, 8)]
        wrong, ended = [], threading.Event()

        def work():
            turn = 0
            while not ended.is_set():
                turn += 1
                m, x, w = problems[turn % 3]
                if np.abs(gemmtune.linear(x, w) - x @ w.T).max() > 1e-4:
                    wrong.append(m)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(200):
            gemmtune.use()
        ended.set()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_no_thread_finds_a_context_that_ends(self):
        """flush_capture() in a thread of its own, as a server's plug-in has it, goes through all contexts."""
        found, destroy = [], c.lib.gemmtune_context_destroy

        def destroyed(context):
            found.extend(other for other in contexts._open if other._as_parameter_.value == context.value)
            destroy(context)

        with mock.patch.object(c.lib, "gemmtune_context_destroy", side_effect=destroyed) as ends:
            gemmtune.Context().close()
        self.assertEqual((ends.call_count, found), (1, []))

    def test_capture_is_flushed_while_contexts_come_and_go(self):
        failed, ended = [], threading.Event()

        def flush():
            try:
                while not ended.is_set():
                    contexts.flush_capture()
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=flush)
        thread.start()
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(300):
                gemmtune.Context(capture=folder).close()
        ended.set()
        thread.join()
        self.assertEqual(failed, [])

    def test_fork_after_use(self):
        x, w = np.ones((2, 64), np.float32), np.ones((8, 64), np.float32)
        gemmtune.linear(x, w)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if (gemmtune.linear(x, w) == 64).all() else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue((gemmtune.linear(x, w) == 64).all())


class Jax(unittest.TestCase):
    def setUp(self):
        try:
            import jax
        except ImportError as reason:
            self.skipTest(f"no JAX: {reason}")
        self.jax = jax
        self.x, self.w = jax.numpy.arange(12.0).reshape(3, 4), jax.numpy.ones((8, 4))

    def test_a_result_is_an_array_of_jax(self):
        y = gemmtune.linear(self.x, self.w)
        self.assertIsInstance(y, self.jax.Array)
        self.assertEqual(y[:, 0].tolist(), [6, 22, 38])

    def test_out_is_never_an_array_of_jax(self):
        out = self.jax.numpy.zeros((3, 8))
        for x, w in ((self.x, self.w), (np.ones((3, 4), np.float32), np.ones((8, 4), np.float32))):
            with self.assertRaisesRegex(errors.InvalidArgument, "out is an array of JAX, which are immutable"):
                gemmtune.linear(x, w, out=out)
        self.assertEqual(float(out.max()), 0)

    def test_inside_of_transforms_there_are_no_values(self):
        plain = np.ones((8, 4), np.float32)
        for call, name in ((lambda: self.jax.jit(lambda x: gemmtune.linear(x, self.w))(self.x), "x"), (lambda: self.jax.jit(lambda w: gemmtune.linear(plain, w))(self.w), "w"),
                           (lambda: self.jax.grad(lambda x: gemmtune.linear(x, self.w).sum())(self.x), "x"), (lambda: self.jax.vmap(gemmtune.pack)(self.w[None]), "w")):
            with self.assertRaisesRegex(errors.Unsupported, f"{name} is a .*Tracer without values: .* not inside of jax.jit, jax.grad or jax.vmap"):
                call()


if __name__ == "__main__":
    unittest.main()
