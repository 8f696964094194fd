"""The operators of layers that are ours: torch.ops.gemmtune.tuned_linear_out and tuned_scaled_linear, which look a call's size up in C++ and call
vLLM's operator where no tuned row answers. They get no number or name of a layer: equal layers have equal graphs, which vLLM compiles once
and keeps on disk."""

import hashlib
import os

import torch
from gemmtune import contexts, errors, operations
from gemmtune.torch._operators import blocks_scaled, device_of, random_rows, tensor_scaled, token_scaled

dependent = False  # tuned kernels are launched before the kernel in front has ended

_types = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float8_e4m3fn: "f8_e4m3fn", torch.int8: "i8"}
_operations = {"plain": ("a16w16", False), tensor_scaled: ("a16w16", True), token_scaled: ("a8w8", False),
               blocks_scaled: ("a8w8_blockscale", False)}

# Values of tuned_scaled_linear's `other` that C++ knows: operators of vLLM. All others are keys of `functions`.
cutlass_operator, deep_gemm_operator, deep_gemm_e8m0_operator = 1, 2, 3
functions = {}  # key -> vLLM's function, called with the arguments of stock_scaled_linear but the last


def scaled_linear(x, w, x_scale, w_scale, bias, rows, out_dtype, kind, other, untuned_rows=0):
    """vLLM's apply_scaled_mm and apply_block_scaled_mm. Up to untuned_rows rows gemmtune's default kernel runs what no tuned row answers."""
    return torch.ops.gemmtune.tuned_scaled_linear.default(x, w, x_scale, w_scale, bias, rows, out_dtype, kind, other, dependent, untuned_rows)


def linear(x, w, bias):
    """torch.nn.functional.linear. A compiled graph makes the view of w, a plain tensor, as it does for its own product: given vLLM's parameter
    itself, a call cost 20 us more in vLLM 0.24. And it allocates out, in memory that it has."""
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    out = rows.new_empty((rows.shape[0], w.shape[0]))
    torch.ops.gemmtune.tuned_linear_out.default(rows, w.t(), bias, dependent, out=out)
    return out if x.dim() == 2 else out.reshape(*x.shape[:-1], w.shape[0])


def untuned_is_fast(weight):
    """Whether gemmtune's default kernels of fp8 are fast on its device: on GPUs those of Hopper are."""
    return not weight.is_cuda or torch.cuda.get_device_capability(weight.device) == (9, 0)


def key_of(text):
    """The key of vLLM's function that `text` describes, the same in every process: compiled graphs hold it."""
    return 16 + (int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big"))


def recording():
    """Whether gemmtune records shapes: then layers without tuned rows ask the look-up too."""
    value = os.environ.get("GEMMTUNE_CAPTURE") or os.environ.get("AITER_TUNE_GEMM") or "0"
    return value.lower() not in ("0", "false", "off", "no")  # of all other words one is a folder


no_row = "no tuned row answers its sizes"


def no_bit_class(variable):
    return f"its rows have no bit class, and {variable} is set"


def answered(size):
    """Whether a tuned row answers `size`: (device, kind, m, n, k, x dtype, y dtype, bias, weight layout)."""
    return _row_of_size(size) is not None


def bit_class(size):
    """The bit class of the row that answers `size`; "" if there is none."""
    row = _row_of_size(size)
    return row["bits"] if row else ""


def row_of(device, problem):
    """How the tuned row that answers the problem does (Context.plan()), or None."""
    try:
        return contexts.current(device).tuned_plan(problem)
    except errors.Error:  # what this device does not do
        return None


def plan(size):
    """Has gemmtune's default kernel for a size without a row compiled and loaded, as answered() has a row's. One that gemmtune does not do is left."""
    problem = _problem(size)
    if problem is not None:
        contexts.current(size[0]).plan(problem)


def _problem(size):
    """The problem of a size, or None if gemmtune does not do it."""
    _, kind, m, n, k, x_type, y_type, bias, layout = size
    operation, scale_ab = _operations[kind]
    if x_type not in _types or y_type not in _types:
        return None
    try:
        return operations.problem(m, n, k, operation=operation, x_type=_types[x_type], y_type=_types[y_type], bias=bias, scale_ab=scale_ab,
                                  weight_layout=layout)
    except errors.Error:
        return None


def _row_of_size(size):
    problem = _problem(size)
    return None if problem is None else row_of(size[0], problem)


def _stock_scaled_linear(x, w, x_scale, w_scale, bias, rows, out_dtype, other):
    return functions[other](x, w, x_scale, w_scale, bias, rows, out_dtype)


_library = torch.library.Library("gemmtune_vllm", "DEF")
_library.define("stock_scaled_linear(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor? bias, int rows, ScalarType out_dtype, "
                "int other) -> Tensor")
for _device in ("CPU", "CUDA"):
    _library.impl("stock_scaled_linear", _stock_scaled_linear, _device)

__all__ = ["answered", "bit_class", "blocks_scaled", "device_of", "linear", "no_bit_class", "no_row", "recording", "row_of", "scaled_linear",
           "tensor_scaled", "token_scaled", "untuned_is_fast"]
