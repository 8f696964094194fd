"""AITER's products of quantized and of batched operands."""

from .. import operations
from ..errors import InvalidArgument
from ._words import flat, is_torch, of_result_type, refuse, type_word


def shuffle_weight(x, layout=(16, 16), use_int4=False, *, operation="a8w8_bpreshuffle"):
    """The weight [N, K] packed as the tuned files of its device ask for `operation`: a PackedWeight, or x itself where they ask for
    the plain layout. `layout` names AITER's own layout and has no effect."""
    refuse("use_int4", use_int4, (False,))
    return operations.pack(x, operation=operation)


def gemm_a8w8(XQ, WQ, x_scale, w_scale, bias=None, dtype="bf16", splitK=None):
    """int8 or fp8: XQ [M, K], WQ [N, K], x_scale [M, 1], w_scale [1, N] (or [M] and [N], or one for all)."""
    result = type_word(dtype)
    return operations.a8w8(XQ, WQ, flat(x_scale), flat(w_scale), of_result_type(bias, result, XQ), out_dtype=result)


gemm_a8w8_CK = gemm_a8w8


def gemm_a8w8_bpreshuffle(XQ, WQ, x_scale, w_scale, bias=None, dtype="bf16", check=False):
    """gemm_a8w8() with a weight of shuffle_weight()."""
    return gemm_a8w8(XQ, WQ, x_scale, w_scale, bias, dtype)


def gemm_a8w8_blockscale(XQ, WQ, x_scale, w_scale, dtype="bf16", isBpreshuffled=False):
    """fp8 with scales of blocks: x_scale [M, ceil(K/128)], in rows or in columns, w_scale [ceil(N/128), ceil(K/128)].
    isBpreshuffled asks for a weight of shuffle_weight(…, operation="a8w8_blockscale_bpreshuffle")."""
    if not isBpreshuffled and isinstance(WQ, operations.PackedWeight):
        raise InvalidArgument("WQ is packed and isBpreshuffled is False")
    return operations.a8w8_blockscale(XQ, WQ, _dense(x_scale), _dense(w_scale), out_dtype=type_word(dtype))


def gemm_a8w8_blockscale_bpreshuffle(XQ, WQ, x_scale, w_scale, dtype="bf16"):
    """gemm_a8w8_blockscale() with a weight of shuffle_weight(…, operation="a8w8_blockscale_bpreshuffle")."""
    return gemm_a8w8_blockscale(XQ, WQ, x_scale, w_scale, dtype, isBpreshuffled=isinstance(WQ, operations.PackedWeight))


def gemm_a4w4(A, B, A_scale, B_scale, bias=None, dtype="bf16", alpha=1.0, beta=0.0, bpreshuffle=True, apreshuffle=False,
              global_A_scale=None, global_B_scale=None):
    """MXFP4: A [M, K/2] and B [N, K/2] of bytes with two elements each, e8m0 scales A_scale [M, K/32] and B_scale [N, K/32] in
    plain order; rows and columns of padding behind them are left out. bias, alpha, beta and NVFP4's global scales are refused."""
    refuse("bias", bias)
    refuse("alpha", alpha, (1.0, None))
    refuse("beta", beta, (0.0, None))
    refuse("apreshuffle", apreshuffle, (False,))
    refuse("global_A_scale", global_A_scale)
    refuse("global_B_scale", global_B_scale)
    A, B = _bytes(A), _bytes(B)
    columns = A.shape[-1] // 16
    return operations.a4w4_blockscale(A, B, _dense(_bytes(A_scale)[:A.shape[0], :columns]), _dense(_bytes(B_scale)[:B.shape[0], :columns]),
                                      out_dtype=type_word(dtype))


def gemm_a4w4_blockscale(XQ, WQ, x_scale, w_scale, out, splitK=0):
    """gemm_a4w4() into out [M, N]."""
    out[...] = gemm_a4w4(XQ, WQ, x_scale, w_scale, dtype=out.dtype)
    return out


def batched_gemm_bf16(XQ, WQ, out, bias=None, splitK=0):
    """bf16: out [B, M, N] = XQ [B, M, K] · WQ [B, N, K]ᵀ (+ bias [N])."""
    return operations.batched_bf16(XQ, WQ, bias, out)


def batched_gemm_bf16_CK(XQ, WQ, bias=None, dtype="bf16", splitK=None):
    """batched_gemm_bf16() into a new array. Results of another type than bf16 are refused."""
    refuse("dtype", type_word(dtype), ("bf16",))
    return operations.batched_bf16(XQ, WQ, bias)


def batched_gemm_a8w8(XQ, WQ, x_scale, w_scale, out, bias=None, splitK=0):
    """int8 or fp8: XQ [B, M, K], WQ [B, N, K], x_scale [B, M, 1], w_scale [B, 1, N] (or [B, M] and [B, N]), out [B, M, N]."""
    batch = XQ.shape[0]
    return operations.batched_a8w8(XQ, WQ, x_scale.reshape(batch, -1), w_scale.reshape(batch, -1), bias, out)


def batched_gemm_a8w8_CK(XQ, WQ, x_scale, w_scale, bias=None, dtype="bf16", splitK=None):
    """batched_gemm_a8w8() into a new array of bf16."""
    refuse("dtype", type_word(dtype), ("bf16",))
    batch = XQ.shape[0]
    return operations.batched_a8w8(XQ, WQ, x_scale.reshape(batch, -1), w_scale.reshape(batch, -1), bias)


def _dense(scale):
    if is_torch(scale):
        return scale.contiguous()
    import numpy
    return numpy.ascontiguousarray(scale)


def _bytes(array):
    """fp4x2 and e8m0 of PyTorch as bytes: its slices and copies know few other types."""
    if is_torch(array):
        import torch
        return array.view(torch.uint8)
    return array
