"""vLLM's CPU backend. It packs the weight of a bf16 or fp16 layer when it was loaded, gives the layer a function, and drops the plain weight.
Layers for which a tuned row answers get a weight and a function of ours instead: gemmtune's kernels run all of their sizes."""

import functools

import gemmtune.torch
import torch
from gemmtune import contexts, operations
from gemmtune import _library as c
from torch import nn

from . import loadings, operators

_linear = torch.ops.gemmtune.linear.full
_types = {torch.bfloat16: "bf16", torch.float16: "f16"}
device = ("cpu", 0)


def follow(vllm):
    """Stands in front of the function by which vLLM packs a weight."""
    stock = vllm.dispatch_cpu_unquantized_gemm

    @functools.wraps(stock)
    def dispatch_cpu_unquantized_gemm(layer, remove_weight):
        loading = loadings.current()
        if loading is None or not _fits(layer):
            return stock(layer, remove_weight)
        if operators.recording():
            n, k, dtype = *layer.weight.shape, layer.weight.dtype
            stock(layer, remove_weight)  # drops the weight
            return _record(loading, layer, n, k, dtype)
        return loadings.safely(_take, loading, layer, remove_weight) or stock(layer, remove_weight)

    vllm.utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def _fits(layer):
    weight = getattr(layer, "weight", None)
    return (isinstance(weight, torch.Tensor) and weight.dim() == 2 and weight.dtype in _types and weight.is_contiguous() and
            weight.numel() > 0 and weight.device.type == "cpu" and type(layer).__name__ != "VocabParallelEmbedding" and
            not getattr(layer, "_cpu_skip_gemm_dispatch", False))


def _problem(m, n, k, dtype, bias, layout):
    return operations.problem(m, n, k, x_type=_types[dtype], y_type=_types[dtype], bias=bias, weight_layout=layout)


def _take(loading, layer, remove_weight):
    """Whether the layer is ours from now on."""
    weight, bias = layer.weight.detach(), getattr(layer, "bias", None) is not None
    layout = operations.chosen_layout(contexts.current(device), operations.weight_problem("a16w16", _types[weight.dtype], *weight.shape))
    known = *weight.shape, weight.dtype, bias, layout
    why = loading.why_not_asked() or loading.why_left(device, known, lambda m: _problem(m, *known))
    if why is not None:
        loading.left.append((layer, why))
        return False
    packed = gemmtune.torch.pack(weight)
    bits, n, layout = (packed.bits, packed.n, packed.layout) if isinstance(packed, operations.PackedWeight) else (packed, 0, c.plain)
    layer.cpu_linear = lambda x, weight, bias: _linear(x, bits, bias, None, None, n, layout, None)
    if remove_weight and layout != c.plain:
        layer.weight = nn.Parameter(torch.empty(0, dtype=weight.dtype), requires_grad=False)
    loading.taken.append((layer, f"layout {layout} n {n}"))
    return True


def _record(loading, layer, n, k, dtype):
    """Asks the look-up before each call of vLLM's function. Only an eager layer can."""
    if not loading.eager:
        loading.left.append((layer, loadings.recorded_eagerly))
        return
    stock = layer.cpu_linear

    def record(x, weight, bias):
        operators.row_of(device, _problem(x.numel() // k, n, k, dtype, bias is not None, c.any_layout))
        return stock(x, weight, bias)

    layer.cpu_linear = record
    loading.taken.append((layer, "recorded"))
