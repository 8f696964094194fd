"""Mixtures of experts of vLLM on GPUs.

vLLM's kernels for bf16, fp16, fp8 and int8 experts read the weights as the checkpoint has them. The sizes for which a tuned row answers run
gemmtune's fused_moe on these weights, the others vLLM's kernel.

Experts of 4 bits are repacked by vLLM, so that a layer is decided whole. If a tuned row answers, it keeps the checkpoint's weights, and gemmtune's
fused_moe runs all of its sizes: MXFP4 of gpt-oss, int4 of compressed-tensors, AWQ and GPTQ, NVFP4 of compressed-tensors and ModelOpt."""

import functools

import torch
from gemmtune import checkpoints
from torch import nn

from . import mixtures, operators, quantized

# vLLM's classes that read weights as the checkpoint has them.
_plain_experts = ("TritonExperts", "TritonOrCutlassExperts")
# vLLM's kernels for MXFP4 experts that do not quantize x.
_mxfp4_backends = ("MARLIN", "TRITON", "TRITON_UNFUSED", "FLASHINFER_CUTLASS_MXFP4_BF16")
# Those for int4 experts, and for NVFP4 experts, to which x goes as it is.
_int4_backends = ("MARLIN", "TRITON", "HUMMING")
_nvfp4_backends = ("MARLIN",)
_fp8 = torch.float8_e4m3fn
_group = 32  # elements that an MXFP4 scale is of
_names_of_qweight = ("qweight", "weight")  # of vLLM 0.24 and of newer versions


def follow(vllm):
    """Stands behind the constructor of vLLM's layers of experts."""
    mixtures.follow_layers(vllm, lambda loading, layer, prepare: _chosen(loading, layer, vllm, prepare))


def _chosen(loading, layer, vllm, prepare):
    """The mixture that has taken the layer, or None. vLLM prepares all layers but those that are whole ours."""
    method = layer.quant_method
    kind = next((kind for part, name, kind in _whole if part in vllm.parts and type(method) in getattr(vllm, name)), _Plain)
    if not kind.whole:
        prepare(layer)
    mixture, why = None, None
    try:
        mixture = kind(layer, vllm)
        why = mixture.why_not()
        if why is None and not operators.recording():
            why = loading.why_left(mixture.device, mixture.key(), mixture.problem)
            if why is None:
                mixture.take()
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
        super().__init__(layer, kind, name, operators.device_of(next(layer.parameters())))
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

    def run_in(self, kernel, **operands):
        """vLLM's kernel of the layer calls gemmtune for the sizes that gemmtune runs. operands: of product(). x is what vLLM's function makes of it:
        quantized, or multiplied by the router's weights. No copy of the result is left."""
        stock, prepare, settings = kernel.apply, kernel.prepare_finalize.prepare, kernel.fused_experts.quant_config
        run = self.product(**operands)

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
            self.run_in(kernel, w1_scale=experts.w1_scale, w2_scale=experts.w2_scale, bias1=experts.w1_bias, bias2=experts.w2_bias)


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


class _Whole(_GpuMixture):
    """Experts that vLLM would repack, before it does. sizes: experts of this rank, inter_dim and model_dim, in the checkpoint."""

    weight_names = ("weight",)  # behind w13_ and w2_: as which vLLM's method gives the kernel a weight

    def __init__(self, layer, vllm, kind, name, sizes):
        super().__init__(layer, vllm, kind, name)
        self._sizes = sizes

    def sizes(self):
        return self._sizes

    def take(self):
        """Puts operands of fused_moe in the place of vLLM's parameters, and a kernel that calls gemmtune."""
        layer, vllm = self.layer, self.vllm
        made = self.operands()
        for name in [name for name, _ in layer.named_parameters(recurse=False) if name.startswith(("w13_", "w2_"))]:
            delattr(layer, name)
        for name, parts in made.items():
            for part, tensor in parts.items():
                if name == "w13" and self.alternates and part != "global_scale":
                    mixtures.gate_first(tensor)
                parts[part] = nn.Parameter(tensor, requires_grad=False)
                for place in self.weight_names if part == "weight" else (part,):
                    setattr(layer, f"{name}_{place}", parts[part])
        settings = self.method.moe_quant_config = vllm.moe_quant_config()
        self.method.get_fused_moe_quant_config = lambda layer: settings  # vLLM's needs its own operands
        experts = vllm.triton_experts(moe_config=layer.moe_config, quant_config=settings)
        self.method.moe_kernel = vllm.moe_kernel(vllm.no_dp_ep(), experts)
        w1, w2 = made["w13"], made["w2"]
        self.run_in(self.method.moe_kernel, w1_scale=w1["weight_scale"], w2_scale=w2["weight_scale"], bias1=w1.get("bias"), bias2=w2.get("bias"),
                    w1_zero_points=w1.get("zero_points"), w2_zero_points=w2.get("zero_points"), w1_global_scale=w1.get("global_scale"),
                    w2_global_scale=w2.get("global_scale"))

    def operands(self):
        """{"w13": {part: tensor}, "w2": ...} of what the layer has as the checkpoint does. Parts are weight, weight_scale, zero_points, global_scale
        and bias, those of them that there are. Errors of gemmtune.checkpoints; the layer has not been changed then."""
        raise NotImplementedError

    def _biases(self, made):
        """made, with biases."""
        for name, parts in made.items() if self.has_bias else ():
            parts["bias"] = getattr(self.layer, f"{name}_bias").data.float()
        return made


class _Mxfp4(_Whole):
    """MXFP4 experts. vLLM may have padded their sizes for its kernel, beyond whole groups of a scale."""

    def __init__(self, layer, vllm):
        backend, config = layer.quant_method.mxfp4_backend.name, layer.moe_config
        n, k = (-(-size // _group) * _group for size in (config.intermediate_size_per_partition_unpadded, config.hidden_dim_unpadded))
        super().__init__(layer, vllm, mixtures.mxfp4 if backend in _mxfp4_backends else None, f"{backend} for MXFP4 experts",
                         (len(layer.w13_weight), n, k))

    def take(self):
        self.layer.moe_config.hidden_dim = self._sizes[2]  # vLLM pads x to it
        super().take()

    def operands(self):
        """Without padding."""
        _, n, k = self._sizes
        made = {}
        for name, rows, width in (("w13", 2 * n, k), ("w2", k, n)):
            made[name] = {"weight": getattr(self.layer, f"{name}_weight").data[:, :rows, :width // 2].contiguous(),
                          "weight_scale": self.scale(name).data[:, :rows, :width // _group].contiguous()}
            if self.has_bias:
                made[name]["bias"] = getattr(self.layer, f"{name}_bias").data[:, :rows].float()
        return made


class _Int4(_Whole):
    """int4 experts in groups along k. names: of the layer's words, scales and zero points, each with w13_ or w2_ in front. inputs_first: these are
    [E, K ..., N ...], else [E, N ..., K ...]. reordered: the inputs have another order."""

    def __init__(self, layer, vllm, backend, bits, group, zero_points, reordered, sizes):
        known = backend in _int4_backends and bits == 4
        self.reordered = reordered
        super().__init__(layer, vllm, mixtures.int4(max(group, 0), zero_points) if known else None, f"{backend} for int{bits} experts", sizes)

    def parameter(self, name, kind):
        return getattr(self.layer, f"{name}_{self.names[kind]}").data

    def _why_not_these_weights(self):
        experts, n, k = self._sizes
        words, scales = self.parameter("w13", 0), self.parameter("w13", 1)
        if words.dtype is not torch.int32 or words.numel() * 8 != experts * 2 * n * k:
            return f"w13 is {words.dtype} {list(words.shape)}, and inter_dim is {n} and model_dim {k}"
        if scales.dtype is not self.x_dtype:
            return f"its scales are {scales.dtype}"
        if self.reordered:
            return quantized.reordered
        return next(filter(None, (quantized.why_not_group(self.kind.group or width, width) for width in (k, n))), None)

    def operands(self):
        made = {}
        for name in ("w13", "w2"):
            w, scale, zero_points, _ = checkpoints.stack_weights((self.read(name, expert) for expert in range(self._sizes[0])), self._sizes[0])
            made[name] = {"weight": w, "weight_scale": scale, **({} if zero_points is None else {"zero_points": zero_points})}
        return self._biases(made)

    def read(self, name, expert):
        """The QuantizedWeight of an expert: of w13 gate and up, one behind the other."""
        _, n, k = self._sizes
        parts = [self.parameter(name, kind)[expert] for kind in range(3 if self.kind.zero_points else 2)]
        words, scale, *zero_points = (part.t() for part in parts) if self.inputs_first else parts
        shape = torch.tensor([2 * n, k] if name == "w13" else [k, n])
        return checkpoints.compressed_int4(words, scale, shape, *zero_points, group=self.kind.group or -1)


def _sizes_of_words(w2, inputs_first):
    """(experts, inter_dim, model_dim) of w2 in words of eight inputs."""
    experts, *shape = w2.shape
    inner, outer = shape if inputs_first else reversed(shape)
    return experts, inner * 8, outer


class _CompressedInt4(_Int4):
    """compressed-tensors' pack-quantized. vLLM 0.24 stores the words inputs first, newer versions as they are."""

    names = ("weight_packed", "weight_scale", "weight_zero_point")

    def __init__(self, layer, vllm):
        method = layer.quant_method
        backend = getattr(method, "wna16_backend", None)
        order = getattr(method.weight_quant.actorder, "value", method.weight_quant.actorder)
        self.inputs_first = getattr(layer.w13_weight_packed, "is_transposed", False)
        super().__init__(layer, vllm, backend.name if backend else type(method).__name__, method.num_bits, method.group_size,
                         not method.weight_quant.symmetric, order in ("group", "dynamic"), _sizes_of_words(layer.w2_weight_packed, self.inputs_first))


class _Gptq(_Int4):
    """GPTQ. vLLM takes symmetric ones alone, whose zero points are 8."""

    names = ("qweight", "scales")
    weight_names = _names_of_qweight
    inputs_first = True

    def __init__(self, layer, vllm):
        method, config = layer.quant_method, layer.quant_method.quant_config
        super().__init__(layer, vllm, method.wna16_moe_backend.name, config.weight_bits, config.group_size, False, config.desc_act,
                         _sizes_of_words(layer.w2_qweight, True))
        # Newer versions make biases of every layer, and say of which the checkpoint had some.
        self.has_bias = self.has_bias and bool(getattr(layer, "_loaded_expert_biases", True))


class _Awq(_Int4):
    """AWQ: words of eight outputs."""

    names = ("qweight", "scales", "qzeros")
    weight_names = _names_of_qweight

    def __init__(self, layer, vllm):
        method, config = layer.quant_method, layer.quant_method.quant_config
        experts, n, words = layer.w2_qweight.shape
        super().__init__(layer, vllm, method.wna16_moe_backend.name, config.weight_bits, config.group_size, True, False, (experts, n, words * 8))

    def _why_not_these_weights(self):
        return super()._why_not_these_weights() if self.method.quant_config.zero_point else "it has no zero points"

    def read(self, name, expert):
        words, scale, zero_points = (self.parameter(name, kind)[expert] for kind in range(3))
        return checkpoints.awq(words, zero_points, scale, group=self.kind.group or -1)


class _Nvfp4(_Whole):
    """NVFP4 experts. names: of the layer's weight, scales and global scales, each with w13_ or w2_ in front. The global scales of w13 are [E, 2], of
    gate and up."""

    def __init__(self, layer, vllm):
        backend = layer.quant_method.nvfp4_backend.name
        experts, k, half = getattr(layer, f"w2_{self.names[0]}").shape
        super().__init__(layer, vllm, mixtures.nvfp4 if backend in _nvfp4_backends else None, f"{backend} for NVFP4 experts", (experts, 2 * half, k))

    def _why_not_these_weights(self):
        experts, n, k = self._sizes
        weight = getattr(self.layer, f"w13_{self.names[0]}")
        if weight.dtype is not torch.uint8 or weight.shape != (experts, 2 * n, k // 2):
            return f"w13 is {weight.dtype} {list(weight.shape)}, and inter_dim is {n} and model_dim {k}"
        gate, up = self._global_scales("w13").t()
        other = (gate != up).nonzero()
        if len(other) and (self.activation == "swiglu" or self.has_bias):
            expert = int(other[0])
            return f"gate and up of expert {expert} have the global scales {float(gate[expert])} and {float(up[expert])}"
        return None

    def _global_scales(self, name):
        return getattr(self.layer, f"{name}_{self.names[2]}").data

    def operands(self):
        """Global scales of gate and up that differ: up is a factor of what w2 multiplies, so w2's global scale takes up's over gate's."""
        made, of_up = {}, None
        for name in ("w13", "w2"):
            weight, scale = (getattr(self.layer, f"{name}_{part}").data for part in self.names[:2])
            by_half = self._global_scales(name).reshape(len(weight), -1).t()
            multiplied = [torch.cat([self.read(*one).w_global_scale for one in zip(weight, scale, half.unsqueeze(1))]) for half in by_half]
            made[name] = {"weight": weight, "weight_scale": scale, "global_scale": multiplied[0]}
            of_up = multiplied[-1] / multiplied[0] if name == "w13" else of_up
        made["w2"]["global_scale"] *= of_up
        return self._biases(made)


class _CompressedNvfp4(_Nvfp4):
    """compressed-tensors' nvfp4-pack-quantized."""

    names = ("weight_packed", "weight_scale", "weight_global_scale")
    read = staticmethod(checkpoints.compressed_nvfp4)


class _ModelOptNvfp4(_Nvfp4):
    names = ("weight", "weight_scale", "weight_scale_2")
    read = staticmethod(checkpoints.modelopt_nvfp4)


# Part of vLLM, the name here of its classes, and what takes their layers.
_whole = (("MXFP4 mixtures on GPUs", "mxfp4_experts", _Mxfp4), ("int4 mixtures on GPUs", "int4_experts", _CompressedInt4),
          ("AWQ mixtures on GPUs", "awq_experts", _Awq), ("GPTQ mixtures on GPUs", "gptq_experts", _Gptq),
          ("NVFP4 mixtures on GPUs", "nvfp4_experts", _CompressedNvfp4),
          ("ModelOpt NVFP4 mixtures on GPUs", "modelopt_nvfp4_experts", _ModelOptNvfp4))
