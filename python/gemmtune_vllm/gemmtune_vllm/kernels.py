"""fp8 layers, and int8 layers on GPUs. A class that stands first in vLLM's list of fp8 kernels makes the kernel that vLLM would have chosen
without it, and follows the loading of its layer. That kernel stays what it is: it prepares the weight, quantizes x, and runs all sizes that no
tuned row answers. Only its product, apply_scaled_mm or apply_block_scaled_mm, is replaced in layers that are ours. The kernel of int8 layers
has no function of its product: ours quantizes x by the function of vLLM that it calls."""

import functools
import inspect
import math

import torch

from . import operators

loaded = []  # Layer of each quantized layer whose weights are ready, since the last model was loaded


def _operator_of(kernel):
    """The number of vLLM's operator that the kernel's product is and that C++ calls itself, or None."""
    name = type(kernel).__name__
    if name == "CutlassFP8ScaledMMLinearKernel":
        return operators.cutlass_operator
    if name != "DeepGemmFp8BlockScaledMMKernel":
        return None
    return operators.deep_gemm_e8m0_operator if getattr(kernel, "use_deep_gemm_e8m0", False) else operators.deep_gemm_operator


class Layer:
    """A quantized layer of a model, with its kernel. blocks: the kernel takes block-scaled operands, and w as [N, K]."""

    dtype = torch.float8_e4m3fn  # of both operands

    def __init__(self, kernel, layer, blocks):
        self.kernel, self.layer, self.blocks = kernel, layer, blocks
        self.product = "apply_block_scaled_mm" if blocks else "apply_scaled_mm"
        known = _operator_of(kernel)
        self.runs_python = known is None
        self.other = known or operators.key_of(f"{type(kernel).__name__} {kernel.config!r}")
        self.untuned_rows = 0  # of a call, up to which gemmtune's default kernel runs what no tuned row answers

    def weight(self):
        """The weight as [N, K], or None."""
        weight = getattr(self.layer, "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or weight.dtype is not self.dtype:
            return None
        weight = weight if self.blocks else weight.t()
        return weight if weight.is_contiguous() else None

    def scale(self):
        for name in ("weight_scale_inv", "weight_scale"):
            scale = getattr(self.layer, name, None)
            if isinstance(scale, torch.Tensor):
                return scale
        return None

    def why_not(self):
        """Why the layer is not of a kind that gemmtune runs, or None."""
        weight, scale, kernel = self.weight(), self.scale(), type(self.kernel).__name__
        if weight is None:
            return f"{kernel} holds the weight in a form of its own"
        if scale is None or scale.dtype is not torch.float32:
            return f"{kernel} holds no float32 scales"
        if not getattr(self.kernel, "apply_input_quant", True):
            return f"{kernel} quantizes inside of its product"
        # A kernel with state of its layer can be run for this layer only, which the operator does not know.
        if any(isinstance(value, torch.Tensor) for value in vars(self.kernel).values()):
            return f"{kernel} holds state of the layer"
        n, k = weight.shape
        if getattr(self.kernel, "logical_output_size", None) not in (None, n):
            return f"{kernel} padded the weight"
        expected = (-(-n // 128), -(-k // 128)) if self.blocks else None
        fits = tuple(scale.shape) == expected if self.blocks else scale.numel() in (1, n)
        return None if fits else f"{kernel} has scales of shape {list(scale.shape)}"

    def biases(self):
        bias = None if self.blocks else getattr(self.layer, "bias", None)
        return [None] if bias is None else [None, bias]

    def kind(self):
        if self.blocks:
            return operators.blocks_scaled
        group = self.kernel.config.activation_quant_key.scale.group_shape
        one = group.is_per_tensor() and self.scale().numel() == 1
        return operators.tensor_scaled if one else operators.token_scaled

    def out_dtype(self):
        return self.kernel.config.out_dtype

    def size(self, m, bias):
        weight = self.weight()
        n, k = weight.shape
        return operators.device_of(weight), self.kind(), m, n, k, weight.dtype, self.out_dtype(), bias is not None, 0

    def run(self, m, bias):
        weight, out_dtype, kind = self.weight(), self.out_dtype(), self.kind()
        x = operators.random_rows(m, weight.shape[1], weight.dtype, weight.device)
        scale = (torch.ones(m, -(-weight.shape[1] // 128), device=weight.device) if self.blocks else
                 torch.ones(1 if kind == operators.tensor_scaled else m, device=weight.device))
        operators.scaled_linear(x, weight if self.blocks else weight.t(), scale, self.scale(), bias, m, out_dtype, kind, self.other, self.untuned_rows)

    def constants(self):
        """What a compiled graph has of the layer beside tensors."""
        return f"kind {self.kind()} other {self.other} dependent {operators.dependent} untuned {self.untuned_rows}"

    def keep_function(self):
        """vLLM's product, for the sizes that no row answers."""
        product, blocks = getattr(self.kernel, self.product), self.blocks

        def run(x, w, x_scale, w_scale, bias, rows, out_dtype):
            if blocks:
                return product(A=x, B=w, As=x_scale, Bs=w_scale).to(out_dtype)
            y = product(A=x, B=w, out_dtype=out_dtype, As=x_scale, Bs=w_scale, bias=bias, output_shape=[rows, w.shape[1]])
            return y.view(rows, w.shape[1])

        operators.functions[self.other] = run

    def take(self, graphs):
        """The kernel runs its product through the operator. graphs: M of the CUDA graphs."""
        other, kind, block_out_dtype = self.other, self.kind(), self.kernel.config.out_dtype
        if other in (operators.deep_gemm_operator, operators.deep_gemm_e8m0_operator):
            # gemmtune reads the scales of a row side by side, and would copy others; DeepGEMM brings scales of any layout into its own, by a
            # kernel more in each call: decoding steps of 64 rows took 4 % longer than stock's. So it runs none of the CUDA graphs' sizes.
            if operators.untuned_is_fast(self.weight()) and not operators.recording():
                self.untuned_rows = max(graphs, default=0)
            quantizer = getattr(self.kernel, "quant_fp8", None)
            if hasattr(quantizer, "column_major_scales"):
                quantizer.column_major_scales = quantizer.tma_aligned_scales = False

        untuned_rows = self.untuned_rows

        def apply_scaled_mm(*, A, B, out_dtype, As, Bs, bias, output_shape):
            y = operators.scaled_linear(A, B, As, Bs, bias, math.prod(output_shape[:-1]), out_dtype, kind, other)
            return y.view(*output_shape)

        def apply_block_scaled_mm(A, B, As, Bs):
            return operators.scaled_linear(A, B, As, Bs, None, A.shape[0], block_out_dtype, kind, other, untuned_rows)

        setattr(self.kernel, self.product, apply_block_scaled_mm if self.blocks else apply_scaled_mm)


class Int8Layer(Layer):
    """An int8 layer of CUTLASS's kernel. x has a symmetric scale for each row, or one that the checkpoint has."""

    dtype = torch.int8

    def __init__(self, kernel, layer, vllm):
        super().__init__(kernel, layer, blocks=False)
        self.product, self.runs_python, self.other = "apply_weights", False, operators.cutlass_operator
        self.quantize, self.y_type = vllm.scaled_int8_quant, torch.get_default_dtype()  # while vLLM loads a model it is the model's

    def why_not(self):
        if not self.kernel.config.input_symmetric:
            return "int8 with asymmetric scales of x"
        why = super().why_not()
        # vLLM's own rule: else it runs a kernel of Triton.
        return why or (None if all(size % 16 == 0 for size in self.weight().shape) else "its sizes are no multiples of 16")

    def kind(self):
        return operators.token_scaled

    def out_dtype(self):
        return self.y_type

    def keep_function(self):
        """_C::cutlass_scaled_mm runs the sizes that no row answers."""

    def take(self, graphs):
        kernel, quantize = self.kernel, self.quantize
        w_name, w_scale_name, x_scale_name = kernel.layer_param_names[:3]

        def apply_weights(layer, x, bias=None):
            rows, x_scale, _ = quantize(x.reshape(-1, x.shape[-1]).contiguous(), getattr(layer, x_scale_name), None, symmetric=True)
            y = operators.scaled_linear(rows, getattr(layer, w_name), x_scale, getattr(layer, w_scale_name), bias, rows.shape[0], x.dtype,
                                        operators.token_scaled, operators.cutlass_operator)
            return y.view(*x.shape[:-1], y.shape[-1])

        kernel.apply_weights = apply_weights


def _follow(kernel, vllm):
    blocks = not isinstance(kernel, vllm.fp8_base)
    prepare = kernel.process_weights_after_loading

    def process_weights_after_loading(layer):
        prepare(layer)
        _keep(Layer(kernel, layer, blocks))

    kernel.process_weights_after_loading = process_weights_after_loading


def _follow_class(kernel_class, vllm):
    prepare = kernel_class.process_weights_after_loading

    @functools.wraps(prepare)
    def process_weights_after_loading(kernel, layer):
        prepare(kernel, layer)
        if type(kernel) is kernel_class:  # one derived from it has a product of its own
            _keep(Int8Layer(kernel, layer, vllm))

    kernel_class.process_weights_after_loading = process_weights_after_loading


def _keep(ready):
    if ready.product not in vars(ready.kernel) and all(one.layer is not ready.layer for one in loaded):  # weights may be loaded again
        loaded.append(ready)


def _put_first(vllm, name, base, kernel_type, lists):
    """A class `name` at the head of vLLM's list for this platform. Its instances are those of the next class that fits, and are followed."""
    platform = vllm.platform

    # vLLM chooses among the others: it reorders the list by device and keeps to --linear-backend.
    quantization = {"quantization": f"{kernel_type}_w8a8"} if "quantization" in inspect.signature(vllm.choose).parameters else {}

    def next_class(config):
        others = [kernel for kernel in lists[platform] if kernel is not chooser]
        try:
            return vllm.choose(config, {platform: others}, **quantization)
        except ValueError:  # none fits
            return None

    def is_supported(cls, compute_capability=None):
        return True, None

    def can_implement(cls, config):
        return (True, None) if next_class(config) is not None else (False, "finds no kernel of vLLM for this layer")

    def new(cls, config, *arguments, **options):
        kernel_class = next_class(config)
        if kernel_type == "fp8_block" and issubclass(kernel_class, vllm.fp8_base):
            # vLLM gives no names to a class of the block-scaled base, and these to the others
            options = {"layer_param_names": ["weight", "weight_scale", "input_scale", "input_scale_ub"]}
        kernel = kernel_class(config, *arguments, **options)
        _follow(kernel, vllm)
        return kernel

    chooser = type(base)(name, (base,), {
        "__doc__": "Makes the kernel that vLLM would have chosen; gemmtune may replace its product.", "__module__": __name__,
        "is_supported": classmethod(is_supported), "can_implement": classmethod(can_implement), "__new__": new})
    try:
        vllm.register_linear_kernel(chooser, platform, kernel_type)
    except ValueError:  # a vLLM whose function does not know this type yet
        lists.setdefault(platform, []).append(chooser)
    # vLLM takes the first kernel of the list that fits, and registers at its end.
    lists[platform].remove(chooser)
    lists[platform].insert(0, chooser)


def register(vllm):
    if "fp8" in vllm.parts:
        _put_first(vllm, "GemmtuneFp8LinearKernel", vllm.fp8_base, "fp8", vllm.fp8_kernels)
    if "int8 on GPUs" in vllm.parts:
        _follow_class(vllm.cutlass_int8, vllm)
    if "fp8 block-scaled" in vllm.parts:
        _put_first(vllm, "GemmtuneFp8BlockLinearKernel", vllm.fp8_block_base, "fp8_block", vllm.fp8_block_kernels)
