"""torch.ops.gemmtune_vllm.*: a linear layer that runs gemmtune's kernel where a tuned row answers the size of the call and
vLLM's kernel elsewhere. The choice depends on M, so it is made inside of an operator that torch.compile does not look into.

Operators get no number or name of a layer: equal layers have equal graphs, which vLLM compiles once and keeps on disk. `key`
of a quantized layer names vLLM's kernel with its configuration, which is the same in every process."""

import os

import gemmtune.torch
import torch
from gemmtune import contexts, errors, operations
from gemmtune.torch._operators import device_of

_ours = torch.ops.gemmtune
_types = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float8_e4m3fn: "f8_e4m3fn"}
_operations = {"plain": ("a16w16", False), "tensor": ("a16w16", True), "token": ("a8w8", False),
               "block": ("a8w8_blockscale", False)}

fallbacks = {}  # key -> vLLM's function
unquantized = {}  # (N, K) -> vLLM's function of (x, weight, bias)

_answers = {}  # size -> whether a tuned row answers
_ready = set()  # sizes that ran, so that their plan is made
contexts.listen(lambda device, context: (_answers.clear(), _ready.clear()))


def recording():
    """Whether gemmtune records shapes: then each call asks the look-up, and layers without tuned rows ask too."""
    value = os.environ.get("GEMMTUNE_CAPTURE") or os.environ.get("AITER_TUNE_GEMM") or "0"
    return value.lower() not in ("0", "false", "off", "no")  # of all other words one is a folder


def _capturing(x):
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def answered(size):
    """Whether a tuned row answers `size`: (device, kind, m, n, k, x dtype, y dtype, bias)."""
    device, kind, m, n, k, x_type, y_type, bias = size
    operation, scale_ab = _operations[kind]
    try:
        problem = operations.problem(m, n, k, operation=operation, x_type=_types[x_type], y_type=_types[y_type], bias=bias,
                                     scale_ab=scale_ab)
        return contexts.current(device).plan(problem)["match"] != "untuned"
    except (errors.Error, KeyError):  # what this device or gemmtune does not do
        return False


def _is_ours(x, size):
    """Whether the call runs gemmtune's kernel. While a graph is captured nothing is planned or compiled: only sizes that ran
    before are ours."""
    if _capturing(x):
        return size in _ready
    known = _answers.get(size)
    if known is None or (not known and recording()):
        known = answered(size)
        _answers[size] = known
    if known:
        _ready.add(size)
    return known


def _linear(x, w, bias):
    n, k = w.shape
    m = x.numel() // k
    if (m and x.dtype is w.dtype and (bias is None or bias.dtype is x.dtype) and
            _is_ours(x, (device_of(x), "plain", m, n, k, x.dtype, x.dtype, bias is not None))):
        return _ours.linear(x, w, bias)
    return unquantized[n, k](x, w, bias)


def _linear_fake(x, w, bias):
    return x.new_empty((*x.shape[:-1], w.shape[0]))


def _scaled_linear(x, w, x_scale, w_scale, bias, rows, out_dtype, kind, key):
    k, n = w.shape  # vLLM's view of the weight [N, K]
    fits = (rows and x.dtype is torch.float8_e4m3fn and w.dtype is x.dtype and w.t().is_contiguous() and
            x_scale.dtype is torch.float32 and w_scale.dtype is torch.float32 and
            (bias is None or bias.dtype is out_dtype))
    if fits and kind == "tensor":
        fits = x_scale.numel() == 1 and w_scale.numel() == 1
    elif fits:
        fits = x_scale.numel() in (1, len(x)) and w_scale.numel() in (1, n)
    if fits and _is_ours(x, (device_of(x), kind, rows, n, k, x.dtype, out_dtype, bias is not None)):
        x, w = x[:rows], w.t()
        if kind == "tensor":
            return _ours.linear(x, w, bias, x_scale.reshape(1), w_scale.reshape(1), out_dtype=out_dtype)
        x_scale = x_scale.reshape(-1)
        return _ours.a8w8(x, w, x_scale if x_scale.numel() == 1 else x_scale[:rows], w_scale.reshape(-1), bias,
                          out_dtype=out_dtype)
    return fallbacks[key](A=x, B=w, out_dtype=out_dtype, As=x_scale, Bs=w_scale, bias=bias, output_shape=[rows, n])


def _scaled_linear_fake(x, w, x_scale, w_scale, bias, rows, out_dtype, kind, key):
    return x.new_empty((rows, w.shape[1]), dtype=out_dtype)


def _block_linear(x, w, x_scale, w_scale, out_dtype, key):
    n, k = w.shape
    m, blocks = len(x), -(-k // 128)
    fits = (m and x.dtype is torch.float8_e4m3fn and w.dtype is x.dtype and w.is_contiguous() and
            x_scale.dtype is torch.float32 and w_scale.dtype is torch.float32 and w_scale.is_contiguous() and
            tuple(x_scale.shape) == (m, blocks) and tuple(w_scale.shape) == (-(-n // 128), blocks))
    if fits and _is_ours(x, (device_of(x), "block", m, n, k, x.dtype, out_dtype, False)):
        return _ours.a8w8_blockscale(x, w, x_scale.contiguous(), w_scale, out_dtype=out_dtype)
    return fallbacks[key](A=x, B=w, As=x_scale, Bs=w_scale).to(out_dtype)


def _block_linear_fake(x, w, x_scale, w_scale, out_dtype, key):
    return x.new_empty((x.shape[0], w.shape[0]), dtype=out_dtype)


_library = torch.library.Library("gemmtune_vllm", "DEF")
for _name, _schema, _run, _fake in (
        ("linear", "Tensor x, Tensor w, Tensor? bias", _linear, _linear_fake),
        ("scaled_linear", "Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, Tensor? bias, SymInt rows, "
         "ScalarType out_dtype, str kind, str key", _scaled_linear, _scaled_linear_fake),
        ("block_linear", "Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, ScalarType out_dtype, str key", _block_linear,
         _block_linear_fake)):
    _library.define(f"{_name}({_schema}) -> Tensor", tags=(torch.Tag.needs_fixed_stride_order,))
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _run, _device)
    torch.library.register_fake(f"gemmtune_vllm::{_name}", _fake, lib=_library)

ops = torch.ops.gemmtune_vllm
