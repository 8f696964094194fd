"""gemmtune: finds the fastest verified kernel for every GEMM of a model and dispatches to it. Manual: docs/python.md.

    import gemmtune
    gemmtune.tune([(16, 2048, 8192)], "tuned.csv", indtype="bf16")
    gemmtune.use("tuned.csv")
    y = gemmtune.linear(x, w)
"""

from . import errors
from ._arrays import as_type
from ._folders import data
from ._library import cublas_library
from ._library import lib as _lib
from .commands import audit, bench, convert, lookup, report, tune
from .contexts import Context, flush_capture, reload, sources, use
from .errors import Error
from .operations import (PackedWeight, a16w4, a16w4_int4, a16w4_nvfp4, a4w4_blockscale, a4w4_nvfp4, a8w4, a8w4_int4, a8w4_nvfp4, a8w8,
                         a8w8_blockscale, batched_a8w8, batched_bf16, fused_moe, linear, pack, problem, unpack)

__version__ = _lib.gemmtune_version().decode()
__all__ = ["Context", "Error", "PackedWeight", "a16w4", "a16w4_int4", "a16w4_nvfp4", "a4w4_blockscale", "a4w4_nvfp4", "a8w4", "a8w4_int4",
           "a8w4_nvfp4", "a8w8", "a8w8_blockscale", "as_type", "audit", "batched_a8w8",
           "batched_bf16", "bench", "convert", "cublas_library", "data", "errors", "flush_capture", "fused_moe", "linear", "lookup", "pack", "problem", "reload", "report", "sources", "tune",
           "unpack", "use"]
