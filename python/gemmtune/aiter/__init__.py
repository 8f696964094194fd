"""AITER's Python names over gemmtune's operations, on PyTorch tensors of a CPU or a GPU (numpy arrays where AITER quantizes
nothing). Manual: docs/coming_from_aiter.md.

    import gemmtune.aiter as aiter
    y = aiter.tuned_gemm.gemm_a16w16(x, weight)
    y = aiter.tuned_gemm.tgemm.mm(x, weight, bias)

Signatures are those of AITER in August 2026. Arguments that choose AITER's own kernels (splitK, check, block_size_M, the
dispatch policy) are taken and have no effect: the tuned files of gemmtune choose. Packed weights come from shuffle_weight(),
which gives a gemmtune.PackedWeight; weights and scales in AITER's own shuffled bytes are not known as such."""

from . import dtypes, fused_moe, tuned_gemm
from ._words import ActivationType, QuantType
from .gemm import (batched_gemm_a8w8, batched_gemm_a8w8_CK, batched_gemm_bf16, batched_gemm_bf16_CK, gemm_a4w4, gemm_a4w4_blockscale,
                   gemm_a8w8, gemm_a8w8_blockscale, gemm_a8w8_blockscale_bpreshuffle, gemm_a8w8_bpreshuffle, gemm_a8w8_CK,
                   shuffle_weight)
from .solutions import hipb_create_extension, hipb_destroy_extension, hipb_mm
from .tuned_gemm import gemm_a16w16, tgemm

__all__ = ["ActivationType", "QuantType", "batched_gemm_a8w8", "batched_gemm_a8w8_CK", "batched_gemm_bf16", "batched_gemm_bf16_CK",
           "dtypes", "fused_moe", "gemm_a16w16", "gemm_a4w4", "gemm_a4w4_blockscale", "gemm_a8w8", "gemm_a8w8_CK",
           "gemm_a8w8_blockscale", "gemm_a8w8_blockscale_bpreshuffle", "gemm_a8w8_bpreshuffle", "hipb_create_extension", "hipb_destroy_extension", "hipb_mm", "shuffle_weight", "tgemm",
           "tuned_gemm"]
