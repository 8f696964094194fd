"""libgemmtune by ctypes: include/gemmtune/c.h as Python sees it. tests/python/layout_test.py compares the two."""

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

from ._folders import folder
from .errors import NotFound, error_of

operations = ("a16w16", "a8w8", "a8w8_bpreshuffle", "a8w8_blockscale", "a8w8_blockscale_bpreshuffle", "a4w4_blockscale",
              "batched_bf16", "batched_a8w8", "fused_moe", "a16w4", "a8w4", "a16w4_nvfp4", "a8w4_nvfp4", "a4w4_nvfp4",
              "a16w4_int4", "a8w4_int4")
# Operations on weights of 4 bits: the weight's type, and the type of x that they have by default.
weight_formats = {"a4w4_blockscale": ("f4_e2m1", "f4_e2m1"), "a16w4": ("f4_e2m1", "bf16"), "a8w4": ("f4_e2m1", "f8_e4m3fn"),
                  "a16w4_nvfp4": ("f4_e2m1", "bf16"), "a8w4_nvfp4": ("f4_e2m1", "f8_e4m3fn"), "a4w4_nvfp4": ("f4_e2m1", "f4_e2m1"),
                  "a16w4_int4": ("i4", "bf16"), "a8w4_int4": ("i4", "i8")}
types = ("unset", "f32", "f16", "bf16", "f8_e4m3fn", "f8_e4m3fnuz", "i8", "f4_e2m1", "u8", "i4")
quant_types = ("none", "per_tensor", "per_token", "per_1x32", "per_1x128", "per_128x128", "per_1x16", "per_group")
activations = ("none", "silu", "gelu", "swiglu", "situv2")
matches = ("exact", "range", "fine", "coarse", "untuned", "bucket", "fewer_threads")

plain, any_layout = 0, 1
array_i32 = 0x1000  # the type of topk_ids


class _Sized(Structure):
    """A structure of the C interface, which begins with its own size."""

    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(type(self)), **members)


class TunedFiles(Structure):
    _fields_ = [("operation", c_int32), ("paths", c_char_p)]


class ContextOptions(_Sized):
    _fields_ = [("size", c_size_t), ("config_folder", c_char_p), ("tuned_files", POINTER(TunedFiles)),
                ("tuned_file_count", c_size_t), ("backend", c_char_p), ("device", c_char_p), ("threads", c_int32),
                ("strict_environment", c_int32), ("log_config", c_int32), ("capture", c_int32), ("capture_folder", c_char_p),
                ("parallel_for", c_void_p), ("parallel_for_context", c_void_p), ("log", c_void_p), ("log_context", c_void_p),
                ("verify_untuned", c_int32), ("own_threads_only", c_int32)]


class DeviceInfo(_Sized):
    _fields_ = [("size", c_size_t), ("backend", c_char_p), ("name", c_char_p), ("model", c_char_p), ("gfx", c_char_p),
                ("cu_num", c_int32), ("team", c_char_p)]


class Counters(_Sized):
    _fields_ = [("size", c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "exact", "range", "fine", "coarse", "untuned", "other_environment", "plans_made", "invalid_rows", "bucket", "fewer_threads")]


class Source(_Sized):
    _fields_ = [("size", c_size_t), ("operation", c_int32), ("path", c_char_p), ("named", c_int32), ("online", c_int32),
                ("rows", c_size_t), ("left_out", c_size_t), ("own_rows", c_size_t), ("other_environment_rows", c_size_t),
                ("fewer_threads_rows", c_size_t), ("devices", c_char_p), ("unused", c_char_p), ("shipped", c_int32)]


class Moe(_Sized):
    _fields_ = [("size", c_size_t), ("experts", c_int32), ("topk", c_int32), ("activation", c_int32), ("quant_type", c_int32),
                ("gated", c_int32), ("doweight_stage1", c_int32), ("shared_experts", c_int32)]


class Problem(_Sized):
    _fields_ = [("size", c_size_t), ("operation", c_int32), ("x_type", c_int32), ("w_type", c_int32), ("y_type", c_int32),
                ("m", c_int64), ("n", c_int64), ("k", c_int64), ("batch", c_int64), ("bias", c_int32), ("scale_ab", c_int32),
                ("weight_layout", c_int32), ("alignment", c_int32), ("moe", POINTER(Moe)), ("constant_weights", c_int32),
                ("predecessor_triggers", c_int32), ("x_order", c_int32), ("w_order", c_int32), ("e8m0_scales", c_int32),
                ("w_group", c_int32), ("zero_points", c_int32)]


class MoeOperands(_Sized):
    _fields_ = [("size", c_size_t), ("w2", c_void_p), ("w2_scale", c_void_p), ("topk_ids", c_void_p), ("topk_weights", c_void_p),
                ("bias2", c_void_p), ("w2_global_scale", c_void_p), ("w2_zero_points", c_void_p)]


class Operands(_Sized):
    _fields_ = [("size", c_size_t), ("x", c_void_p), ("w", c_void_p), ("bias", c_void_p), ("y", c_void_p), ("ldx", c_int64),
                ("ldy", c_int64), ("x_scale", c_void_p), ("w_scale", c_void_p), ("x_scale_per_tensor", c_int32),
                ("w_scale_per_tensor", c_int32), ("x_batch_stride", c_int64), ("y_batch_stride", c_int64),
                ("moe", POINTER(MoeOperands)), ("x_global_scale", c_void_p), ("w_global_scale", c_void_p),
                ("w_zero_points", c_void_p)]


class Array(Structure):
    _fields_ = [("data", c_void_p), ("type", c_int32), ("dimensions", c_int32), ("sizes", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("read_only", c_int32)]


class Arrays(_Sized):
    _fields_ = [("size", c_size_t)] + [(name, POINTER(Array)) for name in (
        "x", "w", "out", "bias", "x_scale", "w_scale", "w2", "w2_scale", "bias2", "topk_ids", "topk_weights")] + [
            ("moe", POINTER(Moe)), ("moe_operands", POINTER(MoeOperands))] + [(name, POINTER(Array)) for name in (
                "x_global_scale", "w_global_scale", "w_zero_points", "w2_global_scale", "w2_zero_points")]


class PlanInfo(_Sized):
    _fields_ = [("size", c_size_t), ("match", c_int32), ("other_environment", c_int32), ("hit_m", c_int64),
                ("kernel_name", c_char_p), ("family", c_char_p), ("rule", c_char_p), ("file", c_char_p), ("line", c_size_t),
                ("workspace_bytes", c_size_t), ("weight_layout", c_int32), ("fallback_erratum", c_int32),
                ("bits", c_char_p)]


Visitor = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Source))
Log = ctypes.CFUNCTYPE(None, c_void_p, ctypes.c_int, c_char_p)

structures = {"gemmtune_source": Source, "gemmtune_tuned_files": TunedFiles, "gemmtune_context_options": ContextOptions,
              "gemmtune_device_info": DeviceInfo, "gemmtune_counters": Counters, "gemmtune_moe": Moe, "gemmtune_problem": Problem,
              "gemmtune_array": Array, "gemmtune_arrays": Arrays, "gemmtune_moe_operands": MoeOperands,
              "gemmtune_operands": Operands, "gemmtune_plan_info": PlanInfo}

_handle = c_void_p
_functions = {
    "gemmtune_context_create": (POINTER(ContextOptions), POINTER(_handle)),
    "gemmtune_context_reload": (_handle,),
    "gemmtune_context_sources": (_handle, c_char_p, c_size_t, POINTER(c_size_t)),
    "gemmtune_context_visit_sources": (_handle, Visitor, c_void_p),
    "gemmtune_context_device": (_handle, POINTER(DeviceInfo)),
    "gemmtune_context_type": (_handle, c_char_p, POINTER(c_int32)),
    "gemmtune_context_counters": (_handle, POINTER(Counters)),
    "gemmtune_capture_flush": (_handle,),
    "gemmtune_plan_create": (_handle, POINTER(Problem), POINTER(_handle)),
    "gemmtune_plan_create_tuned": (_handle, POINTER(Problem), POINTER(_handle)),
    "gemmtune_plan_create_named": (_handle, POINTER(Problem), c_char_p, c_int32, POINTER(_handle)),
    "gemmtune_plan_run": (_handle, POINTER(Operands), c_void_p, c_void_p),
    "gemmtune_plan_get_info": (_handle, POINTER(PlanInfo)),
    "gemmtune_gemm": (_handle, POINTER(Problem), POINTER(Operands), c_void_p),
    "gemmtune_read_arrays": (POINTER(Arrays), POINTER(Problem), POINTER(Operands), POINTER(POINTER(Array))),
    "gemmtune_weight_layout": (_handle, POINTER(Problem), POINTER(c_int32)),
    "gemmtune_packed_weight_bytes": (_handle, POINTER(Problem), c_int32, POINTER(c_size_t)),
    "gemmtune_pack_weight": (_handle, POINTER(Problem), c_int32, c_void_p, c_void_p),
    "gemmtune_unpack_weight": (_handle, POINTER(Problem), c_int32, c_void_p, c_void_p),
}


def library_path(name):
    """The file of one of our libraries: of this package, else of the folder that GEMMTUNE_LIBRARY_DIR names."""
    places = [folder / "lib" / name]
    if os.environ.get("GEMMTUNE_LIBRARY_DIR"):
        places.append(Path(os.environ["GEMMTUNE_LIBRARY_DIR"]) / name)
    for place in places:
        if place.is_file():
            return str(place)
    raise NotFound(f"{name} is missing: expected it in {' or '.join(str(place.parent) for place in places)}; was the package "
                   "installed by pip?")


def cublas_library():
    """The path of the library that stands in for cuBLAS in an unchanged program: LD_PRELOAD (docs/cublas.md)."""
    return library_path("libgemmtune_cublas.so")


def _load():
    opened = ctypes.CDLL(library_path("libgemmtune.so.0"))
    opened.gemmtune_last_error.restype = c_char_p
    opened.gemmtune_version.restype = c_char_p
    opened.gemmtune_layout_text.restype = c_char_p
    opened.gemmtune_layout_text.argtypes = (c_int32,)
    opened.gemmtune_set_log.restype = None
    opened.gemmtune_set_log.argtypes = (Log, c_void_p)
    opened.gemmtune_plan_release.restype = None
    opened.gemmtune_plan_release.argtypes = (_handle,)
    opened.gemmtune_context_destroy.restype = None
    opened.gemmtune_context_destroy.argtypes = (_handle,)
    for name, arguments in _functions.items():
        function = getattr(opened, name)
        function.argtypes = arguments
        function.restype = c_int32
    return opened


lib = _load()


def check(status):
    """Raises the error of a gemmtune_status that is not ok."""
    if status:
        raise error_of(status, lib.gemmtune_last_error().decode(errors="replace"))
