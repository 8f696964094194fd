"""vLLM's CPU backend. It packs the weight of a bf16, fp16 or int8 layer when it was loaded, gives the layer a function, and drops the plain
weight. Layers for which a tuned row answers get a weight and a function of ours instead: gemmtune's kernels run all of their sizes."""

import functools

import gemmtune.torch
import torch
from gemmtune import contexts, operations
from gemmtune import _library as c
from torch import nn

from . import operators

_linear, _a8w8 = torch.ops.gemmtune.linear.full, torch.ops.gemmtune.a8w8.default
_types = {torch.bfloat16: "bf16", torch.float16: "f16"}
_device = ("cpu", 0)


class Loading:
    """The layers of a model that is being loaded. sizes: M that vLLM will run; eager: no layer is compiled."""

    def __init__(self, sizes, eager):
        self.sizes, self.eager = sizes, eager
        self.taken, self.left, self.known = [], [], {}  # (layer, constants of its graph); (layer, why)

    def layout(self, weight):
        """The layout that the tuned files were made for."""
        return operations.chosen_layout(contexts.current(_device), operations.weight_problem("a16w16", _types[weight.dtype], *weight.shape))

    def answers(self, kind, weight, y_type, layout, bias):
        """Whether a tuned row answers a size of a layer."""
        for m in self.sizes:
            size = (_device, kind, m, *weight.shape, weight.dtype, y_type, bias, layout)
            if size not in self.known:
                self.known[size] = operators.answered(size)
            if self.known[size]:
                return True
        return False


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
        return _safely(_take, loading, layer, remove_weight) or stock(layer, remove_weight)

    vllm.utils.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


def begin(sizes, eager):
    global _loading
    _loading = Loading(sizes, eager)


def loading():
    """The Loading of the model whose weights are being loaded, or None."""
    return _loading


def end():
    """The Loading of the model whose weights are ready."""
    global _loading
    ended, _loading = _loading, None
    return ended


def _safely(take, loading, layer, *arguments):
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


def _take(loading, layer, remove_weight):
    """Whether the layer is ours from now on."""
    weight, bias = layer.weight.detach(), getattr(layer, "bias", None) is not None
    layout = loading.layout(weight)
    if not loading.answers("plain", weight, weight.dtype, layout, bias):
        loading.left.append((layer, "no tuned row answers its sizes"))
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
        loading.left.append((layer, "shapes are recorded with --enforce-eager"))
        return
    stock = layer.cpu_linear

    def record(x, weight, bias):
        operators.answered((_device, "plain", x.numel() // k, n, k, dtype, dtype, bias is not None, c.any_layout))
        return stock(x, weight, bias)

    layer.cpu_linear = record
    loading.taken.append((layer, "recorded"))


# ---- int8 -------------------------------------------------------------------------------------------------------------------------------

def follow_int8(kernel, vllm):
    """Decides when the weight of the kernel's layer was loaded. Dynamic symmetric scales of x alone: one for each row."""
    if type(kernel).__name__ != "CPUInt8ScaledMMLinearKernel":
        return
    prepare = kernel.process_weights_after_loading

    def process_weights_after_loading(layer):
        if _loading is not None and operators.recording():
            n, k = getattr(layer, kernel.layer_param_names[0]).shape
            prepare(layer)
            return _record_int8(_loading, kernel, layer, n, k, torch.get_default_dtype())
        if _loading is None or not _safely(_take_int8, _loading, layer, kernel, vllm.quantize_int8):
            prepare(layer)

    kernel.process_weights_after_loading = process_weights_after_loading


def _take_int8(loading, layer, kernel, quantize):
    """Whether the layer is ours from now on."""
    weight_name, scale_name = kernel.layer_param_names[:2]
    weight, scale, bias = getattr(layer, weight_name).detach(), getattr(layer, scale_name).detach(), getattr(layer, "bias", None) is not None
    y_type = torch.get_default_dtype()  # vLLM's own product has it too
    if kernel.config.is_static_input_scheme or not kernel.config.input_symmetric:
        loading.left.append((layer, "int8 with static or asymmetric scales of x"))
        return False
    if weight.dim() != 2 or not weight.is_contiguous() or not loading.answers(operators.token_scaled, weight, y_type, c.plain, bias):
        loading.left.append((layer, "no tuned row answers its sizes"))
        return False
    scale = _scale_of_rows(scale, weight.shape[0], getattr(layer, "logical_widths", []))

    def apply_weights(layer, x, bias=None):
        rows, x_scale, _ = quantize(x.reshape(-1, x.shape[-1]), None, None, True)
        y = _a8w8(rows, weight, x_scale.reshape(-1), scale, bias, 0, c.plain, x.dtype)
        return y.view(*x.shape[:-1], y.shape[-1])

    kernel.apply_weights = apply_weights
    loading.taken.append((layer, "int8"))
    return True


def _scale_of_rows(scale, n, widths):
    """Scales [N], or one, of a weight scale with one element for each row, or for each of the layers that were merged (`widths`)."""
    scale = scale.reshape(-1).float()
    if scale.numel() in (1, n):
        return scale
    return torch.cat([scale[i].expand(width) for i, width in enumerate(widths)]).contiguous()


def _record_int8(loading, kernel, layer, n, k, y_type):
    if not loading.eager:
        loading.left.append((layer, "shapes are recorded with --enforce-eager"))
        return
    stock = kernel.apply_weights

    def record(layer, x, bias=None):
        operators.answered((_device, operators.token_scaled, x.numel() // k, n, k, torch.int8, y_type, bias is not None, c.plain))
        return stock(layer, x, bias)

    kernel.apply_weights = record
    loading.taken.append((layer, "recorded"))
