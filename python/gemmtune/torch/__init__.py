"""gemmtune for PyTorch: torch.ops.gemmtune.*, patched models, capture. Manual: docs/pytorch.md.

    import gemmtune.torch
    y = torch.ops.gemmtune.linear(x, weight, bias)
    patched = gemmtune.torch.patch(model)      # and patched.undo()
    print(patched)                             # layers, tuned sizes, what was left alone and why
    print(gemmtune.torch.compare(model, x, patched=patched))
"""

from ._operators import (a16w4, a16w4_int4, a16w4_nvfp4, a4w4_blockscale, a4w4_nvfp4, a8w4, a8w4_int4, a8w4_nvfp4, a8w8, a8w8_blockscale, batched_a8w8, batched_bf16, fused_moe, linear, pack,
                         register_inductor, silu_and_mul, unpack)
from .capture import capture
from .compare import Comparison, compare
from .invariant import Invariance, check_invariant
from .patch import Patch, patch, warm
from .tunableop import write_tunableop

__all__ = ["Comparison", "Invariance", "Patch", "a16w4", "a16w4_int4", "a16w4_nvfp4", "a4w4_blockscale", "a4w4_nvfp4", "a8w4", "a8w4_int4", "a8w4_nvfp4", "a8w8", "a8w8_blockscale", "batched_a8w8", "batched_bf16", "capture", "check_invariant", "compare", "fused_moe", "linear",
           "pack", "patch", "register_inductor", "silu_and_mul", "unpack", "warm", "write_tunableop"]
