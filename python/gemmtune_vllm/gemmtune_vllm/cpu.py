"""vLLM's CPU backend. It packs the weight of a bf16 or fp16 layer when it was loaded, gives the layer a function, and drops the plain weight.
Layers for which a tuned row answers get a weight and a function of ours instead: gemmtune's kernels run all of their sizes."""

import functools

import gemmtune.torch
import torch
from gemmtune import contexts, operations
from gemmtune import _library as c
from torch import nn

from . import operators

_linear = torch.ops.gemmtune.linear.full
_types = {torch.bfloat16: "bf16", torch.float16: "f16"}
device = ("cpu", 0)
recorded_eagerly = "shapes are recorded with --enforce-eager"


class Loading:
    """The layers of a model that is being loaded. sizes: M that vLLM will run; eager: no layer is compiled; invariant: the variable that asks for
    rows of a bit class, or None."""

    def __init__(self, sizes, eager, invariant):
        self.sizes, self.eager, self.invariant = sizes, eager, invariant
        self.taken, self.left, self.known = [], [], {}  # (layer, constants of its graph); (layer, why)

    def why_left(self, key, problem):
        """Why tuned rows do not make a layer ours, or None. problem(m): the layer's at a size; key: equal for layers of equal problems."""
        if key not in self.known:
            self.known[key] = self._why_left(problem)
        return self.known[key]

    def _why_left(self, problem):
        row = next(filter(None, (operators.row_of(device, problem(m)) for m in self.sizes)), None)
        if row is None:
            return operators.no_row
        return operators.no_bit_class(self.invariant) if self.invariant and not row["bits"] else None


_loading = None


def follow(vllm):
    """Stands in front of the function by which vLLM packs a weight."""
    stock = vllm.dispatch_cpu_unquantized_gemm

    @functools.wraps(stock)
    def dispatch_cpu_unquantized_gemm(layer, remove_weight):
        loading = _loading
        if loading is None or not _fits(layer):
            return stock(layer, remove_weight)
        if operators.recording():
            n, k, dtype = *layer.weight.shape, layer.weight.dtype
            stock(layer, remove_weight)  # drops the weight
            return _record(loading, layer, n, k, dtype)
        return safely(_take, loading, layer, remove_weight) or stock(layer, remove_weight)

    vllm.utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def begin(sizes, eager, invariant):
    global _loading
    _loading = Loading(sizes, eager, invariant)


def loading():
    """The Loading of the model whose weights are being loaded, or None."""
    return _loading


def end():
    """The Loading of the model whose weights are ready."""
    global _loading
    ended, _loading = _loading, None
    return ended


def safely(take, loading, layer, *arguments):
    """Whether take() made the layer ours. vLLM must load without us: a failure leaves the layer vLLM's."""
    try:
        return take(loading, layer, *arguments)
    except Exception as error:
        loading.left.append((layer, f"{type(error).__name__}: {error}"))
        return False


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
    why = loading.why_left(known, lambda m: _problem(m, *known))
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
        loading.left.append((layer, recorded_eagerly))
        return
    stock = layer.cpu_linear

    def record(x, weight, bias):
        operators.row_of(device, _problem(x.numel() // k, n, k, dtype, bias is not None, c.any_layout))
        return stock(x, weight, bias)

    layer.cpu_linear = record
    loading.taken.append((layer, "recorded"))
