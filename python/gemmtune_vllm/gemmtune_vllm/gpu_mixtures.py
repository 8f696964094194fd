"""Mixtures of experts of vLLM on GPUs.

vLLM's kernels for bf16, fp16, fp8 and int8 experts read the weights as the checkpoint has them. The sizes for which a tuned row answers run
gemmtune's fused_moe on these weights, the others vLLM's kernel.

MXFP4 experts of gpt-oss are repacked by vLLM, so that a layer is decided whole. If a tuned row answers, it keeps the checkpoint's weights, and
gemmtune's fused_moe runs all of its sizes."""

import functools

import torch
from torch import nn

from . import mixtures, operators

# vLLM's classes that read weights as the checkpoint has them.
_plain_experts = ("TritonExperts", "TritonOrCutlassExperts")
# vLLM's kernels for MXFP4 experts that do not quantize x.
_mxfp4_backends = ("MARLIN", "TRITON", "TRITON_UNFUSED", "FLASHINFER_CUTLASS_MXFP4_BF16")
_fp8 = torch.float8_e4m3fn
_group = 32  # elements that an MXFP4 scale is of


def follow(vllm):
    """Stands behind the constructor of vLLM's layers of experts."""
    mixtures.follow_layers(vllm, lambda loading, layer, prepare: _chosen(loading, layer, vllm, prepare))


def _chosen(loading, layer, vllm, prepare):
    """The mixture that the layer is from now on, or None. vLLM prepares all layers but those that are whole ours."""
    method = layer.quant_method
    kind = _Mxfp4 if "MXFP4 mixtures on GPUs" in vllm.parts and type(method) is vllm.mxfp4_method else _Plain
    if not kind.whole:
        prepare(layer)
    mixture, why = None, None
    try:
        mixture = kind(layer, vllm)
        why = mixture.why_not() or (None if operators.recording() else loading.why_left(mixture.device, mixture.key(), mixture.problem))
    except Exception as error:  # vLLM must load without us
        why = f"{type(error).__name__}: {error}"
    if kind.whole and (why is not None or operators.recording()):
        prepare(layer)
    if why is not None:
        loading.left.append((layer, why))
        return None
    if operators.recording():
        mixtures.record(mixture, loading, method.moe_kernel)
        return None
    loading.taken.append((layer, mixture.constants()))
    mixture.answered = loading.ahead.setdefault(mixture.key(), mixture).answered
    return mixture


class _GpuMixture(mixtures.Mixture):
    def __init__(self, layer, vllm, kind, name):
        super().__init__(layer, kind, name, operators.device_of(layer.w13_weight))
        self.vllm, self.method = vllm, layer.quant_method
        self.answered = {}  # tier of tokens -> whether a tuned row answers; one for all layers of a key

    def why_not(self):
        config = self.layer.moe_config
        if config.moe_backend != "auto":
            return f"--moe-backend is {config.moe_backend}"
        return super().why_not() or ("its tokens are exchanged between data-parallel ranks" if config.dp_size > 1 else None)

    def runs(self, m):
        """Whether gemmtune runs m tokens. One row answers all that have the next power of two in common, each of which is asked for when the model
        was loaded: an answer is a call that is counted."""
        tier = (m - 1).bit_length()
        if tier not in self.answered:
            self.answered[tier] = self.whole or operators.row_of(self.device, self.problem(m)) is not None
        return self.answered[tier]

    def run_in(self, kernel, w1_scale, w2_scale, bias1, bias2):
        """vLLM's kernel of the layer calls gemmtune for the sizes that gemmtune runs. x is what vLLM's function makes of it: quantized, or
        multiplied by the router's weights. No copy of the result is left."""
        stock, prepare, settings = kernel.apply, kernel.prepare_finalize.prepare, kernel.fused_experts.quant_config
        run = self.product(w1_scale, w2_scale, bias1, bias2)

        @functools.wraps(stock)
        def apply(hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map, apply_router_weight_on_input,
                  shared_experts=None, shared_experts_input=None):
            if len(hidden_states) == 0:
                return torch.empty_like(hidden_states)
            if not self.runs(len(hidden_states)):
                return stock(hidden_states=hidden_states, w1=w1, w2=w2, topk_weights=topk_weights, topk_ids=topk_ids, activation=activation,
                             global_num_experts=global_num_experts, expert_map=expert_map, apply_router_weight_on_input=apply_router_weight_on_input,
                             shared_experts=shared_experts, shared_experts_input=shared_experts_input)
            x, x_scale, *_ = prepare(hidden_states, topk_weights, topk_ids, global_num_experts, expert_map, apply_router_weight_on_input, settings)
            if self.kind.quant_type == "per_token":
                x_scale = x_scale.reshape(-1)
            out = torch.empty_like(hidden_states)
            run(x, x_scale, w1, w2, mixtures.local(topk_ids, expert_map), None if apply_router_weight_on_input else topk_weights, out)
            return out

        kernel.apply = apply


class _Plain(_GpuMixture):
    """Experts whose weights vLLM's kernel reads too. The layer is prepared."""

    whole = False

    def __init__(self, layer, vllm):
        kernel = layer.quant_method.moe_kernel
        kind, name = (None, type(layer.quant_method).__name__) if kernel is None else _kind_of(kernel.fused_experts, layer.moe_config.in_dtype)
        super().__init__(layer, vllm, kind, name)

    def why_not(self):
        why = super().why_not()
        if why is None and self.alternates:
            return "its rows of gate and up alternate"
        if why is None and not isinstance(self.method.moe_kernel.prepare_finalize, self.vllm.no_dp_ep):
            return f"{type(self.method.moe_kernel.prepare_finalize).__name__} is not known"
        return why

    def take(self):
        kernel = self.method.moe_kernel
        if "apply" not in vars(kernel):  # weights that are loaded again may come into the same kernel
            experts = kernel.fused_experts
            self.run_in(kernel, experts.w1_scale, experts.w2_scale, experts.w1_bias, experts.w2_bias)


def _kind_of(experts, dtype):
    """(Kind of vLLM's experts, the name of their class). Kind is None if gemmtune knows none."""
    name, config = type(experts).__name__, experts.quant_config
    if name not in _plain_experts:
        return None, name
    if config.quant_dtype is None:
        return mixtures.plain(dtype), name
    if config.a1_scale is not None or config.a2_scale is not None:
        return None, f"{name} with static scales"
    if config.quant_dtype is _fp8 and config.block_shape == [128, 128]:
        return mixtures.fp8_blocks._replace(x_type="f8_e4m3fn"), name
    by_rows = config.per_act_token_quant and config.per_out_ch_quant and config.block_shape is None
    if by_rows and config.quant_dtype is _fp8:
        return mixtures.Kind(_fp8, "f8_e4m3fn", 1, "per_token", "f8_e4m3fn"), name
    return (mixtures.int8_rows, name) if by_rows and config.quant_dtype is torch.int8 else (None, f"{name} with x as {config.quant_dtype}")


class _Mxfp4(_GpuMixture):
    """MXFP4 experts, before vLLM prepares them. vLLM may have padded their sizes for its kernel, beyond whole groups of a scale."""

    def __init__(self, layer, vllm):
        backend = layer.quant_method.mxfp4_backend.name
        super().__init__(layer, vllm, mixtures.mxfp4 if backend in _mxfp4_backends else None, f"{backend} for MXFP4 experts")
        config = layer.moe_config
        n, k = (-(-size // _group) * _group for size in (config.intermediate_size_per_partition_unpadded, config.hidden_dim_unpadded))
        self._sizes = len(layer.w13_weight), n, k

    def sizes(self):
        return self._sizes

    def take(self):
        """Puts the checkpoint's operands, without padding, in the place of vLLM's, and a kernel that calls gemmtune."""
        layer, vllm = self.layer, self.vllm
        _, n, k = self._sizes
        layer.moe_config.hidden_dim = k  # vLLM pads x to it
        made = {}
        for name, rows, width in (("w13", 2 * n, k), ("w2", k, n)):
            for part, columns in (("weight", width // 2), (self.scale_name(name)[len(name) + 1:], width // _group), ("bias", None)):
                tensor = getattr(layer, f"{name}_{part}", None)
                if tensor is not None:
                    made[name, part] = tensor.data[:, :rows, :columns].contiguous() if columns else tensor.data[:, :rows].float()
        if self.alternates:
            for (name, _), tensor in made.items():
                if name == "w13":
                    mixtures.gate_first(tensor)
        for (name, part), tensor in made.items():
            setattr(layer, f"{name}_{part}", nn.Parameter(tensor, requires_grad=False))
        settings = self.method.moe_quant_config = vllm.moe_quant_config()
        self.method.get_fused_moe_quant_config = lambda layer: settings  # vLLM's needs its own operands
        experts = vllm.triton_experts(moe_config=layer.moe_config, quant_config=settings)
        self.method.moe_kernel = vllm.moe_kernel(vllm.no_dp_ep(), experts)
        self.run_in(self.method.moe_kernel, self.scale("w13"), self.scale("w2"), getattr(layer, "w13_bias", None), getattr(layer, "w2_bias", None))
