"""Mixtures of experts of vLLM's CPU backend. It packs the weights of a layer's experts when they were loaded. A layer for which a tuned row
answers keeps the checkpoint's weights in place of the packed ones, and gemmtune's fused_moe runs all of its sizes.

vLLM's kernels for fp8, int8 and MXFP4 experts need AMX. On a CPU without it vLLM refuses such a model; with the plug-in gemmtune's run it."""

import contextlib
import functools
import math

import torch
from gemmtune import operations
from gemmtune import _library as c

from . import cpu, loadings, operators

_fused_moe = torch.ops.gemmtune.fused_moe_out.default
_types = {torch.bfloat16: "bf16", torch.float16: "f16"}
# Of vLLM's activations those that gemmtune computes: its word, and whether rows of gate and up alternate in w13.
_activations = {"silu": ("silu", False), "gelu": ("gelu", False), "swigluoai": ("swiglu", True), "swigluoai_uninterleave": ("swiglu", False)}
_swiglu = {"swiglu_alpha": 1.702, "swiglu_beta": 1.0, "swiglu_limit": 7.0}
# Of vLLM's quantized experts: dtype of the weights, gemmtune's type, elements in one of the tensor, quantization.
_quantized = {"CPUExpertsFp8": (torch.float8_e4m3fn, "f8_e4m3fn", 1, "per_1x128"),
              "CPUExpertsInt8": (torch.int8, "i8", 1, "per_token"),
              "CPUExpertsMxfp4": (torch.uint8, "f4_e2m1", 2, "per_1x32")}

_plain = False  # vLLM's packing functions leave weights as they are
_without_kernel = set()  # names of vLLM's classes that cannot run on this CPU


def follow(vllm):
    """Stands behind the constructor of vLLM's layers of experts."""
    _without_kernel.clear()
    _skip_packing(vllm.unquantized_experts)
    if "quantized mixtures of the CPU backend" in vllm.parts:
        _skip_packing(vllm.int8_experts)
        for name in ("prepare_fp8_moe_layer_for_cpu", "prepare_mxfp4_moe_layer_for_cpu"):
            setattr(vllm.cpu_experts, name, _unless_plain(getattr(vllm.cpu_experts, name)))
        for name in _quantized:
            _let_run(getattr(vllm.cpu_experts, name))
    stock = vllm.routed_experts.__init__

    @functools.wraps(stock)
    def __init__(self, *arguments, **options):
        stock(self, *arguments, **options)
        if loadings.current() is not None:
            _follow_layer(self, vllm)

    vllm.routed_experts.__init__ = __init__


def _unless_plain(pack):
    """A function that returns its operands packed."""
    @functools.wraps(pack)
    def packed(*operands):
        return operands if _plain else pack(*operands)
    return packed


def _skip_packing(experts):
    experts.process_weights_after_loading = _unless_plain(experts.process_weights_after_loading)


def _let_run(experts):
    """vLLM may choose a class whose kernels this CPU lacks: gemmtune's run in its layers."""
    if not experts._supports_current_device():
        _without_kernel.add(experts.__name__)
        experts._supports_current_device = staticmethod(lambda: True)


@contextlib.contextmanager
def _plain_weights():
    global _plain
    _plain = True
    try:
        yield
    finally:
        _plain = False


def _follow_layer(layer, vllm):
    """Decides when the weights of the layer were loaded, before vLLM packs them."""
    method, ours = layer.quant_method, None
    prepare = method.process_weights_after_loading

    def process_weights_after_loading(layer):
        nonlocal ours
        now = loadings.current()
        if now is not None:
            ours = _chosen(now, layer, vllm, prepare)
        if ours is None:
            if now is None:
                prepare(layer)
            return
        with _plain_weights():  # weights that are loaded again too
            prepare(layer)
        ours.take(method.moe_kernel.fused_experts)

    method.process_weights_after_loading = process_weights_after_loading


def _chosen(loading, layer, vllm, prepare):
    """The Mixture that the layer is from now on; None: vLLM's, and prepared."""
    experts = getattr(layer.quant_method, "experts_cls", None)
    name = getattr(experts, "__name__", type(layer.quant_method).__name__)
    mixture, why = None, None
    try:
        mixture = Mixture(layer, experts, vllm)
        why = mixture.why_not()
        if why is None and name not in _without_kernel and not operators.recording():
            why = loading.why_left(cpu.device, mixture.key(), mixture.problem)
    except Exception as error:  # vLLM must load without us
        why = f"{type(error).__name__}: {error}"
    if name in _without_kernel:
        if why is not None:
            raise RuntimeError(f"vLLM's {name} do not run on this CPU, and gemmtune does not take them: {why}")
    elif operators.recording() and why is None:
        prepare(layer)
        _record(loading, layer, mixture)
        return None
    if why is not None:
        prepare(layer)
        loading.left.append((layer, why))
        return None
    loading.taken.append((layer, mixture.constants()))
    return mixture


def _record(loading, layer, mixture):
    """Asks the look-up before each call of vLLM's function. Only an eager layer can."""
    if not loading.eager:
        loading.left.append((layer, loadings.recorded_eagerly))
        return
    experts = layer.quant_method.moe_kernel.fused_experts
    stock = experts.apply

    def record(*, hidden_states, **others):
        operators.row_of(cpu.device, mixture.problem(hidden_states.shape[0]))
        return stock(hidden_states=hidden_states, **others)

    experts.apply = record
    loading.taken.append((layer, "recorded"))


def _scale(layer, weight):
    """The scales that a layer holds of its w13 or w2."""
    found = (getattr(layer, f"{weight}_{name}", None) for name in ("weight_scale_inv", "weight_scale", "scale"))
    return next((scale for scale in found if scale is not None), None)


class Mixture:
    """A layer of experts whose weights are as the checkpoint has them."""

    def __init__(self, layer, experts, vllm):
        self.layer, self.experts, self.quantize = layer, experts, vllm.quantize_int8
        self.x_dtype = layer.moe_config.in_dtype
        self.activation, self.alternates = _activations.get(layer.activation.value, (None, False))
        is_plain = experts is not None and issubclass(experts, vllm.unquantized_experts)
        self.is_known = is_plain or getattr(experts, "__name__", None) in _quantized
        self.w_dtype, self.w_type, self.elements, self.quant_type = (
            (self.x_dtype, _types.get(self.x_dtype), 1, "none") if is_plain or not self.is_known else _quantized[experts.__name__])
        self.has_bias = getattr(layer, "w13_bias", None) is not None

    def why_not(self):
        """Why gemmtune does not compute the layer, or None."""
        layer = self.layer
        if not self.is_known:
            return f"{getattr(self.experts, '__name__', type(layer.quant_method).__name__)} is not known"
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
        if any(weight.dim() != 3 or weight.dtype is not self.w_dtype or not weight.is_contiguous() for weight in (w13, w2)):
            return f"its weights are {w13.dtype}, or not contiguous"
        experts, rows, columns = w13.shape
        _, n, k = self.sizes()
        if rows != 2 * n or w2.shape != (experts, columns * self.elements, n // self.elements):
            return f"its weights have shapes {list(w13.shape)} and {list(w2.shape)}"
        for name, (height, width) in (("w13", (rows, k)), ("w2", (k, n))):
            shape = {"per_1x128": (experts, -(-height // 128), -(-width // 128)), "per_token": (experts, height),
                     "per_1x32": (experts, height, width // 32)}.get(self.quant_type)
            scale = _scale(self.layer, name)
            if shape and (scale is None or scale.numel() != math.prod(shape) or tuple(scale.shape)[:len(shape)] != shape):
                return f"{name} has scales of shape {None if scale is None else list(scale.shape)}"
        return None

    def sizes(self):
        """Experts that this rank has, inter_dim and model_dim."""
        experts, rows, columns = self.layer.w13_weight.shape
        return experts, rows // 2, columns * self.elements

    def problem(self, tokens):
        experts, n, k = self.sizes()
        y_type = _types[self.x_dtype]
        return operations.mixture_problem(tokens, n, k, experts=experts, topk=self.layer.top_k, x_type="i8" if self.w_type == "i8" else y_type,
                                          w_type=self.w_type, y_type=y_type, bias=self.has_bias, activation=self.activation, quant_type=self.quant_type)

    def key(self):
        """Equal for layers that the same rows answer."""
        return *self.sizes(), self.layer.top_k, self.x_dtype, self.w_type, self.activation, self.has_bias

    def constants(self):
        """What a compiled graph has of the layer beside tensors."""
        return f"experts {self.activation} {self.quant_type}"

    def take(self, experts):
        """The object of vLLM that runs the layer's experts calls gemmtune from now on."""
        w1_scale, w2_scale, bias1, bias2 = experts.w1_scale, experts.w2_scale, experts.w1_bias, experts.w2_bias
        if self.alternates:
            for tensor in (self.layer.w13_weight, w1_scale, bias1):
                _gate_first(tensor)
        if self.quant_type == "per_token":
            w1_scale, w2_scale = (scale.reshape(len(scale), -1).float().contiguous() for scale in (w1_scale, w2_scale))
        if self.has_bias:
            bias1, bias2 = bias1.float(), bias2.float()
        quantize = self.quantize if self.w_type == "i8" else None
        words = {"activation": c.activations.index(self.activation), "quant_type": c.quant_types.index(self.quant_type), "gated": True,
                 "doweight_stage1": False, "shared_experts": 0, "bias1": bias1, "bias2": bias2}

        def apply(*, output, hidden_states, w1, w2, topk_weights, topk_ids, expert_map, apply_router_weight_on_input, **others):
            x, x_scale = hidden_states, None
            if quantize is not None:
                x, x_scale, _ = quantize(x, None, None, True)
                x_scale = x_scale.reshape(-1)
            if expert_map is not None:
                topk_ids = torch.where(topk_ids < 0, topk_ids, expert_map[topk_ids.clamp(min=0).long()])
            if apply_router_weight_on_input:  # vLLM has multiplied x by them
                topk_weights = torch.ones_like(topk_weights)
            _fused_moe(x, w1, w2, topk_ids.int(), topk_weights.float(), x_scale, w1_scale, w2_scale, out=output, **words)

        experts.apply = apply


def _gate_first(tensor):
    """[E, rows ...], in place: rows of gate and up that alternate become gate's, then up's."""
    if tensor is None:
        return
    for one in tensor.data:
        one.copy_(torch.cat((one[0::2], one[1::2])))
