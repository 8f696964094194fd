"""The part of the double of vLLM (vllm_double.py) that has mixtures of experts of GPUs, as vLLM 0.24.0 has them on Hopper: experts of Triton that
read the checkpoint's weights, a kernel of two objects (one quantizes x, one multiplies) whose result is copied, and MXFP4 experts of gpt-oss
that repack weights, some of which choose a token's experts themselves (monolithic). Repacked here means reversed.

int4 and NVFP4 experts follow quantization/compressed_tensors/compressed_tensors_moe/compressed_tensors_moe_{wna16_marlin,wna16,w4a4_nvfp4}.py,
auto_awq.py, auto_gptq.py and modelopt.py: names and shapes of a layer's parameters, their dtypes, and which of them the method gives the kernel.
Marlin's repacked weight is here the exact one in float32.

A layer pads x to moe_config.hidden_dim, to which its method may have rounded the model's size up, and cuts the result. vLLM's warm-up of
kernels asks a method for a quant config, which that of repacked weights makes of its own operands alone."""

import enum
import math
import types

import torch
from quantized import Int4, random_nvfp4, values
from torch import nn
from vllm_mixtures_double import E2M1, FP8, ROUTED, ExpertsBase, MoEActivation, mixture, quantized, replace_parameter

from gemmtune import checkpoints

FUSED_MOE = "vllm.model_executor.layers.fused_moe"
QUANTIZATION = "vllm.model_executor.layers.quantization"
COMPRESSED = f"{QUANTIZATION}.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe"
NVFP4 = ("nvfp4", "modelopt nvfp4")


class Mxfp4MoeBackend(enum.Enum):
    TRITON = "TRITON"
    MARLIN = "MARLIN"
    DEEPGEMM_MXFP4 = "DEEPGEMM_MXFP4"


class WNA16MoEBackend(enum.Enum):
    MARLIN = "MARLIN"
    FLASHINFER_TRTLLM = "FLASHINFER_TRTLLM"


class NvFp4MoeBackend(enum.Enum):
    MARLIN = "MARLIN"
    FLASHINFER_CUTLASS = "FLASHINFER_CUTLASS"


class ActivationOrdering(str, enum.Enum):
    GROUP = "group"
    WEIGHT = "weight"


def routed(logits, topk):
    """(weights, ids) of the experts with the largest logits."""
    chosen, ids = logits.topk(topk)
    return torch.softmax(chosen.float(), 1), ids.to(torch.int32)


def dequantized(weight, scale, config):
    if config.quant_dtype is None:
        return weight.float()
    if config.block_shape:
        scale = scale.repeat_interleave(128, 1).repeat_interleave(128, 2)[:, :weight.shape[1], :weight.shape[2]]
    return weight.float() * scale


def modules(vllm):
    """The modules by name; `vllm` gets GpuExperts, the class that tests make layers of."""
    calls = vllm.calls
    calls["gpu experts"] = 0

    class FusedMoEQuantConfig:
        def __init__(self, quant_dtype=None, block_shape=None, per_act_token_quant=False, per_out_ch_quant=False, w1_scale=None, w2_scale=None,
                     w1_bias=None, w2_bias=None, a1_scale=None, a2_scale=None):
            self.quant_dtype, self.block_shape, self.per_act_token_quant = quant_dtype, block_shape, per_act_token_quant
            self.per_out_ch_quant, self.w1_scale, self.w2_scale, self.w1_bias, self.w2_bias = per_out_ch_quant, w1_scale, w2_scale, w1_bias, w2_bias
            self.a1_scale, self.a2_scale = a1_scale, a2_scale

        @staticmethod
        def make(quant_dtype=None, **others):
            return FusedMoEQuantConfig(quant_dtype, **others)

    class TritonExperts(ExpertsBase):
        def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, expert_map, a1q_scale, apply_router_weight_on_input):
            calls["gpu experts"] += 1
            config, x = self.quant_config, hidden_states.float()
            if a1q_scale is not None:
                x = x * a1q_scale.repeat_interleave(x.shape[1] // a1q_scale.shape[1], 1)
            if expert_map is not None:
                topk_ids = torch.where(topk_ids < 0, topk_ids, expert_map[topk_ids.clamp(min=0).long()])
            weights = torch.ones_like(topk_weights) if apply_router_weight_on_input else topk_weights
            biases = [None if bias is None else bias.float() for bias in (self.w1_bias, self.w2_bias)]
            output.copy_(mixture(x, dequantized(w1, self.w1_scale, config), dequantized(w2, self.w2_scale, config), *biases, weights, topk_ids,
                                 activation))

    class UnknownExperts(TritonExperts):
        pass

    class Repacked(ExpertsBase):
        def multiply(self, x, w1, w2, weights, ids, activation):
            calls["gpu experts"] += 1
            unpacked = []
            for weight, scale in ((w1, self.w1_scale), (w2, self.w2_scale)):
                plain = weight.flip(2).int()
                code = torch.stack((plain & 15, plain >> 4), 3).flatten(2)
                unpacked.append(E2M1[code] * 2.0 ** (scale.flip(2).float().repeat_interleave(32, 2) - 127))
            return mixture(x.float(), *unpacked, self.w1_bias.float(), self.w2_bias.float(), weights, ids, activation).to(x.dtype)

    class MarlinExperts(Repacked):
        def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, **others):
            output.copy_(self.multiply(hidden_states, w1, w2, topk_weights, topk_ids, activation))

    class OAITritonMxfp4ExpertsMonolithic(Repacked):
        pass

    class MarlinExpertsOf4Bits(ExpertsBase):
        def apply(self, output, hidden_states, w1, w2, topk_weights, topk_ids, activation, **others):
            calls["gpu experts"] += 1
            output.copy_(mixture(hidden_states.float(), w1, w2, None, None, topk_weights, topk_ids, activation))

    class MoEPrepareAndFinalizeNoDPEPModular:
        def topk_indices_dtype(self):
            return None

        def prepare(self, a1, topk_weights, topk_ids, num_experts, expert_map, apply_router_weight_on_input, quant_config, defer_input_quant=False):
            if apply_router_weight_on_input:
                assert topk_ids.size(1) == 1
                a1 = a1 * topk_weights.to(a1.dtype)
            if quant_config.quant_dtype is None:
                return a1, None, None, None, None
            groups = a1.float().unflatten(1, (1, -1) if quant_config.per_act_token_quant else (-1, 128))
            most = 127 if quant_config.quant_dtype is torch.int8 else 448
            scale = groups.abs().amax(2, keepdim=True).clamp(min=1e-12) / most
            x = groups / scale
            x = (x.round() if most == 127 else x).to(quant_config.quant_dtype).flatten(1)
            return x, scale.squeeze(2), None, None, None

    class Monolithic:
        def topk_indices_dtype(self):
            return None

    class Exchanging(MoEPrepareAndFinalizeNoDPEPModular):
        pass

    class FusedMoEKernel:
        def __init__(self, prepare_finalize, fused_experts):
            self.prepare_finalize, self.fused_experts = prepare_finalize, fused_experts
            self.is_monolithic = isinstance(fused_experts, OAITritonMxfp4ExpertsMonolithic)

        def output_is_reduced(self):
            return False

        def apply(self, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts, expert_map, apply_router_weight_on_input,
                  shared_experts=None, shared_experts_input=None):
            output, fused_out = torch.empty_like(hidden_states), torch.empty_like(hidden_states)
            x, x_scale, *_ = self.prepare_finalize.prepare(hidden_states, topk_weights, topk_ids, global_num_experts, expert_map,
                                                           apply_router_weight_on_input, self.fused_experts.quant_config)
            self.fused_experts.apply(output=fused_out, hidden_states=x, w1=w1, w2=w2, topk_weights=topk_weights, topk_ids=topk_ids,
                                     activation=activation, expert_map=expert_map, a1q_scale=x_scale,
                                     apply_router_weight_on_input=apply_router_weight_on_input)
            return output.copy_(fused_out)

        def apply_monolithic(self, hidden_states, w1, w2, router_logits, activation, **others):
            return self.fused_experts.multiply(hidden_states, w1, w2, *routed(router_logits, self.fused_experts.moe_config.experts_per_token), activation)

    class Method:
        moe_kernel = moe_quant_config = None

        @property
        def is_monolithic(self):
            return self.moe_kernel.is_monolithic

        def apply(self, layer, x, topk_weights, topk_ids):
            return self.moe_kernel.apply(x, layer.w13_weight, layer.w2_weight, topk_weights, topk_ids, activation=layer.activation,
                                         global_num_experts=layer.global_num_experts, expert_map=layer.expert_map,
                                         apply_router_weight_on_input=layer.apply_router_weight_on_input, shared_experts=None, shared_experts_input=None)

        def apply_monolithic(self, layer, x, router_logits):
            return self.moe_kernel.apply_monolithic(hidden_states=x, w1=layer.w13_weight, w2=layer.w2_weight, router_logits=router_logits,
                                                    activation=layer.activation)

    class UnquantizedFusedMoEMethod(Method):
        """bf16, fp16, fp8 and int8. The kernel of unquantized experts stays when weights are loaded again."""

        def __init__(self, kind, options):
            self.kind, self.experts_cls = kind, UnknownExperts if options.get("unknown") else TritonExperts
            self.exchanges, self.static = options.get("exchanges"), options.get("static")

        def round_up(self, n, k):
            return n, k

        def get_fused_moe_quant_config(self, layer):
            kinds = {"fp8": {"quant_dtype": FP8, "block_shape": [128, 128]}, "int8": {"quant_dtype": torch.int8, "per_act_token_quant": True,
                                                                                     "per_out_ch_quant": True}}
            operands = {f"{to}_{part}": getattr(layer, f"{name}_{of}", None) for to, name in (("w1", "w13"), ("w2", "w2"))
                        for part, of in (("scale", layer.scale_name), ("bias", "bias"))}
            return FusedMoEQuantConfig.make(**kinds.get(self.kind, {}), **operands, a1_scale=torch.ones(1) if self.static else None)

        def process_weights_after_loading(self, layer):
            if self.moe_kernel is None or self.kind is not None:
                self.moe_quant_config = self.get_fused_moe_quant_config(layer)
                self.moe_kernel = FusedMoEKernel((Exchanging if self.exchanges else MoEPrepareAndFinalizeNoDPEPModular)(),
                                                 self.experts_cls(layer.moe_config, self.moe_quant_config))
                if self.exchanges:
                    self.moe_kernel.prepare_finalize = Monolithic()

    class GptOssMxfp4MoEMethod(Method):
        def __init__(self, kind, options):
            self.mxfp4_backend = Mxfp4MoeBackend[options.get("backend", "TRITON")]
            self.precision = None

        def round_up(self, n, k):
            return (-(-n // 128) * 128, -(-k // 256) * 256) if self.mxfp4_backend is Mxfp4MoeBackend.MARLIN else (n, k)

        def get_fused_moe_quant_config(self, layer):
            assert self.precision is not None
            return FusedMoEQuantConfig(None, w1_scale=layer.w13_weight_scale, w2_scale=layer.w2_weight_scale, w1_bias=layer.w13_bias,
                                       w2_bias=layer.w2_bias)

        def process_weights_after_loading(self, layer):
            for name in ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale"):
                replace_parameter(layer, name, getattr(layer, name).flip(2))
            self.precision = True
            self.moe_quant_config = self.get_fused_moe_quant_config(layer)
            marlin = self.mxfp4_backend is Mxfp4MoeBackend.MARLIN
            self.moe_kernel = FusedMoEKernel((MoEPrepareAndFinalizeNoDPEPModular if marlin else Monolithic)(),
                                             (MarlinExperts if marlin else OAITritonMxfp4ExpertsMonolithic)(layer.moe_config, self.moe_quant_config))

    class MarlinMethod(Method):
        """run: the name behind w13_ and w2_ of the weights that apply() gives the kernel."""

        run = "weight"

        def round_up(self, n, k):
            return n, k

        def get_fused_moe_quant_config(self, layer):
            return FusedMoEQuantConfig(None, w1_scale=getattr(layer, self.scale_of("w13")), w2_scale=getattr(layer, self.scale_of("w2")))

        def repack(self, layer, weight):
            for name in ("w13", "w2"):
                replace_parameter(layer, f"{name}_{weight}", layer.exact[name].float())
            self.moe_quant_config = self.get_fused_moe_quant_config(layer)
            self.moe_kernel = FusedMoEKernel(MoEPrepareAndFinalizeNoDPEPModular(), MarlinExpertsOf4Bits(layer.moe_config, self.moe_quant_config))

        def apply(self, layer, x, topk_weights, topk_ids):
            w1, w2 = (getattr(layer, f"{name}_{self.run}") for name in ("w13", "w2"))
            return self.moe_kernel.apply(x, w1, w2, topk_weights, topk_ids, activation=layer.activation, global_num_experts=layer.global_num_experts,
                                         expert_map=layer.expert_map, apply_router_weight_on_input=layer.apply_router_weight_on_input)

    class CompressedTensorsWNA16MarlinMoEMethod(MarlinMethod):
        transposed = True

        def __init__(self, kind, options):
            self.num_bits, self.group_size, self.symmetric = options.get("bits", 4), options.get("group", 32), not options.get("zero_points", False)
            self.weight_quant = types.SimpleNamespace(actorder=options.get("actorder"), symmetric=self.symmetric)
            self.wna16_backend = WNA16MoEBackend[options.get("backend", "MARLIN")]

        def scale_of(self, name):
            return f"{name}_weight_scale"

        def create(self, layer, name, expert):
            """The parameters of one weight; expert: the matrices in the checkpoint."""
            made = [one.compressed() for one in expert]

            def put(part):
                stacked = torch.stack([one[part] for one in made])
                replace_parameter(layer, f"{name}_{part}", stacked.transpose(1, 2).contiguous() if self.transposed else stacked)
                if self.transposed:
                    getattr(layer, f"{name}_{part}").is_transposed = True
            for part in ("weight_packed", "weight_scale", *(() if self.symmetric else ("weight_zero_point",))):
                put(part)
            replace_parameter(layer, f"{name}_weight_shape", torch.empty(len(made), 2))
            for part in ("weight_g_idx", "g_idx_sort_indices"):  # as the memory was
                replace_parameter(layer, f"{name}_{part}", torch.full((len(made), expert[0].q.shape[1]), -77, dtype=torch.int32))

        def process_weights_after_loading(self, layer):
            assert layer.w13_weight_packed.dtype is torch.int32
            self.repack(layer, "weight_packed")
            layer.w13_weight, layer.w2_weight = layer.w13_weight_packed, layer.w2_weight_packed

    class CompressedTensorsWNA16MoEMethod(CompressedTensorsWNA16MarlinMoEMethod):
        """For what Marlin does not take: a kernel of Triton without an object, whose weights have no other name."""

        run = "weight_packed"

        def __init__(self, kind, options):
            super().__init__(kind, options)
            del self.wna16_backend

        def process_weights_after_loading(self, layer):
            self.repack(layer, "weight_packed")

    class AutoGPTQMoEMethod(MarlinMethod):
        run = "qweight"

        def __init__(self, kind, options):
            self.quant_config = types.SimpleNamespace(weight_bits=options.get("bits", 4), group_size=options.get("group", 32),
                                                      desc_act=options.get("desc_act", False), zero_point=options.get("zero_points", kind == "awq"))
            self.wna16_moe_backend = WNA16MoEBackend[options.get("backend", "MARLIN")]

        def scale_of(self, name):
            return f"{name}_scales"

        def create(self, layer, name, expert):
            made = [one.gptq() for one in expert]
            for part in ("qweight", "scales"):
                replace_parameter(layer, f"{name}_{part}", torch.stack([one[part] for one in made]))
            replace_parameter(layer, f"{name}_qzeros", torch.stack([one["qzeros"] for one in made]).to(torch.bfloat16))  # vLLM does not read them
            for part in ("g_idx", "g_idx_sort_indices"):
                replace_parameter(layer, f"{name}_{part}", torch.full((len(made), expert[0].q.shape[1]), -77, dtype=torch.int32))

        def process_weights_after_loading(self, layer):
            assert layer.w13_qweight.dtype is torch.int32
            self.repack(layer, "qweight")

    class AutoAWQMoEMethod(AutoGPTQMoEMethod):
        def create(self, layer, name, expert):
            made = [one.awq() for one in expert]
            for part in ("qweight", "scales", "qzeros"):
                replace_parameter(layer, f"{name}_{part}", torch.stack([one[part] for one in made]))

    class CompressedTensorsW4A4Nvfp4MoEMethod(MarlinMethod):
        """A checkpoint's global scales divide."""

        names, divides = ("weight_packed", "weight_scale", "weight_global_scale"), True

        def __init__(self, kind, options):
            self.nvfp4_backend = NvFp4MoeBackend[options.get("backend", "MARLIN")]

        def scale_of(self, name):
            return f"{name}_weight_scale"

        def create(self, layer, name, weight, scale, global_scale):
            """global_scale: [E] or [E, 2], which multiplies."""
            tensors = weight, scale, (1 / global_scale if self.divides else global_scale).float()
            for part, tensor in zip(self.names, tensors):
                replace_parameter(layer, f"{name}_{part}", tensor)
            replace_parameter(layer, f"{name}_input{'_global' if self.divides else ''}_scale", torch.full(global_scale.shape, math.nan))

        def process_weights_after_loading(self, layer):
            assert layer.w13_weight_scale.dtype is FP8
            for name in ("w13", "w2") if self.divides else ():
                setattr(layer, f"{name}_weight", getattr(layer, f"{name}_weight_packed"))
                delattr(layer, f"{name}_weight_packed")
            self.repack(layer, "weight")

    class ModelOptNvFp4FusedMoE(CompressedTensorsW4A4Nvfp4MoEMethod):
        names, divides = ("weight", "weight_scale", "weight_scale_2"), False

    of_4_bits = {"int4": CompressedTensorsWNA16MarlinMoEMethod, "awq": AutoAWQMoEMethod, "gptq": AutoGPTQMoEMethod,
                 "nvfp4": CompressedTensorsW4A4Nvfp4MoEMethod, "modelopt nvfp4": ModelOptNvFp4FusedMoE,
                 "int4 by Triton": CompressedTensorsWNA16MoEMethod, "mxfp4": GptOssMxfp4MoEMethod}

    class RoutedExperts(nn.Module):
        def __init__(self, moe_config, kind, options):
            super().__init__()
            self.moe_config, self.expert_map = moe_config, options.get("expert_map")
            self.global_num_experts, self.top_k, self.activation = moe_config.num_experts, moe_config.experts_per_token, moe_config.activation
            self.swiglu_limit = options.get("swiglu_limit")
            self.apply_router_weight_on_input = options.get("apply_router_weight_on_input", False)
            self.quant_method = of_4_bits.get(kind, UnquantizedFusedMoEMethod)(kind, options)

    class GpuExperts(RoutedExperts):
        """A layer with random weights, whose forward() gets the router's logits; `exact`: the weights in double precision."""

        def __init__(self, kind=None, experts=8, topk=2, n=64, k=128, activation="silu", bias=False, dtype=torch.bfloat16, lora=False, dp_size=1,
                     moe_backend="auto", **options):
            config = types.SimpleNamespace(num_experts=experts, experts_per_token=topk, activation=MoEActivation(activation), in_dtype=dtype,
                                           is_lora_enabled=lora, dp_size=dp_size, moe_backend=moe_backend, hidden_dim=k, hidden_dim_unpadded=k,
                                           intermediate_size_per_partition=n, intermediate_size_per_partition_unpadded=n)
            super().__init__(config, kind, options)
            self.options = options
            config.intermediate_size_per_partition, config.hidden_dim = self.quant_method.round_up(n, k)
            self.scale_name = "weight_scale_inv" if kind == "fp8" else "weight_scale"
            self.load(kind, experts, n, k, bias, dtype)

        def load(self, kind, experts, n, k, bias, dtype, seed=0):
            if isinstance(self.quant_method, MarlinMethod):
                torch.manual_seed(seed)
                self.exact = {"w13_bias": None, "w2_bias": None}
                (self.load_nvfp4 if kind in NVFP4 else self.load_int4)(experts, n, k, dtype)
                return
            random = torch.Generator().manual_seed(seed)
            padded_n, padded_k, self.exact = self.moe_config.intermediate_size_per_partition, self.moe_config.hidden_dim, {}
            for name, shape, padded in (("w13", (experts, 2 * n, k), (2 * padded_n, padded_k)), ("w2", (experts, k, n), (padded_k, padded_n))):
                weight = (torch.randn(shape, generator=random) / math.sqrt(shape[2])).to(dtype)
                stored, scale, self.exact[name] = quantized(weight if kind is None else weight.float(), kind)
                self.put(f"{name}_weight", stored, padded[0], padded[1] * stored.shape[2] // k if name == "w13" else padded[1] * stored.shape[2] // n)
                if scale is not None:
                    self.put(f"{name}_{self.scale_name}", scale, *(scale.shape[1:] if kind != "mxfp4" else (padded[0], padded[1] // 32)))
                self.exact[f"{name}_bias"] = torch.randn(shape[:2], generator=random).to(dtype) if bias else None
                if bias:
                    self.put(f"{name}_bias", self.exact[f"{name}_bias"], padded[0])

        def load_int4(self, experts, n, k, dtype):
            zeros = (0, 15) if self.options.get("zero_points", type(self.quant_method) is AutoAWQMoEMethod) else (8, 8)
            for name, rows, width in (("w13", 2 * n, k), ("w2", k, n)):
                made = [Int4(rows, width, self.options.get("group", 32), zeros, dtype) for _ in range(experts)]
                for one in made:
                    one.scales /= 8 * math.sqrt(width)
                self.exact[name] = torch.stack([one.values() for one in made])
                self.quant_method.create(self, name, made)

        def load_nvfp4(self, experts, n, k, dtype):
            """up_over_gate: of the global scales of gate and up."""
            for name, rows, width in (("w13", 2 * n, k), ("w2", k, n)):
                made = [random_nvfp4(rows, width) for _ in range(experts)]
                weight, scale = (torch.stack([one[place] for one in made]) for place in range(2))
                scale = (scale.float() / 64).to(FP8)
                global_scale = (torch.rand(experts) + 0.5) / math.sqrt(width) / 4
                exact = torch.stack([values(checkpoints.modelopt_nvfp4(*one)) for one in zip(weight, scale, global_scale)])
                if name == "w13":
                    global_scale = torch.stack((global_scale, global_scale * self.options.get("up_over_gate", 1)), 1)
                    exact[:, n:] *= (global_scale[:, 1] / global_scale[:, 0]).double().reshape(-1, 1, 1)
                self.exact[name] = exact
                self.quant_method.create(self, name, weight, scale, global_scale)

        def put(self, name, tensor, *shape):
            """A parameter of that shape whose first elements are the tensor's."""
            whole = torch.zeros(len(tensor), *shape, dtype=torch.float32 if tensor.dtype is FP8 else tensor.dtype)
            whole[tuple(slice(0, size) for size in tensor.shape)] = tensor.to(whole.dtype)
            replace_parameter(self, name, whole.to(tensor.dtype))

        def forward(self, x, logits):
            self.quant_method.get_fused_moe_quant_config(self)  # as the warm-up of DeepGEMM's kernels does
            assert self.quant_method.moe_quant_config is not None
            columns = x.shape[1]
            x = nn.functional.pad(x, (0, self.moe_config.hidden_dim - columns))
            if self.quant_method.is_monolithic:
                return self.quant_method.apply_monolithic(self, x, logits)[:, :columns]
            return self.quant_method.apply(self, x, *routed(logits, self.top_k))[:, :columns]

        def reference(self, x, logits):
            weights, ids = routed(logits, self.top_k)
            biases = [bias if bias is None else bias.double() for bias in (self.exact["w13_bias"], self.exact["w2_bias"])]
            if self.apply_router_weight_on_input:
                x, weights = x * weights.to(x.dtype), torch.ones_like(weights)
            if self.expert_map is not None:
                ids = self.expert_map[ids.long()]
            return mixture(x.double(), self.exact["w13"], self.exact["w2"], *biases, weights.double(), ids, self.activation)

    vllm.GpuExperts, vllm.Int4Method, vllm.GptqMethod = GpuExperts, CompressedTensorsWNA16MarlinMoEMethod, AutoGPTQMoEMethod
    return {ROUTED: {"RoutedExperts": RoutedExperts},
            f"{FUSED_MOE}.modular_kernel": {"FusedMoEKernel": FusedMoEKernel},
            f"{FUSED_MOE}.config": {"FusedMoEQuantConfig": FusedMoEQuantConfig},
            f"{FUSED_MOE}.prepare_finalize.no_dp_ep": {"MoEPrepareAndFinalizeNoDPEPModular": MoEPrepareAndFinalizeNoDPEPModular},
            f"{FUSED_MOE}.experts.triton_moe": {"TritonExperts": TritonExperts},
            f"{QUANTIZATION}.mxfp4": {"GptOssMxfp4MoEMethod": GptOssMxfp4MoEMethod},
            f"{QUANTIZATION}.auto_awq": {"AutoAWQMoEMethod": AutoAWQMoEMethod}, f"{QUANTIZATION}.auto_gptq": {"AutoGPTQMoEMethod": AutoGPTQMoEMethod},
            f"{QUANTIZATION}.modelopt": {"ModelOptNvFp4FusedMoE": ModelOptNvFp4FusedMoE},
            f"{COMPRESSED}_wna16_marlin": {"CompressedTensorsWNA16MarlinMoEMethod": CompressedTensorsWNA16MarlinMoEMethod},
            f"{COMPRESSED}_wna16": {"CompressedTensorsWNA16MoEMethod": CompressedTensorsWNA16MoEMethod},
            f"{COMPRESSED}_w4a4_nvfp4": {"CompressedTensorsW4A4Nvfp4MoEMethod": CompressedTensorsW4A4Nvfp4MoEMethod}}
