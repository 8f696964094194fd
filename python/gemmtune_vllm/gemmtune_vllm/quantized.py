"""Quantized linear layers of vLLM: weights of 4 bits, and int8 of its CPU backend.

vLLM's kernel repacks the weight when it was loaded. A layer for which a tuned row answers gets operands of gemmtune in its place, and gemmtune's
kernels run all of its sizes.

NVFP4 and MXFP4 on CPUs: vLLM has no kernel of them and refuses such a model. Classes of ours stand in its lists, so that gemmtune's kernels run
these layers, with or without tuned rows. x is not quantized there, as in vLLM's weight-only kernels for GPUs."""

import functools

import gemmtune.torch
import torch
from gemmtune import checkpoints, contexts, operations
from gemmtune import _library as c
from torch import nn

from . import loadings, operators

_ops = torch.ops.gemmtune
_types = {torch.bfloat16: "bf16", torch.float16: "f16"}
_groups = (32, 64, 128)  # of int4, beside whole rows

reordered = "the order of its inputs is another one (desc_act)"


def why_not_group(group, k):
    """Why gemmtune runs no int4 weight of k inputs in groups of so many, or None."""
    return None if group in (*_groups, k) and k % group == 0 else f"its groups have {group} elements"


def follow(vllm):
    """Stands in front of the functions by which vLLM's kernels prepare a weight, and registers kernels of the types that it has none for."""
    for part, kernel, kind in (("int8", "int8_kernel", Int8), ("int4", "int4_kernel", Int4)):
        if f"{part} of the CPU backend" in vllm.parts:
            _stand_before(getattr(vllm, kernel), kind, vllm)
    for part, kernels, kind in (("int4", "int4_kernels", Int4), ("NVFP4", "nvfp4_kernels", Nvfp4), ("MXFP4", "mxfp4_kernels", Mxfp4)):
        if f"{part} on GPUs" in vllm.parts:
            for kernel_class in getattr(vllm, kernels):
                _stand_before(kernel_class, kind, vllm)
    if "NVFP4 and MXFP4 of the CPU backend" in vllm.parts:
        for base, kernel_type, kind in ((vllm.nvfp4_base, "nvfp4", Nvfp4), (vllm.mxfp4_base, "mxfp4", Mxfp4)):
            vllm.register_linear_kernel(_kernel_class(base, kind, vllm), vllm.platform, kernel_type)


def _stand_before(kernel_class, kind, vllm):
    stock = kernel_class.process_weights_after_loading

    @functools.wraps(stock)
    def process_weights_after_loading(kernel, layer):
        loading, decide = loadings.current(), _record if operators.recording() else _take
        # A class derived from this one has kernels of its own.
        if loading is None or type(kernel) is not kernel_class or not loadings.safely(decide, loading, layer, kind, kernel, vllm, stock):
            stock(kernel, layer)

    kernel_class.process_weights_after_loading = process_weights_after_loading


def _kernel_class(base, kind, vllm):
    """A kernel of vLLM that runs gemmtune's in every layer."""
    def process_weights_after_loading(kernel, layer):
        _make_ours(kind(kernel, layer, vllm))

    def apply_weights(kernel, layer, x, bias=None):
        raise RuntimeError("a layer of gemmtune runs before its weights were loaded")

    def can_implement(cls, config):
        return kind.can_implement(config, vllm)

    return type(base)(f"Gemmtune{kind.word}LinearKernel", (base,), {
        "__doc__": f"{kind.word} weights by gemmtune's kernels.", "__module__": __name__,
        "is_supported": classmethod(lambda cls, compute_capability=None: (True, None)), "can_implement": classmethod(can_implement),
        "process_weights_after_loading": process_weights_after_loading, "apply_weights": apply_weights})


def _take(loading, layer, kind, kernel, vllm, stock):
    """Whether the layer is ours from now on."""
    made = kind(kernel, layer, vllm)
    why = made.why_not() or loading.why_not_asked() or loading.why_left(made.device, made.key(), made.problem)
    if why is not None:
        loading.left.append((layer, why))
        return False
    _make_ours(made)
    return True


def _make_ours(made):
    made.take()
    loading = loadings.current()
    if loading is not None:
        loading.taken.append((made.layer, made.constants()))
        loading.ahead.setdefault(made.key(), made)


def _record(loading, layer, kind, kernel, vllm, stock):
    """Asks the look-up before each call of vLLM's kernel, which is prepared. Only an eager layer can."""
    made = kind(kernel, layer, vllm)
    why = made.why_not() or (None if loading.eager else loadings.recorded_eagerly)
    stock(kernel, layer)
    if why is not None:
        loading.left.append((layer, why))
        return True
    product = kernel.apply_weights

    def apply_weights(layer, x, bias=None):
        operators.row_of(made.device, made.problem(x.numel() // made.k))
        return product(layer, x, bias)

    kernel.apply_weights = apply_weights
    loading.taken.append((layer, "recorded"))
    return True


class _Layer:
    """A layer of n outputs and k inputs whose weight is as the checkpoint has it, with the kernel of vLLM that holds its settings."""

    def __init__(self, kernel, layer, vllm, weight, n, k):
        self.kernel, self.layer, self.vllm, self.n, self.k = kernel, layer, vllm, n, k
        self.device = operators.device_of(weight)
        self.taken_layout = c.plain
        self.y_type = torch.get_default_dtype()  # while vLLM loads a model it is the model's
        self.bias = getattr(layer, "bias", None) is not None

    def why_not(self):
        """Why gemmtune does not compute the layer, or None."""
        return None if self.y_type in _types else f"its activations are {self.y_type}"

    def key(self):
        """Equal for layers that the same rows answer."""
        return self.operation, self.n, self.k, self.y_type, self.bias

    def constants(self):
        """What a compiled graph has of the layer beside tensors."""
        return f"{self.operation} {self.n} {self.k} layout {self.taken_layout}"

    def runs(self, m):
        """Whether gemmtune runs m rows."""
        return True

    def plan(self, m):
        """Has the kernel for m rows compiled and loaded."""
        contexts.current(self.device).plan(self.problem(m))

    def problem(self, m):
        return operations.problem(m, self.n, self.k, operation=self.operation, y_type=_types[self.y_type], bias=self.bias,
                                  weight_layout=self.layout(), **self.options())

    def options(self):
        """Of the problem: its x_type, and what the format has beside."""
        return {"x_type": _types[self.y_type]}

    def layout(self):
        """Of the weight: while shapes are recorded any, else that of the tuned rows."""
        if operators.recording():
            return c.any_layout
        weight = operations.weight_problem(self.operation, c.weight_formats[self.operation][0], self.n, self.k, y_type=_types[self.y_type],
                                           **self.options())
        return operations.chosen_layout(contexts.current(self.device), weight)

    def set(self, name, tensor):
        """Puts an operand in the place of a parameter of the layer."""
        setattr(self.layer, name, None if tensor is None else nn.Parameter(tensor, requires_grad=False))

    def set_weight(self, name, weight):
        """Puts the weight there in the layout of the tuned rows, and returns (n, layout) of operators."""
        packed = gemmtune.torch.pack(weight, operation=self.operation, y_type=_types[self.y_type], **self.options())
        if packed is weight:
            self.set(name, weight)
            return 0, c.plain
        self.set(name, packed.bits)
        self.taken_layout = packed.layout
        return packed.n, packed.layout

    def run_by(self, apply_weights):
        """vLLM's object for the layer calls apply_weights(layer, x, bias) from now on. Weights that are loaded again are taken too."""
        def process_weights_after_loading(layer):
            again = type(self)(self.kernel, layer, self.vllm)
            again.y_type = self.y_type  # vLLM's default dtype is another one by then
            _make_ours(again)

        self.kernel.apply_weights, self.kernel.process_weights_after_loading = apply_weights, process_weights_after_loading


class Int8(_Layer):
    """Weights [N, K] with a scale for each row, x with a dynamic symmetric scale for each row."""

    operation = "a8w8"

    def __init__(self, kernel, layer, vllm):
        self.weight_name, self.scale_name = kernel.layer_param_names[:2]
        weight = getattr(layer, self.weight_name)
        super().__init__(kernel, layer, vllm, weight, *weight.shape)

    def why_not(self):
        config = self.kernel.config
        if config.is_static_input_scheme or not config.input_symmetric:
            return "int8 with static or asymmetric scales of x"
        return super().why_not() or (None if getattr(self.layer, self.weight_name).is_contiguous() else "its weight is not contiguous")

    def options(self):
        return {"x_type": "i8"}

    def layout(self):
        return c.plain

    def take(self):
        quantize, weight_name, scale_name = self.vllm.quantize_int8, self.weight_name, self.scale_name
        scale = getattr(self.layer, scale_name).detach()
        self.set(weight_name, getattr(self.layer, weight_name).detach())
        self.set(scale_name, scale_of_rows(scale, self.n, getattr(self.layer, "logical_widths", [])))

        def apply_weights(layer, x, bias=None):
            rows, x_scale, _ = quantize(x.reshape(-1, x.shape[-1]), None, None, True)
            y = _ops.a8w8(rows, getattr(layer, weight_name), x_scale.reshape(-1), getattr(layer, scale_name), bias, 0, c.plain, x.dtype)
            return y.view(*x.shape[:-1], y.shape[-1])

        self.run_by(apply_weights)


def scale_of_rows(scale, n, widths):
    """Scales [N], or one, of a weight scale with one element for each row, or for each of the layers that were merged (`widths`)."""
    scale = scale.reshape(-1).float()
    if scale.numel() in (1, n):
        return scale
    return torch.cat([scale[i].expand(width) for i, width in enumerate(widths)]).contiguous()


class Int4(_Layer):
    """Weights in words of eight elements along k, with scales of groups, and zero points or none."""

    operation = "a16w4_int4"

    def __init__(self, kernel, layer, vllm):
        self.config = kernel.config
        super().__init__(kernel, layer, vllm, getattr(layer, kernel.w_q_name), *reversed(self.config.partition_weight_shape))
        self.y_type = self.config.act_type
        self.group = self.k if self.config.group_size == -1 else self.config.group_size

    def why_not(self):
        config = self.config
        if getattr(config, "has_g_idx", False):  # newer versions have none
            return reordered
        if why := why_not_group(self.group, self.k):
            return why
        types = self.vllm.scalar_types
        if config.weight_type != (types.uint4 if config.zero_points else types.uint4b8):
            return f"its weight is {config.weight_type}, with{'' if config.zero_points else 'out'} zero points"
        return super().why_not()

    def key(self):
        return *super().key(), self.group, self.config.zero_points

    def options(self):
        return {**super().options(), "group": 0 if self.group == self.k else self.group, "zero_points": self.config.zero_points}

    def take(self):
        names = self.kernel.w_q_name, self.kernel.w_s_name, self.kernel.w_zp_name
        words, scale, zero_points = (getattr(self.layer, name, None) if name else None for name in names)
        # As compressed-tensors has them, outputs first: a checkpoint of AWQ or GPTQ has inputs first.
        words = words if words.input_dim == 1 else words.t()
        scale = scale if scale.output_dim == 0 else scale.t()
        if not self.config.zero_points:
            zero_points = None
        elif zero_points.output_dim != 0:
            zero_points = zero_points.t()
        weight = checkpoints.compressed_int4(words.detach(), scale.detach(), torch.tensor([self.n, self.k]),
                                             None if zero_points is None else zero_points.detach(), group=self.group)
        weight_name, scale_name, zero_points_name = names
        n, layout = self.set_weight(weight_name, weight.w)
        self.set(scale_name, weight.w_scale)
        if zero_points_name:
            self.set(zero_points_name, weight.w_zero_points)

        def apply_weights(layer, x, bias=None):
            zero_points = getattr(layer, zero_points_name) if zero_points_name else None
            return _ops.a16w4_int4(x, getattr(layer, weight_name), getattr(layer, scale_name), zero_points, bias, n, layout, None)

        self.run_by(apply_weights)


class _Fp4(_Layer):
    """Weights [N, K/2] of bytes with two e2m1 elements each, in `weight`, and scales of groups of k in `weight_scale`."""

    def __init__(self, kernel, layer, vllm):
        rows, columns = layer.weight.shape
        super().__init__(kernel, layer, vllm, layer.weight, rows, 2 * columns)

    def take(self):
        if (why := self.why_not()) is not None:
            raise RuntimeError(f"vLLM has no {self.word} kernel for CPUs, and gemmtune does not take the layer: {why}")
        n, layout = self.set_weight("weight", self.layer.weight.detach().contiguous())
        self.set("weight_scale", self.layer.weight_scale.detach().contiguous())
        self.run_by(self.product(n, layout))


class Nvfp4(_Fp4):
    word, operation = "NvFp4", "a16w4_nvfp4"

    @staticmethod
    def can_implement(config, vllm):
        return True, None

    def product(self, n, layout):
        self.set("weight_global_scale", self.layer.weight_global_scale.detach().float().reshape(1))

        def apply_weights(layer, x, bias=None):
            return _ops.a16w4_nvfp4(x, layer.weight, layer.weight_scale, layer.weight_global_scale, bias, n, layout, None)
        return apply_weights


class Mxfp4(_Fp4):
    word, operation = "MxFp4", "a16w4"

    @staticmethod
    def can_implement(config, vllm):
        key = config.activation_quant_key
        return (True, None) if key in (None, vllm.mxfp4_activations) else (False, f"does not compute with x as {key}")

    def product(self, n, layout):
        def apply_weights(layer, x, bias=None):
            return _ops.a16w4(x, layer.weight, layer.weight_scale, bias, n, layout, None)
        return apply_weights
