"""The part of the double of vLLM (vllm_double.py) that has mixtures of experts, as the CPU backend of vLLM 0.32.0 has them: RoutedExperts with its
method, an oracle that asks classes of experts whether they run here, kernels whose experts get `apply` by keywords, and weights that are
packed when they were loaded. Packed here means reversed, so that plain weights give wrong results in vLLM's functions and the other way round.

Unquantized experts pack in their own process_weights_after_loading, int8 too; fp8 and MXFP4 by a function that the method's conversion imports
when it is called. Kernels of quantized experts need AMX. vLLM multiplies x by the router weights of apply_router_weight_on_input itself."""

import enum
import math
import sys
import types

import torch
from torch import nn

EXPERTS = "vllm.model_executor.layers.fused_moe.experts.cpu_moe"
ROUTED = "vllm.model_executor.layers.fused_moe.routed_experts"
FP8 = torch.float8_e4m3fn
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


class MoEActivation(enum.Enum):
    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SWIGLUOAI = "swigluoai"


def activate(activation, product):
    """What vLLM computes of the first product [T, 2N]; rows of gate and up alternate for SWIGLUOAI."""
    if activation is MoEActivation.SWIGLUOAI:
        gate, up = product[:, 0::2].clamp(max=7), product[:, 1::2].clamp(-7, 7)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    gate, up = product.chunk(2, 1)
    if activation is MoEActivation.SILU:
        return torch.nn.functional.silu(gate) * up
    return torch.nn.functional.gelu(gate, approximate="tanh" if activation is MoEActivation.GELU_TANH else "none") * up


def mixture(x, w13, w2, bias13, bias2, weights, ids, activation):
    """The layer in the precision of its operands; a slot of -1 adds nothing."""
    y = x.new_zeros(x.shape)
    for token, slot in ((ids >= 0).nonzero()):
        expert = int(ids[token, slot])
        first = x[token:token + 1] @ w13[expert].t() + (0 if bias13 is None else bias13[expert])
        second = activate(activation, first) @ w2[expert].t() + (0 if bias2 is None else bias2[expert])
        y[token] += float(weights[token, slot]) * second[0]
    return y


def quantized(weight, kind):
    """(weight as the checkpoint has it, scales, exact weight)."""
    experts, rows, columns = weight.shape
    if kind == "int8":
        scale = weight.abs().amax(2, keepdim=True) / 127
        stored = (weight / scale).round().to(torch.int8)
        return stored, scale, stored.double() * scale
    if kind == "fp8":
        blocks = nn.functional.pad(weight, (0, -columns % 128, 0, -rows % 128)).unflatten(1, (-1, 128)).unflatten(3, (-1, 128))
        scale = blocks.abs().amax((2, 4)) / 448
        full = scale.repeat_interleave(128, 1).repeat_interleave(128, 2)[:, :rows, :columns]
        stored = (weight / full).to(FP8)
        return stored, scale, stored.double() * full
    if kind == "mxfp4":
        groups = weight.unflatten(2, (-1, 32))
        exponent = torch.floor(torch.log2(groups.abs().amax(3, keepdim=True).clamp(min=1e-30))) - 2
        code = (groups.unsqueeze(-1) / 2 ** exponent.unsqueeze(-1) - E2M1).abs().argmin(-1)
        exact = (E2M1[code] * 2 ** exponent).flatten(2).double()
        code = code.flatten(2)
        return (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8), (exponent.squeeze(3) + 127).to(torch.uint8), exact
    return weight.clone(), None, weight.double()


def replace_parameter(layer, name, tensor):
    setattr(layer, name, nn.Parameter(tensor.detach(), requires_grad=False))


class ExpertsBase:
    """What vLLM's classes of experts have of their settings."""

    def __init__(self, moe_config, quant_config):
        self.moe_config, self.quant_config = moe_config, quant_config

    w1_scale = property(lambda self: self.quant_config.w1_scale)
    w2_scale = property(lambda self: self.quant_config.w2_scale)
    w1_bias = property(lambda self: self.quant_config.w1_bias)
    w2_bias = property(lambda self: self.quant_config.w2_bias)


def modules(vllm, amx):
    """The modules by name; `vllm` gets Experts, the class that tests make layers of. amx: this CPU has it."""
    calls = vllm.calls
    calls["experts"] = 0

    class FusedMoEExpertsModular(ExpertsBase):
        def process_weights_after_loading(self, layer):
            pass

        def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map, a1q_scale, a2_scale,
                  workspace13, workspace2, expert_tokens_meta, apply_router_weight_on_input):
            calls["experts"] += 1
            assert expert_map is None, "vLLM's CPU kernels do not read it"
            weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
            w1, w2 = (self.unpacked(w, scale) for w, scale in ((w1, self.w1_scale), (w2, self.w2_scale)))
            bias1, bias2 = (bias if bias is None else bias.float() for bias in (self.w1_bias, self.w2_bias))
            output.copy_(mixture(hidden_states.float(), w1, w2, bias1, bias2, weights, topk_ids, activation))

    class CPUUnquantizedExperts(FusedMoEExpertsModular):
        @staticmethod
        def _supports_current_device():
            return True

        def process_weights_after_loading(self, layer):
            replace_parameter(layer, "w13_weight", layer.w13_weight.flip(2))
            replace_parameter(layer, "w2_weight", layer.w2_weight.flip(2))

        def unpacked(self, weight, scale):
            return weight.flip(2).float()

    class X86CPUUnquantizedExperts(CPUUnquantizedExperts):
        @staticmethod
        def _supports_current_device():
            return amx

    class NeedsAmx(FusedMoEExpertsModular):
        @staticmethod
        def _supports_current_device():
            return amx

    class CPUExpertsFp8(NeedsAmx):
        def unpacked(self, weight, scale):
            plain = weight.view(torch.uint8).flip(2).view(FP8).float()
            return plain * scale.repeat_interleave(128, 1).repeat_interleave(128, 2)[:, :plain.shape[1], :plain.shape[2]]

    class CPUExpertsMxfp4(NeedsAmx):
        def unpacked(self, weight, scale):
            plain = weight.flip(2).int()
            code = torch.stack((plain & 15, plain >> 4), 3).flatten(2)
            return E2M1[code] * 2.0 ** (scale.flip(2).float().repeat_interleave(32, 2) - 127)

    class CPUExpertsInt8(NeedsAmx):
        def process_weights_after_loading(self, layer):
            CPUUnquantizedExperts.process_weights_after_loading(self, layer)

        def unpacked(self, weight, scale):
            return weight.flip(2).float() * scale

    class CPUExpertsInt4(NeedsAmx):
        pass

    def prepare_fp8_moe_layer_for_cpu(w13, w2):
        return w13.view(torch.uint8).flip(2).view(FP8), w2.view(torch.uint8).flip(2).view(FP8)

    def prepare_mxfp4_moe_layer_for_cpu(w13, w2, w13_scale, w2_scale):
        return w13.flip(2), w2.flip(2), w13_scale.flip(2), w2_scale.flip(2)

    class FusedMoEKernel:
        def __init__(self, fused_experts):
            self.fused_experts = fused_experts

        def apply(self, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map, apply_router_weight_on_input,
                  shared_experts=None, shared_experts_input=None):
            output = torch.empty_like(hidden_states)
            if apply_router_weight_on_input:
                assert topk_ids.size(1) == 1
                hidden_states = hidden_states * topk_weights.to(hidden_states.dtype)
            nothing = torch.empty(0)
            self.fused_experts.apply(output=output, hidden_states=hidden_states, w1=w1, w2=w2, topk_weights=topk_weights, topk_ids=topk_ids,
                                     activation=activation, global_num_experts=global_num_experts, expert_map=expert_map, a1q_scale=None, a2_scale=None,
                                     workspace13=nothing, workspace2=nothing, expert_tokens_meta=None,
                                     apply_router_weight_on_input=apply_router_weight_on_input)
            return output

    def chosen(classes):
        for experts in classes:
            if experts._supports_current_device():
                return experts
        raise NotImplementedError("no backend supports the deployment configuration")

    class UnquantizedFusedMoEMethod:
        moe_kernel = None

        def __init__(self, moe, kind):
            self.moe = moe
            of_kind = {"fp8": [CPUExpertsFp8], "mxfp4": [CPUExpertsMxfp4], "int8": [CPUExpertsInt8], "int4": [CPUExpertsInt4]}
            self.experts_cls = chosen(of_kind.get(kind, [X86CPUUnquantizedExperts, CPUUnquantizedExperts]))

        def convert(self, layer):
            pass

        def process_weights_after_loading(self, layer):
            self.convert(layer)
            scales = [getattr(layer, f"{name}_{layer.scale_name}", None) for name in ("w13", "w2")]
            biases = [getattr(layer, f"{name}_bias", None) for name in ("w13", "w2")]
            config = types.SimpleNamespace(w1_scale=scales[0], w2_scale=scales[1], w1_bias=biases[0], w2_bias=biases[1])
            self.moe_kernel = FusedMoEKernel(self.experts_cls(moe_config=self.moe, quant_config=config))
            if self.experts_cls is not CPUExpertsFp8:
                self.moe_kernel.fused_experts.process_weights_after_loading(layer)

        def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
            return self.moe_kernel.apply(hidden_states=x, w1=layer.w13_weight, w2=layer.w2_weight, topk_weights=topk_weights, topk_ids=topk_ids,
                                         activation=layer.activation, apply_router_weight_on_input=layer.apply_router_weight_on_input,
                                         global_num_experts=layer.global_num_experts, expert_map=layer.expert_map, shared_experts=shared_experts,
                                         shared_experts_input=shared_experts_input)

    class Fp8MoEMethod(UnquantizedFusedMoEMethod):
        def convert(self, layer):
            w13, w2 = sys.modules[EXPERTS].prepare_fp8_moe_layer_for_cpu(layer.w13_weight, layer.w2_weight)
            replace_parameter(layer, "w13_weight", w13)
            replace_parameter(layer, "w2_weight", w2)

    class GptOssMxfp4MoEMethod(UnquantizedFusedMoEMethod):
        def convert(self, layer):
            names = "w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale"
            packed = sys.modules[EXPERTS].prepare_mxfp4_moe_layer_for_cpu(*(getattr(layer, name).data for name in names))
            for name, tensor in zip(names, packed):
                replace_parameter(layer, name, tensor)
            for name in ("w13_bias", "w2_bias"):
                if hasattr(layer, name):
                    replace_parameter(layer, name, getattr(layer, name).data.to(torch.float32))

    class RoutedExperts(nn.Module):
        def __init__(self, layer_name, params_dtype, moe_config, quant_config, expert_map_manager, swiglu_limit=None, swiglu_alpha=None,
                     swiglu_beta=None, apply_router_weight_on_input=False):
            super().__init__()
            self.moe_config, self.quant_config, self.expert_map = moe_config, quant_config, expert_map_manager
            self.global_num_experts, self.top_k, self.activation = moe_config.num_experts, moe_config.experts_per_token, moe_config.activation
            self.swiglu_limit, self.swiglu_alpha, self.swiglu_beta = swiglu_limit, swiglu_alpha, swiglu_beta
            self.apply_router_weight_on_input = apply_router_weight_on_input
            method = {"fp8": Fp8MoEMethod, "mxfp4": GptOssMxfp4MoEMethod}.get(quant_config, UnquantizedFusedMoEMethod)
            self.quant_method = method(moe_config, quant_config)

    class Experts(RoutedExperts):
        """A layer with random weights; `exact`: those in double precision."""

        def __init__(self, kind=None, experts=8, topk=2, n=64, k=128, activation="silu", bias=False, dtype=torch.bfloat16, expert_map=None, lora=False,
                     seed=0, **options):
            config = types.SimpleNamespace(num_experts=experts if expert_map is None else len(expert_map), experts_per_token=topk,
                                           activation=MoEActivation(activation), in_dtype=dtype, is_lora_enabled=lora)
            super().__init__("experts", dtype, config, kind, expert_map, **options)
            random = torch.Generator().manual_seed(seed)
            self.scale_name, self.exact = "weight_scale_inv" if kind == "fp8" else "weight_scale", {}
            for name, shape in (("w13", (experts, 2 * n, k)), ("w2", (experts, k, n))):
                weight = (torch.randn(shape, generator=random) / math.sqrt(shape[2])).to(dtype)
                stored, scale, self.exact[name] = quantized(weight if kind is None else weight.float(), kind)
                replace_parameter(self, f"{name}_weight", stored)
                if scale is not None:
                    replace_parameter(self, f"{name}_{self.scale_name}", scale)
                self.exact[f"{name}_bias"] = torch.randn(shape[:2], generator=random).to(dtype) if bias else None
                if bias:
                    replace_parameter(self, f"{name}_bias", self.exact[f"{name}_bias"].clone())

        def forward(self, x, topk_weights, topk_ids):
            return self.quant_method.apply(self, x, topk_weights, topk_ids, None, None)

        def reference(self, x, topk_weights, topk_ids):
            biases = [bias if bias is None else bias.double() for bias in (self.exact["w13_bias"], self.exact["w2_bias"])]
            if self.apply_router_weight_on_input:
                x, topk_weights = x * topk_weights.to(x.dtype), torch.ones_like(topk_weights)
            return mixture(x.double(), self.exact["w13"], self.exact["w2"], *biases, topk_weights.double(), topk_ids, self.activation)

    vllm.Experts = Experts
    return {ROUTED: {"RoutedExperts": RoutedExperts},
            EXPERTS: {one.__name__: one for one in (CPUUnquantizedExperts, X86CPUUnquantizedExperts, CPUExpertsFp8, CPUExpertsMxfp4, CPUExpertsInt8,
                                                    prepare_fp8_moe_layer_for_cpu, prepare_mxfp4_moe_layer_for_cpu)}}
