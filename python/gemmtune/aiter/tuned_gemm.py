"""aiter.tuned_gemm: 16-bit products, and fp8 with one scale for each operand."""

from .. import operations
from .._arrays import read
from ._words import is_torch, of_result_type, refuse, type_word


def _one(like):
    if is_torch(like):
        import torch
        return torch.ones(1, dtype=torch.float32, device=like.device)
    import numpy
    return numpy.ones(1, numpy.float32)


def gemm_a16w16(A, B, bias=None, otype=None, scale_a=None, scale_b=None, scale_c=None):
    """y [..., N] = A [..., K] · Bᵀ (+ bias [N]), B [N, K] or a PackedWeight, in otype (default: A's type; bf16 of fp8). With fp8
    operands a scale that is missing is 1. scale_c is refused."""
    refuse("scale_c", scale_c)
    kind = read("A", A).type
    scaled = kind.startswith("f8") or scale_a is not None or scale_b is not None
    result = type_word(otype) or ("bf16" if scaled else kind)
    scales = {}
    if scaled:
        scales = {"x_scale": _one(A) if scale_a is None else scale_a.reshape(-1), "w_scale": _one(A) if scale_b is None else scale_b.reshape(-1)}
    return operations.linear(A, B, of_result_type(bias, result, A), out_dtype=None if result == kind else result, **scales)


class TunedGemm:
    """AITER's object with mm()."""

    def mm(self, inp, weights, bias=None, otype=None, scale_a=None, scale_b=None, scale_c=None):
        """gemm_a16w16() under its older name."""
        return gemm_a16w16(inp, weights, bias, otype, scale_a, scale_b, scale_c)


tgemm = TunedGemm()
