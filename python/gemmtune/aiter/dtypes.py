"""AITER's names of types: PyTorch's dtypes where PyTorch is loaded, else gemmtune's words. fp8 is that of the AMD GPU whose context
is in use (e4m3fnuz on gfx942), else e4m3fn, what CPUs and NVIDIA's GPUs have."""

import sys

from .. import contexts

_words = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "fp8": "f8_e4m3fn", "fp8_fnuz": "f8_e4m3fnuz", "i8": "i8", "u8": "u8", "i32": "i32"}
_torch_names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "float8_e4m3fn", "fp8_fnuz": "float8_e4m3fnuz",
                "i8": "int8", "u8": "uint8", "i32": "int32"}


def _fp8():
    """Of the AMD GPU that gemmtune.use() made current, if any."""
    for (kind, _), context in list(contexts._current.items()):
        if kind == "hip":
            return context.type("fp8")
    return "f8_e4m3fn"


def __getattr__(name):
    if name not in _words:
        raise AttributeError(f"module 'gemmtune.aiter.dtypes' has no attribute '{name}', expected one of {', '.join(_words)}")
    if name == "fp8" and _fp8() == "f8_e4m3fnuz":
        name = "fp8_fnuz"
    torch = sys.modules.get("torch")
    return _words[name] if torch is None else getattr(torch, _torch_names[name])


def __dir__():
    return sorted(_words)
