"""Mixtures of experts of vLLM: what gemmtune computes of a layer, on every device. cpu_mixtures and gpu_mixtures put it in the place of vLLM's
kernels."""

import functools
import math
from typing import NamedTuple

import torch
from gemmtune import _library as c
from gemmtune import contexts, operations

from . import loadings, operators

_fused_moe = torch.ops.gemmtune.fused_moe_out.default
_types = {torch.bfloat16: "bf16", torch.float16: "f16"}
# Of vLLM's activations those that gemmtune computes: its word, and whether rows of gate and up alternate in w13.
_activations = {"silu": ("silu", False), "gelu": ("gelu", False), "swigluoai": ("swiglu", True), "swigluoai_uninterleave": ("swiglu", False)}
_swiglu = {"swiglu_alpha": 1.702, "swiglu_beta": 1.0, "swiglu_limit": 7.0}


class Kind(NamedTuple):
    """How experts are quantized. Types are gemmtune's; x_type None: x comes as the layer's tokens are."""

    w_dtype: torch.dtype
    w_type: str
    elements: int = 1  # in one of the tensor
    quant_type: str = "none"
    x_type: str | None = None
    group: int = 0  # of int4: elements along k that share a scale; 0: whole rows
    zero_points: bool = False


def plain(dtype):
    """The Kind of experts that are not quantized."""
    return Kind(dtype, _types.get(dtype))


fp8_blocks = Kind(torch.float8_e4m3fn, "f8_e4m3fn", 1, "per_1x128")
int8_rows = Kind(torch.int8, "i8", 1, "per_token", "i8")
mxfp4 = Kind(torch.uint8, "f4_e2m1", 2, "per_1x32")
nvfp4 = Kind(torch.uint8, "f4_e2m1", 2, "per_1x16")


def int4(group, zero_points):
    """group: 0 for whole rows."""
    return Kind(torch.int32, "i4", 8, "per_group", None, group, zero_points)


def follow_layers(vllm, chosen):
    """Stands behind the constructor of vLLM's layers of experts. chosen(loading, layer, prepare) decides when the weights of a layer were loaded:
    the Mixture that has taken it, or None. prepare(layer) is vLLM's; it has been called for a layer that is not whole ours."""
    stock = vllm.routed_experts.__init__

    @functools.wraps(stock)
    def __init__(self, *arguments, **options):
        stock(self, *arguments, **options)
        if loadings.current() is not None:
            _follow_layer(self, chosen)

    vllm.routed_experts.__init__ = __init__


def _follow_layer(layer, chosen):
    method, ours = layer.quant_method, None
    prepare = method.process_weights_after_loading

    def process_weights_after_loading(layer):
        nonlocal ours
        now = loadings.current()
        if now is not None:
            ours = chosen(now, layer, prepare)
            return
        if ours is None or not ours.whole:  # weights that are loaded again
            prepare(layer)
        if ours is not None:
            ours.take()

    method.process_weights_after_loading = process_weights_after_loading


class Mixture:
    """A layer of experts whose weights are as the checkpoint has them. kind: None if how they are quantized is not known, `name` says then what
    is not."""

    whole = True  # gemmtune runs every size

    def __init__(self, layer, kind, name, device):
        self.layer, self.kind, self.name, self.device = layer, kind, name, device
        self.x_dtype = layer.moe_config.in_dtype
        self.activation, self.alternates = _activations.get(layer.activation.value, (None, False))
        self.has_bias = getattr(layer, "w13_bias", None) is not None

    def why_not(self):
        """Why gemmtune does not compute the layer, or None."""
        layer = self.layer
        if self.kind is None:
            return f"{self.name} is not known"
        if self.x_dtype not in _types:
            return f"its tokens are {self.x_dtype}"
        if self.activation is None:
            return f"its activation is {layer.activation.value}"
        known = _swiglu if self.activation == "swiglu" else {}
        for name, constant in ((name, getattr(layer, name, None)) for name in _swiglu):
            if constant is not None and not math.isclose(constant, known.get(name, math.nan), rel_tol=1e-6):
                return f"its {name} is {constant}"
        if layer.moe_config.is_lora_enabled:
            return "LoRA is enabled"
        return self._why_not_these_weights()

    def _why_not_these_weights(self):
        w13, w2 = self.layer.w13_weight, self.layer.w2_weight
        if any(weight.dim() != 3 or weight.dtype is not self.kind.w_dtype or not weight.is_contiguous() for weight in (w13, w2)):
            return f"its weights are {w13.dtype}, or not contiguous"
        experts, rows, columns = w13.shape
        n, k = rows // 2, columns * self.kind.elements
        if rows != 2 * n or w2.shape != (experts, k, n // self.kind.elements):
            return f"its weights have shapes {list(w13.shape)} and {list(w2.shape)}"
        for name, (height, width) in (("w13", (rows, k)), ("w2", (k, n))):
            shape = {"per_1x128": (experts, -(-height // 128), -(-width // 128)), "per_token": (experts, height),
                     "per_1x32": (experts, height, width // 32)}.get(self.kind.quant_type)
            scale = self.scale(name)
            if shape and (scale is None or scale.numel() != math.prod(shape) or tuple(scale.shape)[:len(shape)] != shape):
                return f"{name} has scales of shape {None if scale is None else list(scale.shape)}"
        return None

    def scale_name(self, weight):
        """The name of the scales that the layer holds of its w13 or w2, or None."""
        names = (f"{weight}_{name}" for name in ("weight_scale_inv", "weight_scale", "scale"))
        return next((name for name in names if getattr(self.layer, name, None) is not None), None)

    def scale(self, weight):
        name = self.scale_name(weight)
        return name and getattr(self.layer, name)

    def sizes(self):
        """Experts that this rank has, inter_dim and model_dim."""
        experts, rows, columns = self.layer.w13_weight.shape
        return experts, rows // 2, columns * self.kind.elements

    def problem(self, tokens):
        experts, n, k = self.sizes()
        y_type = _types[self.x_dtype]
        return operations.mixture_problem(tokens, n, k, experts=experts, topk=self.layer.top_k, x_type=self.kind.x_type or y_type,
                                          w_type=self.kind.w_type, y_type=y_type, bias=self.has_bias, activation=self.activation,
                                          quant_type=self.kind.quant_type, group=self.kind.group, zero_points=self.kind.zero_points)

    def key(self):
        """Equal for layers that the same rows answer."""
        return *self.sizes(), self.layer.top_k, self.x_dtype, self.kind, self.activation, self.has_bias

    def constants(self):
        """What a compiled graph has of the layer beside tensors."""
        return f"experts {self.activation} {self.kind.quant_type}"

    def plan(self, m):
        """Has the kernel for m tokens compiled and loaded."""
        contexts.current(self.device).plan(self.problem(m))

    def product(self, w1_scale, w2_scale, bias1, bias2, **formats):
        """run(x, x_scale, w13, w2, ids, weights, out) of the layer's experts. weights None: x has been multiplied by them. formats: operands that
        fused_moe has of the kind alone, by its names."""
        if self.kind.quant_type == "per_token":
            w1_scale, w2_scale = (scale.reshape(len(scale), -1).float().contiguous() for scale in (w1_scale, w2_scale))
        if self.has_bias:
            bias1, bias2 = bias1.float(), bias2.float()
        words = {"activation": c.activations.index(self.activation), "quant_type": c.quant_types.index(self.kind.quant_type), "gated": True,
                 "doweight_stage1": False, "shared_experts": 0, "bias1": bias1, "bias2": bias2, **formats}

        def run(x, x_scale, w13, w2, ids, weights, out):
            weights = torch.ones(ids.shape, dtype=torch.float32, device=ids.device) if weights is None else weights.float()
            _fused_moe(x, w13, w2, ids.int(), weights, x_scale, w1_scale, w2_scale, out=out, **words)

        return run


def local(ids, expert_map):
    """Numbers of the experts that this rank has; -1: it has none of that number."""
    return ids if expert_map is None else torch.where(ids < 0, ids, expert_map[ids.clamp(min=0).long()])


def record(mixture, loading, kernel):
    """Asks the look-up before each call of vLLM's kernel. Only an eager layer can."""
    if not loading.eager:
        loading.left.append((mixture.layer, loadings.recorded_eagerly))
        return

    def asking(stock):
        @functools.wraps(stock)
        def call(*arguments, **options):
            x = arguments[0] if arguments else options["hidden_states"]
            operators.row_of(mixture.device, mixture.problem(len(x)))
            return stock(*arguments, **options)
        return call

    for name in ("apply", "apply_monolithic"):
        if hasattr(kernel, name):
            setattr(kernel, name, asking(getattr(kernel, name)))
    loading.taken.append((mixture.layer, "recorded"))


def gate_first(tensor):
    """[E, rows ...], in place: rows of gate and up that alternate become gate's, then up's."""
    if tensor is None:
        return
    for one in tensor.data:
        one.copy_(torch.cat((one[0::2], one[1::2])))
