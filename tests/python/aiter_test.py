"""AITER's names over gemmtune's operations, on tensors of a CPU; each result against float64."""

import inspect
import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIPPED: this Python has no PyTorch (GEMMTUNE_TEST_PYTHON names another)")
    sys.exit(77)

from torch.nn import functional
from torch_models import close, random_fp8

import gemmtune
import gemmtune.aiter as aiter
from gemmtune import errors
from gemmtune.aiter.fused_moe import fused_moe

torch.manual_seed(1)


def layer(tokens, w1, w2, weights, ids, mask=None, activation=functional.silu):
    """A mixture of experts in float64; slots of experts that are not in `mask` add nothing."""
    y = torch.zeros(len(tokens), w2.shape[1], dtype=torch.float64)
    inter = w2.shape[2]
    for token, slot in ((t, s) for t in range(len(tokens)) for s in range(ids.shape[1])):
        expert = int(ids[token, slot])
        if mask is None or mask[expert]:
            both = w1[expert].double() @ tokens[token].double()
            y[token] += weights[token, slot].double() * (w2[expert].double() @ (activation(both[:inter]) * both[inter:]))
    return y


class Dense(unittest.TestCase):
    def test_products_of_16_bits(self):
        x, w, bias = torch.randn(2, 3, 96).bfloat16(), torch.randn(40, 96).bfloat16(), torch.randn(40)
        exact = x.double() @ w.double().T
        close(self, aiter.tuned_gemm.gemm_a16w16(x, w), exact, 1e-2)
        y = aiter.tuned_gemm.tgemm.mm(x, w, bias, torch.float32)
        self.assertEqual(y.dtype, torch.float32)
        close(self, y, exact + bias.double(), 1e-5)
        with self.assertRaisesRegex(errors.Unsupported, "scale_c is given"):
            aiter.gemm_a16w16(x, w, scale_c=bias)

    def test_a_missing_scale_of_fp8_is_one(self):
        x, w = random_fp8((3, 64)), random_fp8((16, 64))
        exact = x.double() @ w.double().T
        close(self, aiter.gemm_a16w16(x, w, scale_b=torch.tensor([0.5])), exact / 2, 1e-2)
        close(self, aiter.gemm_a16w16(x, w), exact, 1e-2)

    def test_rows_of_8_bits(self):
        x, w = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((6, 384), (256, 384)))
        x_scale, w_scale, bias = torch.rand(6, 1) / 64, torch.rand(1, 256) / 64, torch.randn(1, 256)
        exact = (x.double() * x_scale.double()) @ (w.double() * w_scale.double().T).T + bias.double()
        for function in (aiter.gemm_a8w8, aiter.gemm_a8w8_CK, aiter.gemm_a8w8_bpreshuffle):
            close(self, function(x, w, x_scale, w_scale, bias), exact, 2e-2)
        close(self, aiter.gemm_a8w8(x, w, x_scale, w_scale, bias, torch.float16, splitK=2), exact, 4e-3)

    def test_blocks_with_scales_in_rows_or_in_columns(self):
        x, w, x_scale, w_scale = random_fp8((6, 384)), random_fp8((256, 384)), torch.rand(6, 3), torch.rand(2, 3)
        exact = (x.double() * x_scale.double().repeat_interleave(128, 1)) @ (
            w.double() * w_scale.double().repeat_interleave(128, 0).repeat_interleave(128, 1)).T
        close(self, aiter.gemm_a8w8_blockscale(x, w, x_scale, w_scale), exact, 1e-2)
        columns = x_scale.t().contiguous().t()
        close(self, aiter.gemm_a8w8_blockscale_bpreshuffle(x, w, columns, w_scale, torch.float16), exact, 2e-3)

    def test_mxfp4_with_padded_scales(self):
        x, w = (torch.randint(0, 256, shape, dtype=torch.uint8) for shape in ((3, 64), (32, 64)))
        x_scale, w_scale = (torch.full((256, 8), 200, dtype=torch.uint8) for _ in range(2))
        x_scale[:3, :4], w_scale[:32, :4] = torch.randint(120, 130, (3, 4)), torch.randint(120, 130, (32, 4))
        expected = gemmtune.a4w4_blockscale(x, w, x_scale[:3, :4].contiguous(), w_scale[:32, :4].contiguous())
        self.assertTrue(torch.equal(aiter.gemm_a4w4(x, w, x_scale, w_scale), expected))
        out = torch.empty(3, 32, dtype=torch.bfloat16)
        self.assertIs(aiter.gemm_a4w4_blockscale(x, w, x_scale, w_scale, out), out)
        self.assertTrue(torch.equal(out, expected))
        with self.assertRaisesRegex(errors.Unsupported, "alpha is 2.0"):
            aiter.gemm_a4w4(x, w, x_scale, w_scale, alpha=2.0)

    def test_batches(self):
        x, w = torch.randn(2, 3, 64).bfloat16(), torch.randn(2, 16, 64).bfloat16()
        out = torch.empty(2, 3, 16, dtype=torch.bfloat16)
        exact = torch.bmm(x.double(), w.double().mT)
        close(self, aiter.batched_gemm_bf16(x, w, out, splitK=1), exact, 1e-2)
        close(self, aiter.batched_gemm_bf16_CK(x, w), exact, 1e-2)
        i, j = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((2, 3, 64), (2, 16, 64)))
        si, sj = torch.rand(2, 3, 1) / 64, torch.rand(2, 1, 16) / 64
        exact = torch.bmm(i.double() * si.double(), (j.double() * sj.double().mT).mT)
        close(self, aiter.batched_gemm_a8w8(i, j, si, sj, out), exact, 1e-2)
        close(self, aiter.batched_gemm_a8w8_CK(i, j, si, sj), exact, 1e-2)


class Mixtures(unittest.TestCase):
    tokens, experts, model, inter, topk = 5, 8, 128, 64, 2

    def setUp(self):
        self.x = torch.randn(self.tokens, self.model).bfloat16()
        self.w1 = (torch.randn(self.experts, 2 * self.inter, self.model) / 8).bfloat16()
        self.w2 = (torch.randn(self.experts, self.model, self.inter) / 8).bfloat16()
        self.weights = torch.rand(self.tokens, self.topk)
        self.ids = torch.stack([torch.randperm(self.experts)[:self.topk] for _ in range(self.tokens)]).int()

    def test_bf16(self):
        close(self, fused_moe(self.x, self.w1, self.w2, self.weights, self.ids), layer(self.x, self.w1, self.w2, self.weights, self.ids), 2e-2)

    def test_tokens_are_quantized_to_the_weights_type(self):
        exact = layer(self.x, self.w1, self.w2, self.weights, self.ids)
        scales = [w.float().abs().amax(-1, keepdim=True) / 448 for w in (self.w1, self.w2)]
        w1, w2 = ((w.float() / s).to(torch.float8_e4m3fn) for w, s in zip((self.w1, self.w2), scales))
        y = fused_moe(self.x, w1, w2, self.weights, self.ids, quant_type=aiter.QuantType.per_Token, w1_scale=scales[0], w2_scale=scales[1])
        close(self, y, exact, 8e-2)
        self.assertEqual(y.dtype, torch.bfloat16)

    def test_slots_of_other_experts_add_nothing(self):
        mask = torch.tensor([1, 0, 1, 1, 0, 1, 1, 1])
        here = mask.bool()
        y = fused_moe(self.x, self.w1[here].contiguous(), self.w2[here].contiguous(), self.weights, self.ids, expert_mask=mask)
        close(self, y, layer(self.x, self.w1, self.w2, self.weights, self.ids, mask), 2e-2)

    def test_what_would_change_the_result_is_refused(self):
        for argument in ({"a2_scale": torch.ones(1)}, {"hidden_pad": 128}, {"num_local_tokens": torch.tensor([3])}):
            with self.assertRaisesRegex(errors.Unsupported, next(iter(argument))):
                fused_moe(self.x, self.w1, self.w2, self.weights, self.ids, **argument)


class Solutions(unittest.TestCase):
    def test_a_solution_by_index(self):
        x, w, bias = torch.randn(3, 64), torch.randn(16, 64), torch.randn(16)
        exact = x.double() @ w.double().T
        aiter.hipb_create_extension()
        close(self, aiter.hipb_mm(x, w.t(), 0), exact, 1e-6)
        close(self, aiter.hipb_mm(x, w.t(), -1, bias), exact + bias.double(), 1e-6)
        with self.assertRaises(errors.NotFound):
            aiter.hipb_mm(x, w.t(), 100000)
        aiter.hipb_destroy_extension()


class Signatures(unittest.TestCase):
    def test_begin_as_aiters_do(self):
        expected = {
            aiter.gemm_a16w16: "A B bias otype scale_a scale_b scale_c",
            aiter.tgemm.mm: "inp weights bias otype scale_a scale_b scale_c",
            aiter.gemm_a8w8: "XQ WQ x_scale w_scale bias dtype splitK",
            aiter.gemm_a8w8_bpreshuffle: "XQ WQ x_scale w_scale bias dtype check",
            aiter.gemm_a8w8_blockscale: "XQ WQ x_scale w_scale dtype isBpreshuffled",
            aiter.gemm_a8w8_blockscale_bpreshuffle: "XQ WQ x_scale w_scale dtype",
            aiter.gemm_a4w4: "A B A_scale B_scale bias dtype alpha beta bpreshuffle apreshuffle global_A_scale global_B_scale",
            aiter.batched_gemm_bf16: "XQ WQ out bias splitK",
            aiter.batched_gemm_a8w8: "XQ WQ x_scale w_scale out bias splitK",
            aiter.hipb_mm: "mat1 mat2 solution_index bias out_dtype scaleA scaleB scaleOut bpreshuffle use_gelu",
            fused_moe: "hidden_states w1 w2 topk_weight topk_ids expert_mask activation quant_type doweight_stage1 w1_scale w2_scale a1_scale "
                       "a2_scale block_size_M num_local_tokens moe_sorting_dispatch_policy dtype hidden_pad intermediate_pad bias1 bias2 splitk",
        }
        for function, names in expected.items():
            self.assertEqual(list(inspect.signature(function).parameters), names.split(), function)

    def test_types(self):
        self.assertIs(aiter.dtypes.bf16, torch.bfloat16)
        self.assertIs(aiter.dtypes.fp8, torch.float8_e4m3fn)
        with self.assertRaisesRegex(AttributeError, "expected one of"):
            aiter.dtypes.fp7
        self.assertEqual(int(aiter.QuantType.per_1x128), 4)


if __name__ == "__main__":
    unittest.main()
