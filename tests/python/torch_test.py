"""torch.ops.gemmtune.*, torch.compile, patch, capture, autograd, threads, fork; on a CPU."""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import warnings
from pathlib import Path

import needs_torch  # noqa: F401
import torch
from torch.nn import functional
from torch_models import Fp8Linear, GatedMlp, OtherMlp, SmallLlama, close, random_fp8

import gemmtune
import gemmtune.torch
from gemmtune import errors
from gemmtune.torch import _patched

ops = torch.ops.gemmtune
torch.manual_seed(1)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Operators(unittest.TestCase):
    def test_linear_of_each_type(self):
        for dtype, relative in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float16, 2e-3)):
            x, w, bias = (torch.randn(shape).to(dtype) for shape in ((5, 96), (40, 96), (40,)))
            exact = x.double() @ w.double().T
            close(self, ops.linear(x, w), exact, relative)
            close(self, ops.linear(x, w, bias), exact + bias.double(), relative)
            close(self, gemmtune.linear(x, w, bias), exact + bias.double(), relative)
            out = torch.empty(5, 40, dtype=dtype)
            ops.linear_out(x, w, bias, out=out)
            close(self, out, exact + bias.double(), relative)
        mixed = gemmtune.linear(x, w, out_dtype="f32")
        self.assertEqual(mixed.dtype, torch.float32)

    def test_strides_and_leading_dimensions(self):
        x, w = torch.randn(2, 3, 64), torch.randn(16, 64)
        exact = x.double() @ w.double().T
        close(self, ops.linear(x, w), exact, 1e-6)
        close(self, ops.linear(x[1, 2], w), exact[1, 2], 1e-6)
        close(self, ops.linear(x[:, 0], w), exact[:, 0], 1e-6)
        matrix = x.view(6, 64)
        close(self, ops.linear(matrix.t().contiguous().t(), w.t().contiguous().t()), exact.view(6, 16), 1e-6)
        close(self, ops.linear(matrix[:, 1:33], w[:, :32].contiguous()), matrix[:, 1:33].double() @ w[:, :32].double().T, 1e-6)
        wide = torch.zeros(6, 20)
        ops.linear_out(matrix, w, out=wide[:, :16])
        close(self, wide[:, :16], exact.view(6, 16), 1e-6)
        self.assertEqual(wide[:, 16:].abs().max(), 0)
        self.assertEqual(ops.linear(x[:, :0], w).shape, (2, 0, 16))
        close(self, ops.linear(x[:, -1:], w), exact[:, -1:], 1e-6)  # the last token of each sequence
        close(self, ops.linear(x[:, ::2], w), exact[:, ::2], 1e-6)  # rows at two distances: copied
        close(self, ops.linear(x.expand(2, 3, 64)[:1].expand(2, 3, 64), w), exact[:1].expand(2, 3, 16), 1e-6)
        close(self, ops.linear(torch.randn(2, 3, 128).copy_(x.repeat_interleave(2, 2))[..., ::2], w), exact, 1e-6)

    def test_quantized(self):
        m, n, k = 6, 256, 384
        x, w = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((m, k), (n, k)))
        x_scale, w_scale, bias = torch.rand(m) / 64, torch.rand(n) / 64, torch.randn(n).bfloat16()
        exact = (x.double() * x_scale[:, None].double()) @ (w.double() * w_scale[:, None].double()).T
        close(self, gemmtune.a8w8(x, w, x_scale, w_scale, bias), exact + bias.double(), 1e-2)
        out = torch.empty(m, n, dtype=torch.float16)
        self.assertIs(gemmtune.a8w8(x, w, x_scale, w_scale, out=out), out)
        close(self, out, exact, 2e-3)
        x8, w8 = random_fp8((m, k)), random_fp8((n, k))
        one = torch.tensor([0.5])
        close(self, gemmtune.linear(x8, w8, x_scale=one, w_scale=one), x8.double() @ w8.double().T / 4, 1e-2)
        x_blocks, w_blocks = torch.rand(m, 3), torch.rand(2, 3)
        exact = (x8.double() * x_blocks.double().repeat_interleave(128, 1)) @ (
            w8.double() * w_blocks.double().repeat_interleave(128, 0).repeat_interleave(128, 1)).T
        close(self, gemmtune.a8w8_blockscale(x8, w8, x_blocks, w_blocks, out_dtype=torch.float16), exact, 2e-3)
        powers = [torch.randint(120, 128, shape, dtype=torch.uint8) for shape in ((m, 3), (2, 3))]
        x_power, w_power = (torch.exp2(one.double() - 127) for one in powers)
        exact = (x8.double() * x_power.repeat_interleave(128, 1)) @ (
            w8.double() * w_power.repeat_interleave(128, 0).repeat_interleave(128, 1)).T
        close(self, gemmtune.a8w8_blockscale(x8, w8, *powers, out_dtype=torch.float16), exact, 2e-3)
        close(self, gemmtune.a8w8_blockscale(x8, w8, *(one.view(torch.float8_e8m0fnu) for one in powers), out_dtype=torch.float16),
              exact, 2e-3)
        batch = random_fp8((2, m, k)), random_fp8((2, n, k))
        close(self, gemmtune.batched_a8w8(*batch, one, one), torch.einsum("bmk,bnk->bmn", batch[0].double(), batch[1].double()) / 4,
              1e-2)
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]).double()
        x4, w4 = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8) for rows in (m, n))
        e8m0 = [torch.randint(120, 128, (rows, k // 32), dtype=torch.uint8) for rows in (m, n)]
        exact = [torch.stack([values[(bits & 15).long()], values[(bits >> 4).long()]], -1).flatten(1) *
                 torch.exp2(scale.double() - 127).repeat_interleave(32, 1) for bits, scale in zip((x4, w4), e8m0)]
        close(self, gemmtune.a4w4_blockscale(x4, w4, *e8m0), exact[0] @ exact[1].T, 1e-2)
        x16 = torch.randn(m, k).bfloat16()
        close(self, gemmtune.a16w4(x16, w4, e8m0[1], bias), x16.double() @ exact[1].T + bias.double(), 1e-2)
        out = torch.empty(m, n, dtype=torch.float16)
        self.assertIs(gemmtune.a8w4(x8, w4, x_scale, e8m0[1], out=out), out)
        close(self, out, (x8.double() * x_scale[:, None].double()) @ exact[1].T, 2e-3)
        with self.assertRaisesRegex(errors.InvalidArgument, r"w has shape \[256, 192\], expected \[N, 96\]"):
            gemmtune.a16w4(x16[:, :192], w4, e8m0[1])

    def test_nvfp4_and_int4_weights(self):
        m, n, k = 5, 40, 256
        values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]).double()
        x4, w4 = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8) for rows in (m, n))
        scales = [(0.5 + torch.rand(rows, k // 16)).to(torch.float8_e4m3fn) for rows in (m, n)]
        exact = [torch.stack([values[(bits & 15).long()], values[(bits >> 4).long()]], -1).flatten(1) *
                 scale.double().repeat_interleave(16, 1) / 8 for bits, scale in zip((x4, w4), scales)]
        x, eighth = torch.randn(m, k).bfloat16(), torch.tensor(0.125)
        close(self, gemmtune.a16w4_nvfp4(x, w4, scales[1], eighth), x.double() @ exact[1].T, 1e-2)
        close(self, gemmtune.a4w4_nvfp4(x4, w4, *scales, eighth, eighth), exact[0] @ exact[1].T, 1e-2)
        signed = torch.stack([w4 & 15, w4 >> 4], -1).flatten(1).double()
        signed = torch.where(signed > 7, signed - 16, signed)
        scale, zero = torch.rand(n, 2).bfloat16() / 8, torch.randint(-8, 9, (n, 2), dtype=torch.int8)
        w = (signed - zero.double().repeat_interleave(128, 1)) * scale.double().repeat_interleave(128, 1)
        out = torch.empty(m, n, dtype=torch.bfloat16)
        self.assertIs(gemmtune.a16w4_int4(x, w4, scale, zero, out=out), out)
        close(self, out, x.double() @ w.T, 1e-2)
        x8, one = torch.randint(-127, 128, (m, k), dtype=torch.int8), torch.tensor([1 / 64])
        close(self, gemmtune.a8w4_int4(x8, w4, one, scale, zero), x8.double() @ w.T / 64, 1e-2)
        compiled = torch.compile(lambda x: torch.ops.gemmtune.a16w4_int4(x, w4, scale, zero), fullgraph=True)
        close(self, compiled(x), x.double() @ w.T, 1e-2)

    def test_batched_and_moe(self):
        x, w = torch.randn(3, 4, 64).bfloat16(), torch.randn(3, 32, 64).bfloat16()
        exact = torch.einsum("bmk,bnk->bmn", x.double(), w.double())
        close(self, gemmtune.batched_bf16(x, w), exact, 1e-2)
        wide = torch.randn(3, 6, 80).bfloat16()
        wide[:, :4, :64] = x
        close(self, ops.batched_bf16(wide[:, :4, :64], w), exact, 1e-2)
        tokens, experts, model, inner, topk = 5, 4, 64, 32, 2
        x = torch.randn(tokens, model).bfloat16()
        w1, w2 = (torch.randn(experts, 2 * inner, model) / 8).bfloat16(), (torch.randn(experts, model, inner) / 8).bfloat16()
        weights, ids = torch.rand(tokens, experts).topk(topk)
        expected = torch.zeros(tokens, model).double()
        for token in range(tokens):
            for slot in range(topk):
                gate, up = (w1[ids[token, slot]].double() @ x[token].double()).chunk(2)
                expected[token] += weights[token, slot] * (w2[ids[token, slot]].double() @ (functional.silu(gate) * up))
        close(self, gemmtune.fused_moe(x, w1, w2, ids.int(), weights), expected, 2e-2)
        shared = gemmtune.fused_moe(x, w1, w2, ids[:, :1].int() % (len(w1) - 1), weights[:, :1].contiguous(), shared_experts=1)
        last = torch.full_like(ids[:, :1], len(w1) - 1).int()
        spelled_out = gemmtune.fused_moe(x, w1, w2, torch.cat([ids[:, :1].int() % (len(w1) - 1), last], 1),
                                         torch.cat([weights[:, :1], torch.ones_like(weights[:, :1])], 1))
        close(self, shared, spelled_out.double(), 1e-6)
        with self.assertRaisesRegex(errors.WrongType, "dtype of topk_ids is another one, expected int32"):
            gemmtune.fused_moe(x, w1, w2, ids, weights)
        bias1, bias2 = torch.randn(experts, 2 * inner), torch.randn(experts, model)
        expected = torch.zeros(tokens, model).double()
        for token in range(tokens):
            for slot, expert in enumerate(ids[token]):
                gate, up = (w1[expert].double() @ x[token].double() + bias1[expert]).chunk(2)
                expected[token] += weights[token, slot] * (w2[expert].double() @ (functional.silu(gate) * up) + bias2[expert])
        close(self, gemmtune.fused_moe(x, w1, w2, ids.int(), weights, bias1=bias1, bias2=bias2), expected, 2e-2)
        out = torch.empty(tokens, model).bfloat16()
        close(self, gemmtune.fused_moe(x, w1, w2, ids.int(), weights, out, bias1=bias1, bias2=bias2), expected, 2e-2)
        compiled = torch.compile(lambda *values: gemmtune.fused_moe(*values, bias1=bias1, bias2=bias2), backend="eager", fullgraph=True)
        close(self, compiled(x, w1, w2, ids.int(), weights), expected, 2e-2)
        with self.assertRaisesRegex(errors.InvalidArgument, "bias1 is missing"):
            gemmtune.fused_moe(x, w1, w2, ids.int(), weights, bias2=bias2)
        with self.assertRaisesRegex(errors.WrongType, "dtype of bias1 is bf16, expected f32"):
            gemmtune.fused_moe(x, w1, w2, ids.int(), weights, bias1=bias1.bfloat16(), bias2=bias2)

    def test_moe_of_quantized_tokens_and_mxfp4_weights(self):
        tokens, experts, model, inner, topk = 5, 4, 64, 32, 2
        table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6]).double()
        bytes1, bytes2 = (torch.randint(0, 256, shape, dtype=torch.uint8) for shape in ((experts, 2 * inner, model // 2), (experts, model, inner // 2)))
        scales1, scales2 = (torch.randint(122, 126, shape, dtype=torch.uint8) for shape in ((experts, 2 * inner, model // 32), (experts, model, inner // 32)))
        whole = [table[torch.stack((each & 15, each >> 4), 3).flatten(2).long()] * torch.exp2(scale.double() - 127).repeat_interleave(32, 2)
                 for each, scale in ((bytes1, scales1), (bytes2, scales2))]
        x = torch.randn(tokens, model).to(torch.float8_e4m3fn)
        weights, ids = torch.rand(tokens, experts).topk(topk)
        for quant_type, scale in (("per_token", torch.rand(tokens) + .5), ("per_1x32", torch.randint(126, 129, (tokens, model // 32), dtype=torch.uint8))):
            real = x.double() * (scale.double()[:, None] if quant_type == "per_token" else torch.exp2(scale.double() - 127).repeat_interleave(32, 1))
            expected = torch.zeros(tokens, model).double()
            for token in range(tokens):
                for slot, expert in enumerate(ids[token]):
                    gate, up = (whole[0][expert] @ real[token]).chunk(2)
                    expected[token] += weights[token, slot] * (whole[1][expert] @ (functional.silu(gate) * up))
            y = gemmtune.fused_moe(x, bytes1, bytes2, ids.int(), weights, quant_type=quant_type, x_scale=scale, w1_scale=scales1, w2_scale=scales2)
            close(self, y, expected, 2e-2)
        with self.assertRaisesRegex(errors.InvalidArgument, "w1_scale"):
            gemmtune.fused_moe(x, bytes1, bytes2, ids.int(), weights, quant_type="per_token", x_scale=torch.rand(tokens), w1_scale=torch.rand(experts * 2 * inner),
                               w2_scale=scales2)

    def test_moe_of_gpt_oss(self):  # as docs/python_arrays.md has it
        def halves(rows):
            return torch.cat([rows[:, ::2], rows[:, 1::2]], 1).contiguous()

        tokens, experts, model, inner, topk = 6, 5, 96, 64, 4
        table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6]).double()
        gate_up_blocks, down_blocks = (torch.randint(0, 256, shape, dtype=torch.uint8)
                                       for shape in ((experts, 2 * inner, model // 32, 16), (experts, model, inner // 32, 16)))
        gate_up_scales, down_scales = (torch.randint(123, 126, each.shape[:3], dtype=torch.uint8) for each in (gate_up_blocks, down_blocks))
        gate_up_bias, down_bias = torch.randn(experts, 2 * inner).bfloat16(), torch.randn(experts, model).bfloat16()
        gate_up, down = (table[torch.stack((blocks & 15, blocks >> 4), 4).flatten(2).long()] * torch.exp2(scales.double() - 127).repeat_interleave(32, 2)
                         for blocks, scales in ((gate_up_blocks, gate_up_scales), (down_blocks, down_scales)))
        x = torch.randn(tokens, model).bfloat16()
        logits, ids = torch.randn(tokens, experts).topk(topk)
        weights = torch.softmax(logits, 1)
        expected = torch.zeros(tokens, model).double()
        for token in range(tokens):
            for slot, expert in enumerate(ids[token]):
                both = gate_up[expert] @ x[token].double() + gate_up_bias[expert].double()
                gate, up = both[::2].clamp(max=7), both[1::2].clamp(-7, 7)
                hidden = (up + 1) * gate * torch.sigmoid(1.702 * gate)
                expected[token] += weights[token, slot] * (down[expert] @ hidden + down_bias[expert].double())
        y = gemmtune.fused_moe(x, halves(gate_up_blocks.flatten(2)), down_blocks.flatten(2), ids.int(), weights, activation="swiglu",
                               quant_type="per_1x32", w1_scale=halves(gate_up_scales), w2_scale=down_scales,
                               bias1=halves(gate_up_bias).float(), bias2=down_bias.float())
        close(self, y, expected, 2e-2)

    def test_moe_of_int4_weights(self):
        tokens, experts, model, inner, topk = 5, 4, 64, 32, 2
        bytes1, bytes2 = (torch.randint(0, 256, shape, dtype=torch.uint8) for shape in ((experts, 2 * inner, model // 2), (experts, model, inner // 2)))
        scale1, scale2 = torch.rand(experts, 2 * inner) / 40, torch.rand(experts, model) / 40
        numbers = torch.tensor([*range(8), *range(-8, 0)]).double()
        whole = [numbers[torch.stack((each & 15, each >> 4), 3).flatten(2).long()] * scale.double()[..., None]
                 for each, scale in ((bytes1, scale1), (bytes2, scale2))]
        x = torch.randn(tokens, model).bfloat16()
        weights, ids = torch.rand(tokens, experts).topk(topk)
        expected = torch.zeros(tokens, model).double()
        for token in range(tokens):
            for slot, expert in enumerate(ids[token]):
                gate, up = (whole[0][expert] @ x[token].double()).chunk(2)
                expected[token] += weights[token, slot] * (whole[1][expert] @ (functional.silu(gate) * up))
        y = gemmtune.fused_moe(x, bytes1.view(torch.int4), bytes2.view(torch.int4), ids.int(), weights, quant_type="per_token", w1_scale=scale1, w2_scale=scale2)
        close(self, y, expected, 2e-2)

    def test_moe_of_formats_of_weights_alone(self):
        tokens, experts, model, inner, topk = 5, 4, 64, 32, 2
        shapes = (experts, 2 * inner, model), (experts, model, inner)
        packed = [torch.randint(0, 256, (*shape[:2], shape[2] // 2), dtype=torch.uint8) for shape in shapes]
        codes = [torch.stack((each & 15, each >> 4), 3).flatten(2).long() for each in packed]
        x = torch.randn(tokens, model).bfloat16()
        weights, ids = torch.rand(tokens, experts).topk(topk)

        def check(whole, **operands):
            expected = torch.zeros(tokens, model).double()
            for token in range(tokens):
                for slot, expert in enumerate(ids[token]):
                    gate, up = (whole[0][expert] @ x[token].double()).chunk(2)
                    expected[token] += weights[token, slot] * (whole[1][expert] @ (functional.silu(gate) * up))
            close(self, gemmtune.fused_moe(x, *packed, ids.int(), weights, **operands), expected, 2e-2)
            out = torch.empty(tokens, model).bfloat16()
            close(self, gemmtune.fused_moe(x, *packed, ids.int(), weights, out, **operands), expected, 2e-2)
            compiled = torch.compile(lambda *values: gemmtune.fused_moe(*values, **operands), backend="eager", fullgraph=True)
            close(self, compiled(x, *packed, ids.int(), weights), expected, 2e-2)

        table = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6]).double()
        scales = [(torch.rand(*shape[:2], shape[2] // 16) + .5).to(torch.float8_e4m3fn) for shape in shapes]
        of_experts = [torch.rand(experts) / 10 + .02 for _ in shapes]
        check([table[code] * scale.double().repeat_interleave(16, 2) * each.double()[:, None, None]
               for code, scale, each in zip(codes, scales, of_experts)], quant_type="per_1x16", w1_scale=scales[0], w2_scale=scales[1],
              w1_global_scale=of_experts[0], w2_global_scale=of_experts[1])
        zero_points = [torch.randint(-8, 9, (*shape[:2], shape[2] // 32), dtype=torch.int8) for shape in shapes]
        scales = [(torch.rand(points.shape) / 20).bfloat16() for points in zero_points]
        numbers = [torch.tensor([*range(8), *range(-8, 0)]).double()[code] for code in codes]
        for points in (None, zero_points):
            check([(number if points is None else number - points[i].double().repeat_interleave(32, 2)) * scales[i].double().repeat_interleave(32, 2)
                   for i, number in enumerate(numbers)], quant_type="per_group", w1_scale=scales[0], w2_scale=scales[1],
                  w1_zero_points=points and points[0], w2_zero_points=points and points[1])
        with self.assertRaisesRegex(errors.InvalidArgument, "w1_zero_points is missing"):
            gemmtune.fused_moe(x, *packed, ids.int(), weights, quant_type="per_group", w1_scale=scales[0], w2_scale=scales[1],
                               w2_zero_points=zero_points[1])
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        with gemmtune.torch.capture(folder / "shapes.csv"):
            gemmtune.fused_moe(x, *packed, ids.int(), weights, quant_type="per_group", w1_scale=scales[0], w2_scale=scales[1],
                               w1_zero_points=zero_points[0], w2_zero_points=zero_points[1])
        self.assertEqual((folder / "shapes.fused_moe.csv").read_text().splitlines()[1],
                         "5,64,32,4,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.int4,QuantType.per_group,1,0,32,True,1")

    def test_silu_and_mul(self):
        for dtype, relative in ((torch.float32, 1e-6), (torch.bfloat16, 4e-3), (torch.float16, 5e-4)):
            both = torch.randn(2, 5, 2 * 72).to(dtype)
            gate, up = both.chunk(2, -1)
            exact = functional.silu(gate.double()) * up.double()
            y = ops.silu_and_mul(gate, up)
            self.assertTrue(y.is_contiguous() and y.dtype is dtype)
            close(self, y, exact, relative)
            close(self, ops.silu_and_mul(gate[1, 2], up[1, 2]), exact[1, 2], relative)
            close(self, ops.silu_and_mul(gate.transpose(0, 1), up.transpose(0, 1)), exact.transpose(0, 1), relative)
            out = torch.zeros(2, 5, 80, dtype=dtype)
            self.assertIs(gemmtune.torch.silu_and_mul(gate, up, out=(part := out[..., :72])), part)
            close(self, part, exact, relative)
            self.assertEqual(out[..., 72:].abs().max(), 0)
        self.assertEqual(ops.silu_and_mul(gate[:0], up[:0]).shape, (0, 5, 72))
        large = torch.randn(300, 2048)
        close(self, ops.silu_and_mul(large, large), functional.silu(large.double()) * large.double(), 1e-6)
        x = torch.randn(3, 8)
        for arguments, kind, text in (
                ((x, x.bfloat16()), errors.WrongType, "dtype of up is bf16, expected gate's, f32"),
                ((x.double(), x.double()), errors.WrongType, "dtype of gate is one that gemmtune does not know"),
                ((x.to(torch.int8), x.to(torch.int8)), errors.WrongType, "dtype of gate is i8, expected bf16, f16 or f32"),
                ((x, x[:2]), errors.InvalidArgument, r"up has shape \[2, 8\], expected gate's, \[3, 8\]"),
                ((x, x, torch.empty(3, 9)), errors.InvalidArgument, r"out has shape \[3, 9\], expected gate's, \[3, 8\]"),
                ((x, x, torch.empty(8, 3).t()), errors.InvalidArgument, "out has strides"),
                ((x[0, 0], x[0, 0]), errors.InvalidArgument, "gate has no dimension")):
            with self.assertRaisesRegex(kind, text):
                gemmtune.torch.silu_and_mul(*arguments)
        with self.assertRaisesRegex(errors.NeedsGradient, "gemmtune computes no gradients"):
            gemmtune.torch.silu_and_mul(x, x.clone().requires_grad_())
        compiled = torch.compile(lambda a: torch.relu(ops.silu_and_mul(*(a @ a.t()).chunk(2, 1))), fullgraph=True)
        for m in (4, 6, 8):
            a = torch.randn(m, 16)
            gate, up = (a.double() @ a.double().t()).chunk(2, 1)
            close(self, compiled(a), (functional.silu(gate) * up).relu(), 1e-6)
        torch.library.opcheck(ops.silu_and_mul.default, (x, x), test_utils=("test_schema", "test_faketensor"))
        torch.library.opcheck(ops.silu_and_mul_out.default, (x, x), {"out": torch.empty(3, 8)},
                              test_utils=("test_schema", "test_faketensor"))

    def test_errors_have_their_kind(self):
        x, w = torch.randn(2, 32), torch.randn(8, 32)
        for call, kind, text in (
                (lambda: gemmtune.linear(x, w.double()), errors.WrongType, "dtype of w is one that gemmtune does not know"),
                (lambda: gemmtune.linear(x, w.bfloat16()), errors.WrongType, "dtype of w is bf16, expected the type of x, f32"),
                (lambda: gemmtune.linear(x[:, :8], w), errors.InvalidArgument, r"w has shape \[8, 32\], expected \[N, 8\]"),
                (lambda: gemmtune.linear(x, w[::2, ::2]), errors.InvalidArgument, "w has shape"),
                (lambda: gemmtune.linear(x, w, out=torch.empty(2, 9)), errors.InvalidArgument, r"out has shape \[2, 9\]"),
                (lambda: gemmtune.linear(x, w, torch.ones(3)), errors.InvalidArgument, r"bias has shape \[3\], expected \[8\]"),
                (lambda: gemmtune.a8w8(x.to(torch.int8), w.to(torch.int8), torch.ones(3), torch.ones(8)),
                 errors.InvalidArgument, r"x_scale has shape \[3\], expected \[2\] or one element"),
                (lambda: ops.linear(x, torch.zeros(100, dtype=torch.uint8), n=8, layout=2), RuntimeError,
                 r"w has shape \[100\], expected the bytes of a packed weight \[8, 32\]"),
                (lambda: gemmtune.linear(x, w, out=torch.empty(8, 2).t()), errors.InvalidArgument, "out has strides"),
                (lambda: gemmtune.linear(x, w, out_dtype="i8"), errors.WrongType, "out_dtype is 'i8'")):
            with self.assertRaisesRegex(kind, text):
                call()
        with self.assertRaisesRegex(RuntimeError, "gemmtune: w has shape"):
            ops.linear(x[:, :8], w)

    def test_autograd_is_refused(self):
        x, w = torch.randn(2, 32, requires_grad=True), torch.randn(8, 32)
        with self.assertRaisesRegex(errors.NeedsGradient, "gemmtune computes no gradients"):
            gemmtune.linear(x, w)
        with self.assertRaisesRegex(RuntimeError, "gemmtune computes no gradients"):
            ops.linear(w.detach(), x)
        with self.assertRaisesRegex(RuntimeError, "gemmtune computes no gradients"):
            ops.linear_out(x, w, out=torch.empty(2, 8))
        with torch.no_grad():
            self.assertFalse(ops.linear(x, w).requires_grad)
        self.assertFalse(ops.linear(x.detach(), w).requires_grad)
        with self.assertRaisesRegex(Exception, "gemmtune computes no gradients"):
            torch.compile(lambda a, b: ops.linear(a, b), fullgraph=True, backend="aot_eager")(x, w)

    def test_a_constant_weight_is_promised_to_the_plan(self):
        x, w, counters = torch.randn(3, 40), torch.randn(24, 40), gemmtune.contexts.current(("cpu", 0)).counters
        with torch.no_grad():
            y = ops.linear(x, w)
            before = counters()["plans_made"]
            ops.linear.full(x, w)
            self.assertEqual(counters()["plans_made"], before)
            torch.testing.assert_close(ops.linear.full(x, w, constant_weight=True), y, rtol=0, atol=0)
            self.assertEqual(counters()["plans_made"], before + 1)  # of another key

    def test_compile_in_one_graph(self):
        x, w, bias = torch.randn(4, 32), torch.randn(16, 32), torch.randn(16)

        def both(x):
            out = torch.empty(x.shape[0], 16)
            ops.linear_out(x, w, bias, out=out)
            return torch.relu(ops.linear(x, w, bias)), out + 1

        with torch.no_grad():
            compiled = torch.compile(both, fullgraph=True)
            for m in (4, 7, 9):  # the third one with a symbolic M
                x = torch.randn(m, 32)
                exact = x.double() @ w.double().T + bias.double()
                first, second = compiled(x)
                close(self, first, exact.relu(), 1e-6)
                close(self, second, exact + 1, 1e-6)
        torch.library.opcheck(ops.linear.default, (x, w, bias), test_utils=("test_schema", "test_faketensor"))
        torch.library.opcheck(ops.linear.full, (x, w, bias, None, None, 0, 0, torch.float32, True),
                              test_utils=("test_schema", "test_faketensor"))
        torch.library.opcheck(ops.linear_out.default, (x, w, bias), {"out": torch.empty(9, 16)},
                              test_utils=("test_schema", "test_faketensor"))

    def test_inductor_gets_our_kernel(self):
        from torch._inductor import config
        gemmtune.torch.register_inductor()
        gemmtune.torch.register_inductor()
        self.assertEqual(config.external_matmul.count(gemmtune.torch._operators.gemmtune_mm), 1)
        self.addCleanup(config.external_matmul.clear)
        x, w = torch.randn(64, 32), torch.randn(32, 48)
        counters = gemmtune.contexts.current(("cpu", 0)).counters
        calls = counters()["untuned"]
        with torch.no_grad(), config.patch(force_disable_caches=True):
            product = torch.compile(lambda a, b: a @ b, fullgraph=True, options={"max_autotune": True})(x, w)
        close(self, product, x.double() @ w.double(), 1e-6)
        self.assertGreater(counters()["untuned"], calls)  # it was timed


class Models(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(gemmtune.use)
        self.model = SmallLlama().bfloat16().eval()
        self.tokens = torch.randint(0, 320, (1, 12))
        self.enterContext(torch.inference_mode())
        self.expected = self.model(self.tokens)

    def test_blocks_of_a_frozen_graph_run_their_own_packed_weights(self):
        # Inductor's cache of graphs serves all blocks of one shape and does not look at the values of frozen tensors.
        class Block(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = torch.nn.Linear(64, 128, bias=False), torch.nn.Linear(128, 64, bias=False)

            def forward(self, x):
                return x + self.down(functional.silu(self.up(x)))

        x = torch.randn(4, 64).bfloat16()
        for options in ({}, {"keep_weight": False}):
            blocks = torch.nn.Sequential(*(Block() for _ in range(3))).bfloat16().eval().requires_grad_(False)
            expected = blocks(x)
            patched = gemmtune.torch.patch(blocks, pack="any", **options)
            self.assertEqual(len(patched.packed), 6)
            ran, run = [], _patched.Linear.run_compiled

            def run_compiled(layer, *arguments, ran=ran, run=run):
                y = run(layer, *arguments)
                ran.append((layer, y is not None))
                return y

            with (unittest.mock.patch.object(torch._inductor.config, "freezing", True), torch._inductor.utils.fresh_cache(),
                  unittest.mock.patch.object(_patched.Linear, "run_compiled", run_compiled), torch.no_grad()):
                for block in blocks:
                    block.compile(fullgraph=True, dynamic=False)
                close(self, blocks(x), expected, 2e-2)
            if not options:
                layers = [layer for block in blocks for layer in (block.up, block.down)]
                self.assertEqual(ran, [(layer, True) for layer in layers])

    def test_patch_and_undo(self):
        before = {name: type(module) for name, module in self.model.named_modules()}
        weights = {name: value.data_ptr() for name, value in self.model.state_dict().items()}
        patched = gemmtune.torch.patch(self.model)
        self.assertEqual(len(patched), 2 * 7 + 1)
        self.assertEqual({name: value.data_ptr() for name, value in self.model.state_dict().items()}, weights)
        counters = gemmtune.contexts.current(("cpu", 0)).counters
        calls = counters()["untuned"]
        close(self, self.model(self.tokens), self.expected, 2e-2)
        self.assertEqual(counters()["untuned"], calls + 15)
        compiled = torch.compile(self.model, fullgraph=True)
        close(self, compiled(self.tokens), self.expected, 2e-2)
        self.assertGreater(counters()["untuned"], calls + 15)
        patched.undo()
        patched.undo()
        self.assertEqual({name: type(module) for name, module in self.model.named_modules()}, before)
        self.assertFalse([name for name in vars(self.model.head) if name.startswith("gemmtune")])
        torch.testing.assert_close(self.model(self.tokens), self.expected, rtol=0, atol=0)
        with gemmtune.torch.patch(self.model, only=lambda name, module: name == "head") as one:
            self.assertEqual(one.layers, ["head"])
        with gemmtune.torch.patch(self.model):
            plain = self.model(self.tokens)
        for merge in (False, True):  # a promise that a CPU has no use for
            with gemmtune.torch.patch(self.model, dependent=True, merge=merge):
                close(self, self.model(self.tokens), plain, 1e-2)
                self.assertTrue(self.model.head.gemmtune_options.dependent)
        self.assertNotIn("gemmtune_options", vars(self.model.head))

    def test_merged_layers_are_one_product(self):
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        names = [("q", "k", "v"), ("k", "v"), ("gate", "up")]  # q alone has a bias
        patched = gemmtune.torch.patch(self.model, merge=names)
        self.assertEqual(patched.merged, [[f"layers.{i}.{name}" for name in group] for i in (0, 1) for group in names[1:]])
        self.assertEqual((len(patched), patched.skipped), (15, {}))
        for name, value in self.model.state_dict().items():
            torch.testing.assert_close(value, state[name], rtol=0, atol=0)
        counters = gemmtune.contexts.current(("cpu", 0)).counters
        calls = counters()["untuned"]
        with gemmtune.torch.capture() as captured:
            close(self, self.model(self.tokens), self.expected, 2e-2)
        self.assertEqual(counters()["untuned"], calls + 15 - 4)
        sizes = sorted((dict(row)["N"], dict(row)["bias"], calls) for row, calls in captured.shapes["a16w16"].items())
        self.assertEqual(sizes, [(128, False, 2), (128, False, 4), (128, True, 2), (320, False, 1), (512, False, 2)])
        layer = self.model.layers[0]
        x = torch.randn(65, 128).bfloat16()
        calls = counters()["untuned"]
        for one in (layer.gate, layer.up):
            y = one(x)
            close(self, y, functional.linear(x, one.weight), 2e-2)
            self.assertTrue(y.is_contiguous(), "many rows: alone")
        self.assertEqual(counters()["untuned"], calls + 2)
        x = torch.randn(3, 128).bfloat16()
        alone = [functional.linear(x, one.weight) for one in (layer.k, layer.v)]
        for order in ((0, 1), (1, 0), (0, 0, 1), (1, 1)):  # whoever asks first, and again
            for index in order:
                close(self, (layer.k, layer.v)[index](x), alone[index], 2e-2)
            x = x.clone()
        close(self, layer.k(x), alone[0], 2e-2)
        close(self, layer.v(x + 1), functional.linear(x + 1, layer.v.weight), 2e-2)  # another x
        compiled = torch.compile(self.model, fullgraph=True, backend="aot_eager")
        close(self, compiled(self.tokens), self.expected, 2e-2)
        calls = counters()["untuned"]
        close(self, compiled(self.tokens), self.expected, 2e-2)
        self.assertEqual(counters()["untuned"], calls + 15 - 4)
        wrong = []

        def work(number):
            with torch.inference_mode():
                own = torch.randn(number + 1, 128).bfloat16()
                exact = [functional.linear(own, one.weight) for one in (layer.gate, layer.up)]
                for _ in range(200):
                    for one, y in zip((layer.gate, layer.up), exact):
                        if (one(own) - y).abs().max() > 0.1:
                            wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        patched.undo()
        self.assertEqual({type(module) for module in self.model.modules() if hasattr(module, "in_features")}, {torch.nn.Linear})
        self.assertNotIn("gemmtune_group", vars(layer.k))
        torch.testing.assert_close(self.model(self.tokens), self.expected, rtol=0, atol=0)

    def test_gated_layers_run_one_kernel_between_their_products(self):
        x = torch.randn(2, 3, 64).bfloat16()
        many = torch.randn(70, 64).bfloat16()
        counters = gemmtune.contexts.current(("cpu", 0)).counters
        for merge in (False, True):
            mlp = GatedMlp().bfloat16()
            whole = torch.nn.ModuleDict({"mlp": mlp})
            expected, exact = [mlp(one) for one in (x, many)], GatedMlp().double()
            exact.load_state_dict({name: value.double() for name, value in mlp.state_dict().items()})
            patched = gemmtune.torch.patch(whole, merge=merge)
            self.assertEqual((patched.gated, len(patched)), (["mlp"], 3))
            for one, plain in zip((x, many), expected):
                calls = counters()["untuned"]
                y = mlp(one)
                self.assertEqual(counters()["untuned"], calls + 3 - (merge and one is x), "many rows: alone")
                close(self, y, plain, 2e-2)
                truth = exact(one.double())
                self.assertLess((y - truth).norm(), 1.2 * (plain - truth).norm())
            self.assertEqual(gemmtune.torch.warm(whole, [1, 8]), 2 * 4)
            compiled = torch.compile(whole["mlp"], fullgraph=True)
            close(self, compiled(x), expected[0], 2e-2)
            seen = []
            hooks = [one.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[-1]))
                     for one in (mlp.gate_proj, mlp.act_fn, mlp.down_proj)]
            close(self, mlp(x), expected[0], 2e-2)
            self.assertEqual(seen, [96, 96, 64])
            for hook in hooks:
                hook.remove()
            with torch.autocast("cpu", torch.bfloat16):
                self.assertEqual(mlp(x.float()).dtype, torch.bfloat16)
            patched.undo()
            self.assertEqual({"forward", "gemmtune_gated"} & set(vars(mlp)), set())
            torch.testing.assert_close(mlp(x), expected[0], rtol=0, atol=0)
        with gemmtune.torch.patch(whole, silu_and_mul=False) as patched:
            self.assertEqual(patched.gated, [])
        with gemmtune.torch.patch(whole, only=lambda name, module: "up_proj" not in name) as patched:
            self.assertEqual((patched.gated, len(patched)), ([], 2))
        with gemmtune.torch.patch(mlp) as patched:
            self.assertEqual(patched.gated, [""])
            close(self, mlp(x), expected[0], 2e-2)

    def test_other_gated_layers_are_left_alone(self):
        x = torch.randn(5, 64).bfloat16()
        for form in ("gelu", "clamped", "depends on data", "swapped", "twice", "residual", "zero", "other input"):
            mlp = OtherMlp(form).bfloat16()
            expected = mlp(x)
            with gemmtune.torch.patch(mlp, merge=True) as patched:
                # up and gate have changed places there, and the structure says so
                self.assertEqual(patched.gated, [""] if form == "swapped" else [], form)
                close(self, mlp(x), expected, 2e-2)
        mlp = GatedMlp().bfloat16()
        mlp.forward = lambda x: x  # another library's
        self.assertEqual(gemmtune.torch.patch(mlp).gated, [])

    def test_other_types_run_as_before(self):
        layer = torch.nn.Linear(32, 8)
        whole = torch.nn.ModuleDict({"a": layer, "b": torch.nn.Linear(8, 4).double()})
        with gemmtune.torch.patch(whole) as patched:
            self.assertEqual((patched.layers, patched.skipped), (["a"], {"b": "weight is torch.float64"}))
            with torch.autocast("cpu", torch.bfloat16):
                self.assertEqual(layer(torch.randn(2, 32)).dtype, torch.bfloat16)

    def test_capture_tune_use(self):
        model = SmallLlama(hidden=64, heads=2, kv_heads=2, inner=64, layers=1, words=96).bfloat16().eval()
        token = self.tokens[:, :1] % 96
        file = self.folder / "shapes.csv"
        with gemmtune.torch.capture(file, packed=True) as captured:
            model(token)
        self.assertEqual(sorted(file.read_text().splitlines()),
                         ["1,64,64,False,bf16,bf16,False,True,6", "1,64,64,True,bf16,bf16,False,True,1",
                          "1,96,64,False,bf16,bf16,False,True,1", "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,calls"])
        self.assertEqual(list(captured.shapes), ["a16w16"])
        table = self.folder / "tuned.csv"
        done = gemmtune.tune(file, table, libtype="tiled", search="random", iters=5, confirmations=1)
        states = [problem["state"] for problem in done["problems"]]
        self.assertTrue(set(states) <= {"tuned", "default"}, states)
        context = gemmtune.use(table)
        expected = model(token)
        weight = model.head.weight.clone()
        layouts = {gemmtune.pack(layer.weight).layout_name for layer in (model.head, model.layers[0].q)}
        for keep in (True,) if "onednn" in layouts else (True, False):  # oneDNN's layout has no inverse
            with gemmtune.torch.patch(model, keep_weight=keep) as patched:
                self.assertEqual(patched.packed, patched.layers)
                self.assertEqual(model.head.weight is None, not keep)
                self.assertEqual(gemmtune.torch.warm(model, [1]), 8)
                before = context.counters()
                close(self, model(token), expected, 2e-2)
                after = context.counters()
                self.assertEqual((after["exact"] - before["exact"], after["plans_made"]), (8, before["plans_made"]))
                with gemmtune.torch.capture() as again:
                    model(token)
                self.assertEqual(again.shapes, captured.shapes)
            torch.testing.assert_close(model.head.weight.data, weight.data, rtol=0, atol=0)

    def test_capture_of_a_mixture(self):
        tokens, experts, model, inner, topk = 5, 4, 64, 32, 2
        x, w1, w2 = (torch.randn(shape).bfloat16() for shape in ((tokens, model), (experts, 2 * inner, model), (experts, model, inner)))
        weights, ids = torch.rand(tokens, experts).topk(topk)
        ids = ids.int()
        bytes1, bytes2 = (torch.zeros(shape, dtype=torch.uint8) for shape in ((experts, inner, model // 2), (experts, model, inner // 2)))
        scales = [torch.full(shape, 127, dtype=torch.uint8) for shape in ((experts * inner, model // 32), (experts * model, inner // 32))]
        file = self.folder / "shapes.csv"
        with gemmtune.torch.capture(file):
            for _ in range(2):
                gemmtune.fused_moe(x, w1, w2, ids, weights)
            ops.fused_moe_out(x, w1[:, :inner].contiguous(), w2, ids, weights, None, None, None, out=torch.empty(tokens, model).bfloat16(),
                              activation=2, gated=False, doweight_stage1=True)
            gemmtune.fused_moe(x, bytes1, bytes2, ids, weights, quant_type="per_1x32", gated=False, w1_scale=scales[0], w2_scale=scales[1])
        file = self.folder / "shapes.fused_moe.csv"
        self.assertEqual(sorted(file.read_text().splitlines())[:3], [
            "5,64,32,4,2,ActivationType.Gelu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,0,1,1",
            "5,64,32,4,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,2",
            "5,64,32,4,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.float4_e2m1fn_x2,QuantType.per_1x32,0,0,1"])
        done = gemmtune.tune(file, self.folder / "moe.csv", limit=1, iters=2, confirmations=1)
        self.assertEqual([problem["state"] in ("tuned", "default") for problem in done["problems"]], [True], done["problems"])

    def test_scaled_fp8_layers(self):
        x = torch.randn(3, 256).bfloat16()
        for kind in ("tensor", "rows", "blocks"):
            layer = Fp8Linear(torch.randn(192, 256), kind, torch.randn(192).bfloat16())
            expected = layer(x)
            with gemmtune.torch.patch(torch.nn.Sequential(layer)) as patched:
                self.assertEqual(patched.layers, ["0"])
                found = layer(x)
                self.assertFalse(torch.equal(found, expected))
                close(self, found, expected, 6e-2)
                with gemmtune.torch.capture() as seen:
                    layer(x)
                self.assertEqual(list(seen.shapes), [{"tensor": "a16w16", "rows": "a8w8", "blocks": "a8w8_blockscale"}[kind]])
            self.assertTrue(torch.equal(layer(x), expected))


class Files(unittest.TestCase):
    def validators(self):
        """Where this PyTorch gives none without a GPU, that is an error of ours, and some of its own form stand in."""
        try:
            torch.cuda.tunable.get_validators()
            return contextlib.nullcontext()
        except RuntimeError:
            with self.assertRaisesRegex(gemmtune.Error, "no validators without a GPU"):
                gemmtune.torch.write_tunableop("table", "results")
            version = ("PT_VERSION", torch.__version__.split("+")[0])
            return unittest.mock.patch("torch.cuda.tunable.get_validators", return_value=(version,))

    def test_tunableop_results_of_this_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            table, results = Path(folder) / "bf16_tuned_gemm.csv", Path(folder) / "tunableop_results0.csv"
            table.write_text("gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
                             "sm_90,132,1,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,cublaslt,0,0,9.7153,"
                             "cublaslt_r1_algo66_tile10_stages35_sk5_red2_swizzle0_custom1_inner0_cluster4\n"
                             "sm_90,132,2,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,skinny,0,0,8,skinny_r1\n")
            with self.validators():
                report = gemmtune.torch.write_tunableop(table, results)
            lines = results.read_text().splitlines()
        self.assertIn(f"Validator,PT_VERSION,{torch.__version__.split('+')[0]}", lines)
        self.assertEqual(lines[-1], "GemmTunableOp_BFloat16_TN,tn_1280_1_8192_ld_8192_8192_1280,Gemm_Cublaslt_id_66_tile_10_"
                                    "stages_35_splitk_5_red_2_swizzle_0_custom_1_inner_0_cluster_4,0.0097153")
        self.assertTrue(any("skinny" in str(item) for item in report["left_out"]))


class Processes(unittest.TestCase):
    def test_threads_with_reloads(self):
        problems = [(torch.randn(m, 64), torch.randn(32, 64)) for m in (1, 2, 5)]
        exact = [x @ w.T for x, w in problems]
        wrong = []

        def work(calls):
            with torch.inference_mode():
                for turn in range(calls):
                    x, w = problems[turn % 3]
                    y = ops.linear(x, w)
                    if turn % 50 == 0 and (y - exact[turn % 3]).abs().max() > 1e-4:
                        wrong.append(turn)

        def run(calls):
            threads = [threading.Thread(target=work, args=(calls,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            reloads = 0
            while any(thread.is_alive() for thread in threads):
                gemmtune.reload()
                reloads += 1
            return reloads

        run(500)
        before = resident_bytes()
        self.assertGreater(run(12500), 20)
        self.assertEqual(wrong, [])
        self.assertLess(resident_bytes() - before, 32 << 20)

    def test_calls_keep_no_memory(self):
        x, w, bias = torch.randn(2, 64), torch.randn(32, 64), torch.randn(32)
        with torch.inference_mode():
            for _ in range(20000):
                ops.linear(x, w, bias)
            before = resident_bytes()
            for _ in range(200000):
                ops.linear(x, w, bias)
        self.assertLess(resident_bytes() - before, 2 << 20)

    def test_calls_run_in_the_team_of_torch(self):
        program = ("import os, torch, gemmtune, gemmtune.torch\n"
                   "x, w = torch.randn(64, 1024), torch.randn(2048, 1024)\n"
                   "torch.nn.functional.silu(torch.randn(1 << 20))\n"  # PyTorch's team is there
                   "context = gemmtune.contexts.current(('cpu', 0))\n"  # libraries have started their threads
                   "before = len(os.listdir('/proc/self/task'))\n"
                   "packed = [gemmtune.torch.pack(one) for one in (w, w.bfloat16())]\n"
                   "for one in packed: gemmtune.torch.linear(x.to(w.dtype if one is packed[0] else torch.bfloat16), one)\n"
                   "for dtype in (torch.float32, torch.bfloat16): torch.ops.gemmtune.linear(x.to(dtype), w.to(dtype))\n"
                   "gemmtune.linear(x, w, kernel='tiled')\n"
                   "print(context.device()['team'], len(os.listdir('/proc/self/task')) - before)\n")
        for team, expected in (("auto", "openmp 0\n"), ("openmp", "openmp 0\n"), ("own", "own")):
            done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=120,
                                  env={**os.environ, "GEMMTUNE_TEAM": team})
            self.assertTrue(done.stdout.startswith(expected), (team, done.stdout, done.stderr))

    def test_a_new_thread_has_as_many_threads_as_torch_says(self):
        program = ("import os, threading, torch, gemmtune.torch\n"
                   "torch.set_num_threads(1)\n"
                   "x, w = torch.randn(64, 1024), torch.randn(2048, 1024)\n"
                   "gemmtune.linear(x, w, kernel='tiled')\n"
                   "before = len(os.listdir('/proc/self/task'))\n"
                   "def work():\n"
                   "    gemmtune.linear(x, w, kernel='tiled')\n"
                   "    print(len(os.listdir('/proc/self/task')) - before)\n"
                   "thread = threading.Thread(target=work)\n"
                   "thread.start(); thread.join()\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=120,
                              env={**os.environ, "GEMMTUNE_TEAM": "auto", "OMP_NUM_THREADS": "2"})
        self.assertEqual(done.stdout, "1\n", done.stderr)

    def test_fork_after_import(self):
        program = ("import os, torch, gemmtune.torch\n"
                   "child = os.fork()\n"
                   "right = bool((torch.ops.gemmtune.linear(torch.ones(2, 64), torch.ones(8, 64)) == 64).all())\n"
                   "if child == 0: os._exit(0 if right else 1)\n"
                   "assert right and os.waitpid(child, 0)[1] == 0\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_fork_after_use(self):
        x, w = torch.ones(2, 64), torch.ones(8, 64)
        ops.linear(x, w)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if bool((ops.linear(x, w) == 64).all()) else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(bool((ops.linear(x, w) == 64).all()))

    def test_fork_after_a_parallel_operation_of_torch(self):
        program = ("import os, torch, gemmtune.torch\n"
                   "torch.nn.functional.silu(torch.randn(1 << 20))\n"
                   "x, w, y = torch.ones(64, 1024), torch.ones(2048, 1024), torch.zeros(64, 2048)\n"
                   "if os.fork() == 0:\n"  # parallel operations of PyTorch's own would wait for ever here
                   "    torch.ops.gemmtune.linear_out(x, w, out=y)\n"
                   "    os._exit(0 if y.numpy().min() == y.numpy().max() == 1024 else 1)\n"
                   "assert os.wait()[1] == 0\n")
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_torch_without_the_functions(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "torch").mkdir()
            (Path(folder) / "torch" / "__init__.py").write_text("__version__ = '1.13.0'\n")
            done = subprocess.run([sys.executable, "-c", "import gemmtune.torch"], capture_output=True, text=True, check=False,
                                  env={**os.environ, "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"})
        self.assertIn("TorchTooOld: PyTorch 1.13.0 has no libtorch_cpu.so, which gemmtune's operators need; expected PyTorch 2.9 or "
                      "later", done.stderr)


if __name__ == "__main__":
    unittest.main()
