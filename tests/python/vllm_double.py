"""A double of the parts of vLLM that gemmtune_vllm touches: modules of the same names with the same rules (which kernel a layer
gets, who quantizes, who loads), and products in plain PyTorch that count their calls. install() makes a fresh one."""

import enum
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

FP8 = torch.float8_e4m3fn
LINEAR = "vllm.model_executor.kernels.linear"


@dataclass(frozen=True)
class GroupShape:
    rows: int
    columns: int

    def is_per_tensor(self):
        return (self.rows, self.columns) == (-1, -1)

    def is_per_group(self):
        return self.rows == 1 and self.columns > 1


@dataclass(frozen=True)
class Scale:
    static: bool
    group_shape: GroupShape


@dataclass(frozen=True)
class QuantKey:
    scale: Scale


@dataclass
class Config:
    weight_quant_key: QuantKey
    activation_quant_key: QuantKey
    weight_shape: tuple
    input_dtype: torch.dtype
    out_dtype: torch.dtype


ACTIVATION = {"tensor": GroupShape(-1, -1), "token": GroupShape(1, -1), "block": GroupShape(1, 128)}


def quantize(x, shape, static_scale=None):
    if shape.is_per_tensor():
        scale = x.abs().amax().float().reshape(1) / 448 if static_scale is None else static_scale
        return (x.float() / scale).to(FP8), scale
    width = x.shape[1] if shape.columns == -1 else shape.columns
    blocks = x.float().unflatten(1, (-1, width))
    scale = blocks.abs().amax(2).clamp(min=1e-12) / 448
    return (blocks / scale[:, :, None]).flatten(1).to(FP8), scale


def spread(scale, rows, columns):
    """The scales of 128 x 128 blocks as a matrix."""
    return scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :columns]


class ScaledBase(ABC):
    def __init__(self, c, layer_param_names):
        self.config, self.layer_param_names = c, layer_param_names

    @classmethod
    @abstractmethod
    def is_supported(cls, compute_capability=None):
        ...

    @classmethod
    @abstractmethod
    def can_implement(cls, c):
        ...

    def input_quant_key(self):
        return None

    def get_output_padding(self):
        return None

    def process_weights_after_loading(self, layer):
        pass

    def apply_weights(self, layer, x, bias=None):
        w, w_s, x_s, _ = (getattr(layer, name, None) for name in self.layer_param_names)
        rows = x.view(-1, x.shape[-1])
        quantized, x_s = quantize(rows, self.config.activation_quant_key.scale.group_shape, x_s)
        if self.get_output_padding() is not None:
            missing = self.get_output_padding() - len(quantized)
            quantized = torch.cat([quantized, torch.zeros(missing, rows.shape[1]).to(FP8)])
        return self.apply_scaled_mm(A=quantized, B=w, out_dtype=self.config.out_dtype, As=x_s, Bs=w_s, bias=bias,
                                    output_shape=[*x.shape[:-1], w.shape[1]])

    @abstractmethod
    def apply_scaled_mm(self, *, A, B, out_dtype, As, Bs, bias, output_shape):
        ...


class BlockBase(ABC):
    def __init__(self, config):
        self.config = config

    @classmethod
    @abstractmethod
    def is_supported(cls, compute_capability=None):
        ...

    @classmethod
    def can_implement(cls, config):
        return not config.activation_quant_key.scale.static, "dynamic only"

    def process_weights_after_loading(self, layer):
        pass

    def apply_weights(self, layer, x, bias=None, **options):
        rows = x.view(-1, x.shape[-1])
        quantized, scale = quantize(rows, self.config.activation_quant_key.scale.group_shape)
        y = self.apply_block_scaled_mm(A=quantized, B=layer.weight, As=scale, Bs=layer.weight_scale_inv)
        y = y if bias is None else y + bias
        return y.to(self.config.out_dtype).view(*x.shape[:-1], layer.weight.shape[0])

    @abstractmethod
    def apply_block_scaled_mm(self, A, B, As, Bs):
        ...


class Vllm:
    """The names that tests use; `calls` counts products by kernel."""

    def __init__(self):
        self.calls = {"CutlassDouble": 0, "BlockDouble": 0, "gemm": 0}
        self.modules = {}


def install(without=(), signature=None, batch_invariant=False, block_type_known=True, padding=None):
    """Puts a fresh double into sys.modules. without: names ("module.attribute") that this vLLM does not have; signature: other
    parameters of UnquantizedLinearMethod.apply."""
    for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
        del sys.modules[name]
    vllm = Vllm()
    calls = vllm.calls

    class PlatformEnum(enum.Enum):
        CUDA = enum.auto()
        CPU = enum.auto()

    class ScaledDouble(ScaledBase):
        @classmethod
        def is_supported(cls, compute_capability=None):
            return True, None

        @classmethod
        def can_implement(cls, c):
            return True, None

        def get_output_padding(self):
            return padding

        def apply_scaled_mm(self, *, A, B, out_dtype, As, Bs, bias, output_shape):
            calls["CutlassDouble"] += 1
            rows = 1
            for size in output_shape[:-1]:
                rows *= size
            y = (A[:rows].float() * As.reshape(-1, 1)) @ (B.float() * Bs.reshape(1, -1))
            y = y if bias is None else y + bias
            return y.to(out_dtype).view(*output_shape)

    class NeverDouble(ScaledDouble):
        @classmethod
        def is_supported(cls, compute_capability=None):
            return False, "is of another GPU"

    class BlockDouble(BlockBase):
        @classmethod
        def is_supported(cls, compute_capability=None):
            return True, None

        def apply_block_scaled_mm(self, A, B, As, Bs):
            calls["BlockDouble"] += 1
            n, k = B.shape
            return (A.float() * As.repeat_interleave(128, 1)) @ (B.float() * spread(Bs, n, k)).t()

    fp8 = {PlatformEnum.CPU: [NeverDouble, ScaledDouble], PlatformEnum.CUDA: [ScaledDouble]}
    blocks = {PlatformEnum.CPU: [BlockDouble]}

    def can_run(kernel, config, compute_capability):
        if kernel.__name__ in envs.VLLM_DISABLED_KERNELS:
            return False, "disabled"
        supported, why = kernel.is_supported(compute_capability)
        return kernel.can_implement(config) if supported else (False, why)

    def register_linear_kernel(kernel_class, platform, kernel_type="mp"):
        kinds = {"fp8": fp8, **({"fp8_block": blocks} if block_type_known else {})}
        if kernel_type not in kinds:
            raise ValueError(f"Unrecognized kernel type: {kernel_type}")
        kinds[kernel_type].setdefault(platform, []).append(kernel_class)

    def choose(config):
        grouped = config.activation_quant_key.scale.group_shape.is_per_group()
        chosen = next(kernel for kernel in (blocks if grouped else fp8)[PlatformEnum.CPU] if can_run(kernel, config, None)[0])
        if issubclass(chosen, ScaledBase):
            return chosen(config, layer_param_names=["weight", "weight_scale", "input_scale", "input_scale_ub"])
        return chosen(config)

    class UnquantizedLinearMethod:
        def process_weights_after_loading(self, layer):
            pass

        if signature is None:
            def apply(self, layer, x, bias=None):
                return dispatch()(layer, x, layer.weight, bias)
        else:
            apply = signature

    class UnquantizedEmbeddingMethod:
        def process_weights_after_loading(self, layer):
            pass

        def apply(self, layer, x, bias=None):
            return dispatch()(layer, x, layer.weight, bias)

    def gemm(layer, x, weight, bias=None):
        calls["gemm"] += 1
        return torch.nn.functional.linear(x, weight, bias)

    def dispatch():
        return gemm

    class Fp8LinearMethod:
        def __init__(self, kind, n, k):
            key = QuantKey(Scale(False, ACTIVATION[kind]))
            weight_key = QuantKey(Scale(True, GroupShape(128, 128) if kind == "block" else GroupShape(-1, -1)))
            self.fp8_linear = choose(Config(weight_key, key, (n, k), torch.bfloat16, torch.bfloat16))

        def process_weights_after_loading(self, layer):
            if hasattr(layer, "weight_scale"):
                layer.weight = nn.Parameter(layer.weight.t(), requires_grad=False)
            self.fp8_linear.process_weights_after_loading(layer)

        def apply(self, layer, x, bias=None):
            return self.fp8_linear.apply_weights(layer, x, bias)

    class Linear(nn.Module):
        """A layer of vLLM: its method computes."""

        def __init__(self, n, k, bias=False, kind=None, seed=0):
            super().__init__()
            random = torch.Generator().manual_seed(seed)
            weight = torch.randn(n, k, generator=random) / k ** 0.5
            self.prefix = f"model.{kind or 'bf16'}.{seed}"
            self.bias = nn.Parameter(torch.randn(n, generator=random).bfloat16(), requires_grad=False) if bias else None
            if kind is None:
                self.exact = weight.bfloat16().double()
                self.weight = nn.Parameter(weight.bfloat16(), requires_grad=False)
                self.quant_method = UnquantizedLinearMethod()
                return
            if kind == "block":
                tiles = weight.unflatten(0, (-1, 128)).unflatten(2, (-1, 128))
                scale = tiles.abs().amax((1, 3)) / 448
                full = spread(scale, n, k)
                self.weight_scale_inv = nn.Parameter(scale, requires_grad=False)
            else:
                scale = weight.abs().amax().reshape(1) / 448 if kind == "tensor" else weight.abs().amax(1, keepdim=True) / 448
                full = scale
                self.weight_scale = nn.Parameter(scale, requires_grad=False)
            self.weight = nn.Parameter((weight / full).to(FP8), requires_grad=False)
            self.exact = self.weight.double() * full.double()
            self.quant_method = Fp8LinearMethod(kind, n, k)

        def forward(self, x):
            return self.quant_method.apply(self, x, self.bias)

    class BaseModelLoader:
        def load_model(self, vllm_config, model_config, prefix=""):
            model = model_config()
            for module in model.modules():
                method = getattr(module, "quant_method", None)
                if method is not None:
                    method.process_weights_after_loading(module)
            return model.eval()

    envs = types.SimpleNamespace(VLLM_DISABLED_KERNELS=[], VLLM_BATCH_INVARIANT=batch_invariant)
    contents = {
        "vllm": {"__version__": "double"},
        "vllm.envs": vars(envs),
        "vllm.platforms": {"PlatformEnum": PlatformEnum,
                           "current_platform": types.SimpleNamespace(_enum=PlatformEnum.CPU)},
        LINEAR: {"register_linear_kernel": register_linear_kernel, "_POSSIBLE_FP8_KERNELS": fp8,
                 "_POSSIBLE_FP8_BLOCK_KERNELS": blocks, "is_supported_and_can_implement_kernel": can_run,
                 "FP8ScaledMMLinearKernel": ScaledBase, "Fp8BlockScaledMMLinearKernel": BlockBase},
        "vllm.model_executor.layers.linear": {"UnquantizedLinearMethod": UnquantizedLinearMethod},
        "vllm.model_executor.layers.vocab_parallel_embedding": {"UnquantizedEmbeddingMethod": UnquantizedEmbeddingMethod},
        "vllm.model_executor.layers.utils": {"dispatch_unquantized_gemm": dispatch},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": BaseModelLoader},
    }
    for name, members in contents.items():
        steps = name.split(".")
        for end in range(1, len(steps) + 1):  # packages above, and the module as an attribute of its package
            path = ".".join(steps[:end])
            if path not in sys.modules:
                module = sys.modules[path] = types.ModuleType(path)
                module.__path__ = []
                if end > 1:
                    setattr(sys.modules[".".join(steps[:end - 1])], steps[end - 1], module)
        for member, value in members.items():
            if f"{name}.{member}" not in without:
                setattr(sys.modules[name], member, value)
    vllm.Linear, vllm.loader, vllm.envs, vllm.fp8, vllm.blocks = Linear, BaseModelLoader, envs, fp8, blocks
    vllm.UnquantizedEmbeddingMethod = UnquantizedEmbeddingMethod
    vllm.choose, vllm.CPU = choose, PlatformEnum.CPU
    return vllm


def configuration(sizes=(1, 4, 16), tokens=64):
    return types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_capture_sizes=list(sizes)),
                                 scheduler_config=types.SimpleNamespace(max_num_batched_tokens=tokens), additional_config={})
