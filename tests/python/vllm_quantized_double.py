"""The part of the double of vLLM (vllm_double.py) that has linear layers with 4-bit weights, as the CPU backend of vLLM 0.32.0 and vLLM 0.24.0
on a GPU have them.

int4: one kernel for AWQ, GPTQ and compressed-tensors, which holds the names of a layer's parameters. Parameters say where their inputs and
outputs lie (input_dim, output_dim): AWQ's and GPTQ's words are [K/8, N] with scales [K/g, N], those of compressed-tensors [N, K/8] and [N, K/g].
Zero points are [N/8, K/g] of both. GPTQ's layers are symmetric and still have zero points, which the kernel ignores. The kernel repacks the
words in their place. Its product here is that of the repacked weight alone.

NVFP4 and MXFP4: no kernel of vLLM runs on a CPU, and a layer is refused when it is made; those that are registered are asked first.

On a GPU int4 layers have Machete's or Marlin's kernel, NVFP4 and MXFP4 layers Marlin's, which repack the weight in its place too."""

import types
from dataclasses import dataclass

import torch
from quantized import Int4, random_nvfp4, values
from torch import nn

from gemmtune import checkpoints

KERNELS = "vllm.model_executor.kernels.linear"
scalar_types = types.SimpleNamespace(uint4="uint4", uint4b8="uint4b8")
dynamic_mxfp4 = object()  # kMxfp4Dynamic


@dataclass
class MPLinearLayerConfig:
    full_weight_shape: tuple
    partition_weight_shape: tuple
    weight_type: str
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    has_g_idx: bool = False


@dataclass
class Fp4Config:
    activation_quant_key: object = None


class Fp4Base:
    def __init__(self, config):
        assert self.can_implement(config)[0]
        assert self.is_supported()[0]
        self.config = config


class NvFp4LinearKernel(Fp4Base):
    pass


class MxFp4LinearKernel(Fp4Base):
    pass


def nibbles(words, dim):
    """int32 words unpacked along a dimension, the lowest nibble first."""
    return torch.stack([words >> 4 * i & 15 for i in range(8)], dim + 1).flatten(dim, dim + 1)


def parameter(tensor, **where):
    made = nn.Parameter(tensor, requires_grad=False)
    for name, value in where.items():
        setattr(made, name, value)
    return made


def modules(vllm, registered, on_gpu):
    """The modules by name; `vllm` gets FourBit, the class that tests make layers of. registered: lists of kernels that the plug-in adds to."""
    calls = vllm.calls
    calls["int4"] = 0

    class WNA16Kernel:
        def __init__(self, c, w_q_param_name, w_s_param_name, w_zp_param_name=None):
            self.config, self.w_q_name, self.w_s_name, self.w_zp_name = c, w_q_param_name, w_s_param_name, w_zp_param_name

        def process_weights_after_loading(self, layer):
            words, scales = getattr(layer, self.w_q_name), getattr(layer, self.w_s_name)
            if not self.config.zero_points and self.w_zp_name is not None:
                setattr(layer, self.w_zp_name, None)
            assert words.input_dim == words.packed_dim
            q = nibbles(words.detach() if words.input_dim == 0 else words.detach().t(), 0)
            scales = scales.detach() if scales.output_dim == 1 else scales.detach().t()
            zeros = 8
            if self.config.zero_points:
                zeros = getattr(layer, self.w_zp_name)
                zeros = nibbles(zeros.detach().t() if zeros.output_dim == 0 else zeros.detach(), 1)
                zeros = zeros.repeat_interleave(len(q) // len(zeros), 0)
            repacked = (q - zeros) * scales.double().repeat_interleave(len(q) // len(scales), 0)
            getattr(layer, self.w_q_name).data = repacked.t().contiguous()

        def apply_weights(self, layer, x, bias=None):
            calls["int4"] += 1
            y = x.double() @ getattr(layer, self.w_q_name).t()
            return (y if bias is None else y + bias).to(x.dtype)

    class CPUWNA16LinearKernel(WNA16Kernel):
        pass

    class ZentorchWNA16LinearKernel(CPUWNA16LinearKernel):
        """A class derived from it, with a product of its own."""

    class MarlinLinearKernel(WNA16Kernel):
        pass

    class MacheteLinearKernel(WNA16Kernel):
        pass

    def marlin_fp4(kind, base):
        class Kernel(base):
            @classmethod
            def is_supported(cls, compute_capability=None):
                return True, None

            @classmethod
            def can_implement(cls, config):
                return True, None

            def process_weights_after_loading(self, layer):
                layer.weight = nn.Parameter(layer.exact.clone(), requires_grad=False)

            def apply_weights(self, layer, x, bias=None):
                calls[kind] += 1
                y = x.double() @ layer.weight.t()
                return (y if bias is None else y + bias).to(x.dtype)

        calls[kind] = 0
        return Kernel

    marlin_nvfp4, marlin_mxfp4 = marlin_fp4("nvfp4", NvFp4LinearKernel), marlin_fp4("mxfp4", MxFp4LinearKernel)
    if on_gpu:
        registered["nvfp4"].append(marlin_nvfp4)
        registered["mxfp4"].append(marlin_mxfp4)

    class Method:
        """vLLM's method of a quantized layer."""

        def __init__(self, kernel):
            self.kernel = kernel

        def process_weights_after_loading(self, layer):
            if layer.kind in ("nvfp4", "mxfp4"):  # from the names of the checkpoint to those of kernels
                layer.weight = nn.Parameter(layer.weight_packed.data, requires_grad=False)
                del layer.weight_packed
            if layer.kind == "nvfp4":
                layer.weight_global_scale = nn.Parameter(1 / layer.weight_global_scale.max(), requires_grad=False)
            self.kernel.process_weights_after_loading(layer)

        def apply(self, layer, x, bias=None):
            return self.kernel.apply_weights(layer=layer, x=x, bias=bias)

    def fp4_kernel(kind, config):
        for kernel in registered[kind]:
            if kernel.is_supported()[0] and kernel.can_implement(config)[0]:
                return kernel(config)
        raise ValueError(f"Failed to find a kernel that can implement the {kind} linear layer")

    class FourBit(nn.Module):
        """A layer of vLLM: its method computes. kind: awq, gptq, compressed (symmetric), compressed with zero points, nvfp4, mxfp4."""

        def __init__(self, kind, n, k, group=128, bias=False, dtype=torch.bfloat16, zentorch=False, zero_points=None, activations=dynamic_mxfp4,
                     machete=False, reordered=False):
            super().__init__()
            self.kind = kind
            self.bias = nn.Parameter(torch.randn(n).to(dtype), requires_grad=False) if bias else None
            if kind in ("nvfp4", "mxfp4"):
                self.quant_method = Method(fp4_kernel(kind, Fp4Config(activations if kind == "mxfp4" else None)))
                getattr(self, f"load_{kind}")(n, k)
                return
            with_zeros = kind in ("awq", "compressed with zero points")
            config = MPLinearLayerConfig((k, n), (k, n), scalar_types.uint4 if kind == "awq" or with_zeros else scalar_types.uint4b8, dtype, group,
                                         with_zeros if zero_points is None else zero_points, reordered)
            self.names = ("qweight", "scales", "qzeros") if kind in ("awq", "gptq") else ("weight_packed", "weight_scale", "weight_zero_point")
            of_gpu = MacheteLinearKernel if machete else MarlinLinearKernel
            self.quant_method = Method((of_gpu if on_gpu else ZentorchWNA16LinearKernel if zentorch else CPUWNA16LinearKernel)(config, *self.names))
            self.load_int4(n, k)

        def load_int4(self, n, k):
            """The parameters as a loaded checkpoint gives them."""
            config = self.quant_method.kernel.config
            weight = Int4(n, k, config.group_size, (0, 15) if config.zero_points else (8, 8), config.act_type)
            self.exact, compressed = weight.values(), weight.compressed()
            zero_points = parameter(compressed["weight_zero_point"], output_dim=0)
            if self.kind in ("awq", "gptq"):
                tensors = (parameter(weight.gptq()["qweight"], input_dim=0, packed_dim=0), parameter(weight.gptq()["scales"], output_dim=1),
                           zero_points if config.zero_points else parameter(weight.gptq()["qzeros"], output_dim=1))
            else:
                tensors = (parameter(compressed["weight_packed"], input_dim=1, packed_dim=1), parameter(compressed["weight_scale"], output_dim=0),
                           zero_points if config.zero_points else None)
            for name, tensor in zip(self.names, tensors):
                if tensor is not None:
                    setattr(self, name, tensor)

        def load_nvfp4(self, n, k):
            weight, scale = random_nvfp4(n, k)
            self.weight_packed = nn.Parameter(weight, requires_grad=False)
            self.weight_scale = nn.Parameter(scale, requires_grad=False)
            self.weight_global_scale = nn.Parameter(torch.full((2,), 27.0, dtype=torch.float32), requires_grad=False)  # of the layers that were merged
            self.exact = values(checkpoints.compressed_nvfp4(weight, scale, torch.tensor([27.0], dtype=torch.float32)))

        def load_mxfp4(self, n, k):
            weight, scale = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8), torch.randint(115, 130, (n, k // 32), dtype=torch.uint8)
            self.weight_packed = nn.Parameter(weight, requires_grad=False)
            self.weight_scale = nn.Parameter(scale, requires_grad=False)
            self.exact = values(checkpoints.QuantizedWeight("a16w4", weight, scale, 32))

        def forward(self, x):
            return self.quant_method.apply(self, x, self.bias)

    vllm.FourBit = FourBit
    of_platform = {
        f"{KERNELS}.mixed_precision.marlin": {"MarlinLinearKernel": MarlinLinearKernel},
        f"{KERNELS}.mixed_precision.machete": {"MacheteLinearKernel": MacheteLinearKernel},
        f"{KERNELS}.nvfp4.marlin": {"MarlinNvFp4LinearKernel": marlin_nvfp4},
        f"{KERNELS}.mxfp4.marlin": {"MarlinMxFp4LinearKernel": marlin_mxfp4},
    } if on_gpu else {f"{KERNELS}.mixed_precision.cpu": {"CPUWNA16LinearKernel": CPUWNA16LinearKernel}}
    return {
        **of_platform,
        f"{KERNELS}.nvfp4.base": {"NvFp4LinearKernel": NvFp4LinearKernel},
        f"{KERNELS}.mxfp4.base": {"MxFp4LinearKernel": MxFp4LinearKernel},
        "vllm.scalar_type": {"scalar_types": scalar_types},
        "vllm.model_executor.layers.quantization.utils.quant_utils": {"kMxfp4Dynamic": dynamic_mxfp4},
    }
