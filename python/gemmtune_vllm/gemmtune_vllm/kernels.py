"""The kernels of fp8 layers that vLLM chooses instead of its own. Each holds the kernel that vLLM would have chosen, which
prepares the weight, quantizes x and runs all sizes that no tuned row answers; only its product is replaced."""

import hashlib
import inspect
import math

import torch

from . import operators

loaded = []  # Layer of each quantized layer whose weights are ready, since the last model was loaded


class Layer:
    """A quantized layer of a model, with its kernel."""

    def __init__(self, kernel, layer):
        self.kernel, self.layer = kernel, layer
        self.name = getattr(layer, "prefix", "")

    def weight(self):
        """The weight as [N, K], or None."""
        weight = getattr(self.layer, "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or weight.dtype is not torch.float8_e4m3fn:
            return None
        weight = weight if self.kernel.gemmtune_blocks else weight.t()
        return weight if weight.is_contiguous() else None

    def scale(self):
        for name in ("weight_scale_inv", "weight_scale"):
            scale = getattr(self.layer, name, None)
            if isinstance(scale, torch.Tensor):
                return scale
        return None

    def fits(self):
        weight, scale = self.weight(), self.scale()
        if weight is None or scale is None or scale.dtype is not torch.float32 or not self.kernel.gemmtune_replaceable():
            return False
        n, k = weight.shape
        if self.kernel.gemmtune_blocks:
            return tuple(scale.shape) == (-(-n // 128), -(-k // 128))
        return scale.numel() in (1, n)

    def biases(self):
        bias = None if self.kernel.gemmtune_blocks else getattr(self.layer, "bias", None)
        return [None] if bias is None else [None, bias]

    def kind(self):
        if self.kernel.gemmtune_blocks:
            return "block"
        group = self.kernel.config.activation_quant_key.scale.group_shape
        return "tensor" if group.is_per_tensor() and self.scale().numel() == 1 else "token"

    def size(self, m, bias):
        n, k = self.weight().shape
        return (operators.device_of(self.weight()), self.kind(), m, n, k, torch.float8_e4m3fn, self.kernel.config.out_dtype,
                bias is not None)

    def run(self, m, bias):
        weight, out_dtype = self.weight(), self.kernel.config.out_dtype
        x = torch.zeros(m, weight.shape[1], device=weight.device).to(weight.dtype)
        if self.kernel.gemmtune_blocks:
            scale = torch.ones(m, -(-weight.shape[1] // 128), device=weight.device)
            operators.ops.block_linear(x, weight, scale, self.scale(), out_dtype, self.kernel.gemmtune_key)
        else:
            scale = torch.ones(1 if self.kind() == "tensor" else m, device=weight.device)
            operators.ops.scaled_linear(x, weight.t(), scale, self.scale(), bias, m, out_dtype, self.kind(),
                                        self.kernel.gemmtune_key)

    def take(self):
        self.kernel.gemmtune_take(self.kind())


def _delegate(name):
    def call(self, *arguments, **options):
        return getattr(self.gemmtune_inner, name)(*arguments, **options)
    return call


def _members(base, blocks, inner_of):
    """The members of a kernel class that stands before vLLM's."""

    def is_supported(cls, compute_capability=None):
        return True, None

    def can_implement(cls, config):
        return (True, None) if inner_of(config) is not None else (False, "finds no kernel of vLLM for this layer")

    def __init__(self, config, *arguments, **options):
        self.config = config
        inner = inner_of(config)
        self.gemmtune_inner = inner.make(config, arguments, options)
        self.gemmtune_product = getattr(self.gemmtune_inner, "apply_block_scaled_mm" if inner.blocks else "apply_scaled_mm",
                                        None)
        self.gemmtune_key = f"{type(self.gemmtune_inner).__name__} {hashlib.sha256(repr(config).encode()).hexdigest()[:12]}"
        self.gemmtune_same_form = inner.blocks == blocks

    def __getattr__(self, name):
        if name.startswith("gemmtune_"):
            raise AttributeError(name)
        return getattr(self.gemmtune_inner, name)

    def process_weights_after_loading(self, layer):
        self.gemmtune_inner.process_weights_after_loading(layer)
        if all(one.layer is not layer for one in loaded):
            loaded.append(Layer(self, layer))

    def replaceable(self):
        """A kernel with state of its layer can be run for this layer only, which the operator does not know."""
        return (self.gemmtune_same_form and self.gemmtune_product is not None and
                not any(isinstance(value, torch.Tensor) for value in vars(self.gemmtune_inner).values()))

    def take(self, kind):
        """vLLM's kernel runs its product through the operator."""
        key, block_out_dtype = self.gemmtune_key, self.config.out_dtype
        operators.fallbacks[key] = self.gemmtune_product

        def apply_scaled_mm(*, A, B, out_dtype, As, Bs, bias, output_shape):
            y = operators.ops.scaled_linear(A, B, As, Bs, bias, math.prod(output_shape[:-1]), out_dtype, kind, key)
            return y.view(*output_shape)

        def apply_block_scaled_mm(A, B, As, Bs):
            return operators.ops.block_linear(A, B, As, Bs, block_out_dtype, key)

        if blocks:
            self.gemmtune_inner.apply_block_scaled_mm = apply_block_scaled_mm
        else:
            self.gemmtune_inner.apply_scaled_mm = apply_scaled_mm

    members = {name: _delegate(name) for name in dir(base)
               if not name.startswith("__") and inspect.isfunction(inspect.getattr_static(base, name))}
    members.update(
        __init__=__init__, __getattr__=__getattr__, __doc__="vLLM's kernel, with gemmtune's where a tuned row answers.",
        __module__=__name__, is_supported=classmethod(is_supported), can_implement=classmethod(can_implement),
        process_weights_after_loading=process_weights_after_loading, gemmtune_blocks=blocks,
        gemmtune_replaceable=replaceable, gemmtune_take=take)
    return members


class _Inner:
    """vLLM's kernel class for a layer, and how it is made."""

    def __init__(self, kernel_class, fp8_base):
        self.kernel_class = kernel_class
        self.blocks = not issubclass(kernel_class, fp8_base)

    def make(self, config, arguments, options):
        if not self.blocks and not arguments and "layer_param_names" not in options:
            # vLLM gives no names to a block-scaled kernel, and these to the others
            options = {"layer_param_names": ["weight", "weight_scale", "input_scale", "input_scale_ub"]}
        return self.kernel_class(config, *arguments, **options)


def _put_first(vllm, name, base, blocks, kernel_type, lists):
    platform = vllm.platform

    def inner_of(config):
        for kernel in lists[platform]:
            if not hasattr(kernel, "gemmtune_blocks") and vllm.can_run(kernel, config, None)[0]:
                return _Inner(kernel, vllm.fp8_base)
        return None

    kernel_class = type(base)(name, (base,), _members(base, blocks, inner_of))
    try:
        vllm.register_linear_kernel(kernel_class, platform, kernel_type)
    except ValueError:  # a vLLM whose function does not know this type yet
        lists.setdefault(platform, []).append(kernel_class)
    # vLLM takes the first kernel of the list that fits, and registers at its end.
    lists[platform].remove(kernel_class)
    lists[platform].insert(0, kernel_class)


def register(vllm):
    if "fp8" in vllm.parts:
        _put_first(vllm, "GemmtuneFp8LinearKernel", vllm.fp8_base, False, "fp8", vllm.fp8_kernels)
    if "fp8 block-scaled" in vllm.parts:
        _put_first(vllm, "GemmtuneFp8BlockLinearKernel", vllm.fp8_block_base, True, "fp8_block", vllm.fp8_block_kernels)
