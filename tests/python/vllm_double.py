"""A double of the parts of vLLM that gemmtune_vllm touches: modules of the same names with the same rules (which kernel a layer
gets, who quantizes, who loads), and products in plain PyTorch that count their calls. install() makes a fresh one.

Compared with vLLM 0.24.0 and 0.32.0: CUTLASS's product is the operator _C::cutlass_scaled_mm; a method of 0.32 keeps its function from the
start (`_gemm_impl`), one of 0.24 asks each time; kernels are chosen from a list that is reordered by device (Humming before Marlin); QuantFP8
pads x to 17 rows in eager mode and its scales not; the CPU backend packs the weight of a layer, gives the layer a function and drops the
plain weight."""

import enum
import functools
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import vllm_gpu_mixtures_double
import vllm_mixtures_double
import vllm_quantized_double
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
class Int8Config:
    is_static_input_scheme: bool
    is_channelwise: bool
    input_symmetric: bool


def quantize_int8(input, scale=None, azp=None, symmetric=True):
    scale = input.abs().amax(1, keepdim=True).float().clamp(min=1e-12) / 127 if scale is None else scale
    return (input.float() / scale).round().clamp(-128, 127).to(torch.int8), scale, None if symmetric else torch.zeros(len(input), 1)


class Int8Base(ABC):
    def __init__(self, c, layer_param_names):
        self.config, self.layer_param_names = c, layer_param_names

    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    @classmethod
    def can_implement(cls, c):
        return True, None

    @abstractmethod
    def process_weights_after_loading(self, layer):
        ...

    @abstractmethod
    def apply_weights(self, layer, x, bias=None):
        ...


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
            missing = max(0, self.get_output_padding() - len(quantized))
            quantized = torch.cat([quantized, torch.zeros(missing, rows.shape[1]).to(FP8)])
        return self.apply_scaled_mm(A=quantized, B=w, out_dtype=self.config.out_dtype, As=x_s, Bs=w_s, bias=bias,
                                    output_shape=[*x.shape[:-1], w.shape[1]])

    @abstractmethod
    def apply_scaled_mm(self, *, A, B, out_dtype, As, Bs, bias, output_shape):
        ...


class QuantFP8:
    """Blocks of x: scales column by column, as DeepGEMM and CUTLASS read them, each column from a multiple of four on, or row by row."""

    def __init__(self, config):
        self.group_shape = config.activation_quant_key.scale.group_shape
        self.column_major_scales = self.tma_aligned_scales = True

    def __call__(self, rows):
        quantized, scale = quantize(rows, self.group_shape)
        if not self.column_major_scales:
            return quantized, scale
        stride = -(-len(rows) // 4) * 4 if self.tma_aligned_scales else len(rows)
        return quantized, torch.empty_strided(scale.shape, (1, stride), dtype=scale.dtype).copy_(scale)


class BlockBase(ABC):
    def __init__(self, config):
        self.config = config
        self.quant_fp8 = QuantFP8(config)

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
        quantized, scale = self.quant_fp8(rows)
        y = self.apply_block_scaled_mm(A=quantized, B=layer.weight, As=scale, Bs=layer.weight_scale_inv)
        y = y if bias is None else y + bias
        return y.to(self.config.out_dtype).view(*x.shape[:-1], layer.weight.shape[0])

    @abstractmethod
    def apply_block_scaled_mm(self, A, B, As, Bs):
        ...


class Vllm:
    """The names that tests use; `calls` counts products by kernel: vLLM's function for bf16 (`gemm`), its operator of CUTLASS, and products
    that are functions of Python."""

    def __init__(self):
        self.calls = {"gemm": 0, "cutlass": 0, "deep_gemm": 0, "torch": 0, "triton": 0, "packed": 0, "int8": 0}


_current = None  # the Vllm that operators count in


def scaled_product(x, w, x_scale, w_scale, bias, out_dtype):
    y = (x.float() * x_scale.reshape(-1, 1)) @ (w.float() * w_scale.reshape(1, -1))
    y = y if bias is None else y + bias
    return y.to(out_dtype)


def _cutlass_scaled_mm(out, a, b, a_scales, b_scales, bias):
    _current.calls["cutlass"] += 1
    out.copy_(scaled_product(a, b, a_scales, b_scales, bias, out.dtype))


def block_product(x, w, x_scale, w_scale):
    n, k = w.shape
    return (x.float() * x_scale.repeat_interleave(128, 1)) @ (w.float() * spread(w_scale, n, k)).t()


def _fp8_gemm_nt_op(q_input, input_scale, weight, weight_scale, output, use_deep_gemm_e8m0):
    assert use_deep_gemm_e8m0 == _current.e8m0
    _current.calls["deep_gemm"] += 1
    output.copy_(block_product(q_input, weight, input_scale, weight_scale))


_operators_of_vllm = torch.library.Library("vllm", "FRAGMENT")
_operators_of_vllm.define("fp8_gemm_nt_op(Tensor q_input, Tensor input_scale, Tensor weight, Tensor weight_scale, Tensor(a!) output, "
                          "bool use_deep_gemm_e8m0) -> ()")
_operators_of_vllm.impl("fp8_gemm_nt_op", _fp8_gemm_nt_op, "CompositeExplicitAutograd")
_operators = torch.library.Library("_C", "DEF")
_operators.define("cutlass_scaled_mm(Tensor! out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor? bias) -> ()")
_operators.impl("cutlass_scaled_mm", _cutlass_scaled_mm, "CompositeExplicitAutograd")


def install(without=(), signature=None, batch_invariant=False, block_type_known=True, padding=None, platform="CUDA", keeps_function=True,
            linear_backend="auto", prefers_humming=False, amx=True, e8m0=True):
    """Puts a fresh double into sys.modules. without: names ("module.attribute") that this vLLM does not have; signature: other
    parameters of UnquantizedLinearMethod.apply; padding: rows that the torch kernel pads x to, which is then the only one; keeps_function: as
    0.32, else as 0.24; linear_backend: what the user says; amx: the CPU has it; e8m0: DeepGEMM's scales are powers of
    two, as on Hopper by default."""
    global _current
    for name in [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]:
        del sys.modules[name]
    vllm = _current = Vllm()
    vllm.e8m0 = e8m0
    calls = vllm.calls

    class PlatformEnum(enum.Enum):
        CUDA = enum.auto()
        CPU = enum.auto()

    class CutlassFP8ScaledMMLinearKernel(ScaledBase):
        def __init__(self, c, layer_param_names):
            self.logical_output_size = None
            super().__init__(c, layer_param_names)

        @classmethod
        def is_supported(cls, compute_capability=None):
            return padding is None, "is not here"

        @classmethod
        def can_implement(cls, c):
            return True, None

        def process_weights_after_loading(self, layer):
            weight = getattr(layer, self.layer_param_names[0])
            self.logical_output_size = weight.shape[1]

        def apply_scaled_mm(self, *, A, B, out_dtype, As, Bs, bias, output_shape):
            out = torch.empty(A.shape[0], B.shape[1], dtype=out_dtype)
            torch.ops._C.cutlass_scaled_mm(out, A, B, As, Bs, bias)
            return out.view(*output_shape[:-1], self.logical_output_size)

    class ChannelWiseTorchFP8ScaledMMLinearKernel(ScaledBase):
        @classmethod
        def is_supported(cls, compute_capability=None):
            return True, None

        @classmethod
        def can_implement(cls, c):
            return True, None

        def get_output_padding(self):
            return padding

        def apply_scaled_mm(self, *, A, B, out_dtype, As, Bs, bias, output_shape):
            calls["torch"] += 1
            rows = 1
            for size in output_shape[:-1]:
                rows *= size
            scale = As if As.numel() == 1 else torch.narrow(As, 0, 0, rows)
            return scaled_product(torch.narrow(A, 0, 0, rows), B, scale, Bs, bias, out_dtype).view(*output_shape)

    class MarlinFP8ScaledMMLinearKernel(ChannelWiseTorchFP8ScaledMMLinearKernel):
        pass

    class HummingFP8ScaledMMLinearKernel(ChannelWiseTorchFP8ScaledMMLinearKernel):
        pass

    class NeverDouble(CutlassFP8ScaledMMLinearKernel):
        @classmethod
        def is_supported(cls, compute_capability=None):
            return False, "is of another GPU"

    class DeepGemmFp8BlockScaledMMKernel(BlockBase):
        def __init__(self, config):
            super().__init__(config)
            self.use_deep_gemm_e8m0 = vllm.e8m0

        @classmethod
        def is_supported(cls, compute_capability=None):
            return True, None

        def apply_block_scaled_mm(self, A, B, As, Bs):
            output = torch.empty(A.shape[0], B.shape[0], dtype=self.config.out_dtype)
            torch.ops.vllm.fp8_gemm_nt_op(A, As, B, Bs, output, self.use_deep_gemm_e8m0)
            return output

    class TritonFp8BlockScaledMMKernel(BlockBase):
        @classmethod
        def is_supported(cls, compute_capability=None):
            return True, None

        def apply_block_scaled_mm(self, A, B, As, Bs):
            calls["triton"] += 1
            return block_product(A, B, As, Bs)

    class CPUInt8ScaledMMLinearKernel(Int8Base):
        """Packs the weight [N, K] and drops it."""

        def process_weights_after_loading(self, layer):
            self.packed = layer.weight.float() * layer.weight_scale
            layer.weight = None

        def apply_weights(self, layer, x, bias=None):
            calls["int8"] += 1
            rows, scale, _ = quantize_int8(x.reshape(-1, x.shape[-1]))
            y = (rows.float() * scale) @ self.packed.t()
            y = y if bias is None else y + bias
            return y.to(x.dtype).view(*x.shape[:-1], -1)

    class CutlassInt8ScaledMMLinearKernel(Int8Base):
        """Keeps the weight as a view [K, N]; a product of other sizes than multiples of 16 is a kernel of Triton's."""

        def process_weights_after_loading(self, layer):
            layer.weight = nn.Parameter(layer.weight.t().data, requires_grad=False)
            if self.config.is_static_input_scheme:
                layer.input_scale = nn.Parameter(layer.input_scale.max(), requires_grad=False)
            layer.azp_adj = None if self.config.input_symmetric else layer.weight.sum(0, keepdim=True, dtype=torch.int32)

        def apply_weights(self, layer, x, bias=None):
            rows, scale, _ = quantize_int8(x.contiguous().view(-1, x.shape[-1]), layer.input_scale, None, symmetric=layer.azp_adj is None)
            if layer.weight.shape[0] % 16 or layer.weight.shape[1] % 16:
                calls["triton"] += 1
                return scaled_product(rows, layer.weight, scale, layer.weight_scale, bias, x.dtype).view(*x.shape[:-1], -1)
            out = torch.empty(rows.shape[0], layer.weight.shape[1], dtype=x.dtype)
            torch.ops._C.cutlass_scaled_mm(out, rows, layer.weight, scale, layer.weight_scale, bias)
            return out.view(*x.shape[:-1], -1)

    enum_of = PlatformEnum[platform]
    int8 = {enum_of: [CPUInt8ScaledMMLinearKernel if platform == "CPU" else CutlassInt8ScaledMMLinearKernel]}
    four_bit = {"nvfp4": [], "mxfp4": []}
    fp8 = {enum_of: [NeverDouble, CutlassFP8ScaledMMLinearKernel, ChannelWiseTorchFP8ScaledMMLinearKernel, MarlinFP8ScaledMMLinearKernel,
                     HummingFP8ScaledMMLinearKernel]}
    blocks = {enum_of: [DeepGemmFp8BlockScaledMMKernel, TritonFp8BlockScaledMMKernel]}

    def can_run(kernel, config, compute_capability):
        if kernel.__name__ in envs.VLLM_DISABLED_KERNELS:
            return False, "disabled"
        supported, why = kernel.is_supported(compute_capability)
        return kernel.can_implement(config) if supported else (False, why)

    def register_linear_kernel(kernel_class, platform, kernel_type="mp"):
        kinds = {"fp8": fp8, "int8": int8, **{kind: {enum_of: kernels} for kind, kernels in four_bit.items()}, **({"fp8_block": blocks} if block_type_known else {})}
        if kernel_type not in kinds:
            raise ValueError(f"Unrecognized kernel type: {kernel_type}")
        kinds[kernel_type].setdefault(platform, []).append(kernel_class)

    def prioritize_humming(kernels):
        names = [kernel.__name__.lower() for kernel in kernels]
        humming = next((i for i, name in enumerate(names) if "humming" in name), None)
        marlin = next((i for i, name in enumerate(names) if "marlin" in name), None)
        if not prefers_humming or humming is None or marlin is None or humming < marlin:
            return kernels
        kernels = kernels.copy()
        kernels.insert(marlin, kernels.pop(humming))
        return kernels

    def choose_scaled_mm_linear_kernel(config, possible_kernels, compute_capability=None, force_kernel=None, *, quantization):
        assert quantization in ("fp8_w8a8", "fp8_block_w8a8", "int8_w8a8"), quantization
        for kernel in prioritize_humming(possible_kernels.get(enum_of, [])):
            if can_run(kernel, config, compute_capability)[0]:
                return kernel
        raise ValueError("no kernel fits")

    def choose(config):
        grouped = config.activation_quant_key.scale.group_shape.is_per_group()
        chosen = choose_scaled_mm_linear_kernel(config, blocks if grouped else fp8, quantization="fp8_block_w8a8" if grouped else "fp8_w8a8")
        if issubclass(chosen, ScaledBase):
            return chosen(config, layer_param_names=["weight", "weight_scale", "input_scale", "input_scale_ub"])
        return chosen(config)

    def dispatch_cpu(layer, remove_weight):
        if platform == "CPU":
            sys.modules["vllm.model_executor.layers.utils"].dispatch_cpu_unquantized_gemm(layer, remove_weight)

    class UnquantizedLinearMethod:
        def __init__(self):
            if keeps_function:
                self._gemm_impl = dispatch(linear_backend)

        def process_weights_after_loading(self, layer):
            dispatch_cpu(layer, True)

        if signature is None:
            def apply(self, layer, x, bias=None):
                return (self._gemm_impl if keeps_function else dispatch())(layer, x, layer.weight, bias)
        else:
            apply = signature

    class UnquantizedEmbeddingMethod:
        def process_weights_after_loading(self, layer):
            dispatch_cpu(layer, False)

        def apply(self, layer, x, bias=None):
            return dispatch()(layer, x, layer.weight, bias)

    def default_unquantized_gemm(layer, x, weight, bias=None):
        calls["gemm"] += 1
        return torch.nn.functional.linear(x, weight, bias)

    def cpu_unquantized_gemm(layer, x, weight, bias=None):
        return layer.cpu_linear(x, weight, bias)

    def flashinfer_gemm(layer, x, weight, bias=None, *, backend):
        return default_unquantized_gemm(layer, x, weight, bias)

    def dispatch(linear_backend="auto"):
        if platform == "CPU":
            return cpu_unquantized_gemm
        return functools.partial(flashinfer_gemm, backend=linear_backend) if linear_backend == "flashinfer_cutedsl" else default_unquantized_gemm

    def dispatch_cpu_unquantized_gemm(layer, remove_weight):
        packed = layer.weight.detach().clone()

        def run(x, weight, bias):
            calls["packed"] += 1
            return torch.nn.functional.linear(x, packed, bias)

        layer.cpu_linear = run
        if remove_weight:
            layer.weight = nn.Parameter(torch.empty(0, dtype=layer.weight.dtype), requires_grad=False)

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

    class Int8LinearMethod:
        def __init__(self, symmetric, is_static):
            config = Int8Config(is_static, True, symmetric)
            chosen = choose_scaled_mm_linear_kernel(config, int8, quantization="int8_w8a8")
            self.kernel = chosen(config, layer_param_names=["weight", "weight_scale", "input_scale", "input_zero_point", "azp_adj"])

        def process_weights_after_loading(self, layer):
            self.kernel.process_weights_after_loading(layer)

        def apply(self, layer, x, bias=None):
            return self.kernel.apply_weights(layer, x, bias)

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
            if kind in ("int8", "int8 asymmetric", "int8 static"):
                self.input_scale = nn.Parameter(torch.tensor([4 / 127]), requires_grad=False) if kind == "int8 static" else None
                scale = weight.abs().amax(1, keepdim=True) / 127
                self.weight_scale = nn.Parameter(scale, requires_grad=False)
                self.weight = nn.Parameter((weight / scale).round().to(torch.int8), requires_grad=False)
                self.exact = self.weight.double() * scale.double()
                self.quant_method = Int8LinearMethod(kind != "int8 asymmetric", kind == "int8 static")
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
                           "current_platform": types.SimpleNamespace(_enum=enum_of)},
        LINEAR: {"register_linear_kernel": register_linear_kernel, "_POSSIBLE_FP8_KERNELS": fp8,
                 "_POSSIBLE_FP8_BLOCK_KERNELS": blocks, "choose_scaled_mm_linear_kernel": choose_scaled_mm_linear_kernel,
                 "is_supported_and_can_implement_kernel": can_run,
                 "_POSSIBLE_INT8_KERNELS": int8, "Int8ScaledMMLinearKernel": Int8Base, "FP8ScaledMMLinearKernel": ScaledBase, "Fp8BlockScaledMMLinearKernel": BlockBase},
        "vllm._custom_ops": {"onednn_scaled_int8_quant": quantize_int8, "scaled_int8_quant": quantize_int8},
        "vllm.model_executor.layers.linear": {"UnquantizedLinearMethod": UnquantizedLinearMethod},
        "vllm.model_executor.layers.vocab_parallel_embedding": {"UnquantizedEmbeddingMethod": UnquantizedEmbeddingMethod},
        "vllm.model_executor.layers.utils": {
            "dispatch_unquantized_gemm": dispatch, "default_unquantized_gemm": default_unquantized_gemm,
            "cpu_unquantized_gemm": cpu_unquantized_gemm, "dispatch_cpu_unquantized_gemm": dispatch_cpu_unquantized_gemm},
        "vllm.model_executor.model_loader.base_loader": {"BaseModelLoader": BaseModelLoader},
    }
    contents.update(vllm_quantized_double.modules(vllm, four_bit, platform == "CUDA"))
    if platform == "CPU":
        contents.update(vllm_mixtures_double.modules(vllm, amx))
        contents[f"{LINEAR}.scaled_mm.cpu"] = {"CPUInt8ScaledMMLinearKernel": CPUInt8ScaledMMLinearKernel}
    else:
        contents.update(vllm_gpu_mixtures_double.modules(vllm))
        contents[f"{LINEAR}.scaled_mm.cutlass"] = {"CutlassInt8ScaledMMLinearKernel": CutlassInt8ScaledMMLinearKernel}
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
    vllm.choose, vllm.platform, vllm.linear_backend = choose, enum_of, linear_backend
    return vllm


def configuration(sizes=(1, 4, 16), tokens=64):
    return types.SimpleNamespace(compilation_config=types.SimpleNamespace(cudagraph_capture_sizes=list(sizes)),
                                 scheduler_config=types.SimpleNamespace(max_num_batched_tokens=tokens),
                                 model_config=types.SimpleNamespace(enforce_eager=True),
                                 kernel_config=types.SimpleNamespace(linear_backend=_current.linear_backend), additional_config={})
