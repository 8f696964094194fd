"""From AITER's arguments to gemmtune's words."""

import enum

from .. import _arrays
from ..errors import Unsupported, WrongType


class ActivationType(enum.IntEnum):
    No = -1
    Silu = 0
    Gelu = 1
    Swiglu = 2


class QuantType(enum.IntEnum):
    No = 0
    per_Tensor = 1
    per_Token = 2
    per_1x32 = 3
    per_1x128 = 4
    per_128x128 = 5


def type_word(dtype):
    """gemmtune's word for a dtype of PyTorch or numpy, or for a word; None stays."""
    if dtype is None or isinstance(dtype, str) and dtype in ("bf16", "f16", "f32"):
        return dtype
    name = getattr(dtype, "__name__", None) or str(dtype)
    word = _arrays._by_name.get(name.rpartition(".")[2])
    if word is None:
        raise WrongType(f"dtype is {dtype}, expected bfloat16, float16 or float32")
    return word


def is_torch(array):
    return type(array).__module__.partition(".")[0] == "torch"


def refuse(name, value, neutral=(None,)):
    """An argument that would change the result and that gemmtune does not have."""
    if not any(value is one or (isinstance(value, (int, float)) and value == one) for one in neutral):
        given = repr(value) if isinstance(value, (int, float, str)) else "given"
        raise Unsupported(f"{name} is {given}: gemmtune has no such operation, expected {' or '.join(map(repr, neutral))}")


def flat(scale):
    """Scales [M, 1], [1, N] or [N] as [N]; one alone stays one."""
    return scale if scale is None else scale.reshape(-1)


def of_result_type(bias, type, like):
    """A bias [N] or [1, N] in the result's type: gemmtune adds it in float32, in which AITER's float32 biases are exact until here."""
    if bias is None:
        return None
    bias = bias.reshape(-1) if bias.ndim == 2 and bias.shape[0] == 1 else bias
    if is_torch(bias):
        import torch
        return bias.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[type])
    return bias
