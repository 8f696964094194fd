"""Loads the library of operators into this PyTorch, registers what is Python's, and wraps the operators in functions that raise
gemmtune's exceptions."""

import ctypes
import functools

import torch

from .. import _library as c
from .. import contexts, errors, operations

_not_planned, _needs_gradient = 100, 101  # of gemmtune_torch_take_status, beside those of the C interface


def _open(gpu, message, capacity):
    """Called by the library for a device whose context is not open."""
    try:
        contexts.current(("cpu", 0) if gpu < 0 else ("cuda", gpu))
        return 0
    except Exception as error:  # into C: no exception may leave
        text = str(error).encode()[:capacity - 1]
        ctypes.memmove(message, text + b"\0", len(text) + 1)
        return getattr(error, "status", 0) or errors.InternalError.status


def random_rows(m, k, dtype, device):
    """x [m, k] to make a plan with, the same in every process; PyTorch's own generators are left alone. Not zeros: a plan's first run may
    verify its kernel, and every kernel is right on those."""
    generator = torch.Generator(device).manual_seed(m)
    if not dtype.is_floating_point:
        return torch.randint(-127, 128, (m, k), generator=generator, device=device, dtype=dtype)
    return torch.randn(m, k, generator=generator, device=device, dtype=torch.float32 if dtype.itemsize == 1 else dtype).to(dtype)


def _load():
    library = ctypes.CDLL(c.library_path("libgemmtune_torch.so"))
    opener = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(_open)
    sentence = errors.NeedsGradient.sentence.encode()
    library.kept = opener, sentence
    library.gemmtune_torch_register.restype = ctypes.c_char_p
    library.gemmtune_torch_register.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    library.gemmtune_torch_set_context.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.gemmtune_torch_set_context.restype = ctypes.c_int
    missing = library.gemmtune_torch_register(opener, sentence)
    if missing:
        raise errors.TorchTooOld(f"PyTorch {torch.__version__} has no {missing.decode()}, which gemmtune's operators need; expected "
                                 "PyTorch 2.9 or later")
    contexts.listen(lambda device, context: library.gemmtune_torch_set_context(device[1] if device[0] == "cuda" else -1, context) != 0)
    return library


_native = _load()
ops = torch.ops.gemmtune


def raise_typed(error):
    """The exception of gemmtune for a failed operator; `error` itself where the operator did not fail."""
    status = _native.gemmtune_torch_take_status()
    sentence = str(error).split("gemmtune: ", 1)[-1].split("\nException raised from")[0]
    if status == _not_planned:
        raise errors.NotPlanned(sentence) from None
    if status == _needs_gradient:
        raise errors.NeedsGradient(sentence) from None
    if status:
        raise errors.error_of(status, sentence) from None
    raise error


def _typed(function):
    @functools.wraps(function)
    def call(*arguments, **options):
        try:
            return function(*arguments, **options)
        except errors.Error:
            raise
        except RuntimeError as error:
            raise_typed(error)
    return call


# ---- derivatives, and shapes without data, for torch.compile -------------------------------------------------------------------------------

from . import _gradients  # noqa: E402: behind _load(), which says so where PyTorch is too old


def _result_type(x, out_dtype):
    if out_dtype is not None:
        return out_dtype
    return x.dtype if x.dtype in (torch.bfloat16, torch.float16, torch.float32) else torch.bfloat16


def _columns(w, n, layout):
    return n if layout else w.shape[0]


def _fake_linear(x, w, bias=None, x_scale=None, w_scale=None, n=0, layout=0, out_dtype=None, constant_weight=False):
    return x.new_empty((*x.shape[:-1], _columns(w, n, layout)), dtype=_result_type(x, out_dtype))


def _fake_a8w8(x, w, x_scale, w_scale, bias=None, n=0, layout=0, out_dtype=None):
    return x.new_empty((*x.shape[:-1], _columns(w, n, layout)), dtype=_result_type(x, out_dtype))


def _fake_blockscale(x, w, x_scale, w_scale, n=0, layout=0, out_dtype=None):
    return x.new_empty((*x.shape[:-1], _columns(w, n, layout)), dtype=_result_type(x, out_dtype))


def _fake_a16w4(x, w, w_scale, bias=None, n=0, layout=0, out_dtype=None):
    return x.new_empty((*x.shape[:-1], _columns(w, n, layout)), dtype=_result_type(x, out_dtype))


def _fake_format(tensors):
    """Of an operator with so many tensors between w and bias."""
    def fake(x, w, *rest, n=0, layout=0, out_dtype=None, **options):
        n, layout, out_dtype = (*rest[tensors + 1:], *(n, layout, out_dtype)[max(0, len(rest) - tensors - 1):])
        return x.new_empty((*x.shape[:-1], _columns(w, n, layout)), dtype=_result_type(x, out_dtype))
    return fake


def _fake_batched(x, w, *rest, **options):
    return x.new_empty((x.shape[0], x.shape[1], w.shape[1]), dtype=torch.bfloat16)


def _fake_moe(x, w1, w2, topk_ids, topk_weights, x_scale=None, w1_scale=None, w2_scale=None, activation=1, quant_type=0,
              gated=True, doweight_stage1=False, shared_experts=0, bias1=None, bias2=None, out_dtype=None, w1_global_scale=None,
              w2_global_scale=None, w1_zero_points=None, w2_zero_points=None):
    return x.new_empty((x.shape[0], w2.shape[1]), dtype=_result_type(x, out_dtype))


def _fake_silu_and_mul(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise errors.InvalidArgument(f"gate and up have shapes {list(gate.shape)} and {list(up.shape)} and types {gate.dtype} and "
                                     f"{up.dtype}, expected the same")
    return gate.new_empty(gate.shape)


def _fake_tuned_linear_out(x, w, bias, constant_weight, *, out):
    return None


def _fake_tuned_scaled_linear(x, w, x_scale, w_scale, bias, rows, out_dtype, kind, other, constant_weight, untuned_rows):
    return x.new_empty((rows, w.shape[0] if kind == blocks_scaled else w.shape[1]), dtype=out_dtype)


# What a tuned_scaled_linear has: fp8 with one scale each, fp8 or int8 with a scale a row of x, fp8 with scales of blocks. w is [N, K] of
# blocks, else a view [K, N] of that.
tensor_scaled, token_scaled, blocks_scaled = range(3)
_fakes = {"linear": _fake_linear, "linear.full": _fake_linear, "a8w8": _fake_a8w8, "a8w8_blockscale": _fake_blockscale, "a4w4_blockscale": _fake_blockscale,
          "a16w4": _fake_a16w4, "a8w4": _fake_a8w8, "a16w4_nvfp4": _fake_format(2), "a8w4_nvfp4": _fake_format(3),
          "a4w4_nvfp4": _fake_format(4), "a16w4_int4": _fake_format(2), "a8w4_int4": _fake_format(3),
          "batched_bf16": _fake_batched, "batched_a8w8": _fake_batched, "fused_moe": _fake_moe, "silu_and_mul": _fake_silu_and_mul}
for _name, _fake in (("tuned_linear_out", _fake_tuned_linear_out), ("tuned_scaled_linear", _fake_tuned_scaled_linear)):
    torch.library.register_fake(f"gemmtune::{_name}", _gradients.refusing(_fake))
_python_kernels = torch.library.Library("gemmtune", "IMPL")
_python_kernels.impl("needs_gradient", _gradients.needed, "CompositeImplicitAutograd")
for _name, _fake in _fakes.items():
    _base, *_overload = _name.split(".")
    _names = _name, ".".join([f"{_base}_out", *_overload])
    for _one, _function in zip(_names, (_fake, lambda *arguments, **options: None)):
        torch.library.register_fake(f"gemmtune::{_one}", _gradients.refusing(_function))
    _gradients.register(_python_kernels, _names)


# ---- functions --------------------------------------------------------------------------------------------------------------

def dtype_of(type):
    """torch's dtype of "bf16", or a dtype itself."""
    words = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    if type is None or isinstance(type, torch.dtype):
        return type
    if type not in words:
        raise errors.WrongType(f"out_dtype is '{type}', expected one of {', '.join(words)}")
    return words[type]


def _check_out(out, out_dtype):
    """An out that is not of the type asked for."""
    wanted = dtype_of(out_dtype)
    if wanted is not None and wanted != getattr(out, "dtype", wanted):
        raise errors.InvalidArgument(f"out is {out.dtype} and out_dtype {wanted}, expected one of the two, or the same")


def _weight(w):
    """(tensor, n, layout) of a plain or packed weight."""
    return (w.bits, w.n, w.layout) if isinstance(w, operations.PackedWeight) else (w, 0, 0)


@_typed
def linear(x, w, bias=None, out=None, *, x_scale=None, w_scale=None, out_dtype=None):
    """y = x · wᵀ (+ bias); fp8 with x_scale and w_scale, one float32 each."""
    w, n, layout = _weight(w)
    if out is None:
        return ops.linear.full(x, w, bias, x_scale, w_scale, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    ops.linear_out.full(x, w, bias, x_scale, w_scale, out=out, n=n, layout=layout)
    return out


@_typed
def a8w8(x, w, x_scale, w_scale, bias=None, out=None, *, out_dtype=None):
    """int8 or fp8 with a float32 scale for each row of x and of w, or one for all."""
    w, n, layout = _weight(w)
    if out is None:
        return ops.a8w8(x, w, x_scale, w_scale, bias, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    ops.a8w8_out(x, w, x_scale, w_scale, bias, out=out, n=n, layout=layout)
    return out


@_typed
def a8w8_blockscale(x, w, x_scale, w_scale, out=None, *, out_dtype=None):
    """fp8 with float32 scales, x in blocks of 1 x 128, w of 128 x 128."""
    w, n, layout = _weight(w)
    if out is None:
        return ops.a8w8_blockscale(x, w, x_scale, w_scale, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    ops.a8w8_blockscale_out(x, w, x_scale, w_scale, out=out, n=n, layout=layout)
    return out


@_typed
def a4w4_blockscale(x, w, x_scale, w_scale, out=None, *, out_dtype=None):
    """MXFP4: two elements to a byte (uint8 or float4_e2m1fn_x2), e8m0 scales (or uint8) of 32."""
    w, n, layout = _weight(w)
    if out is None:
        return ops.a4w4_blockscale(x, w, x_scale, w_scale, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    ops.a4w4_blockscale_out(x, w, x_scale, w_scale, out=out, n=n, layout=layout)
    return out


@_typed
def a16w4(x, w, w_scale, bias=None, out=None, *, out_dtype=None):
    """bf16 or f16 with an MXFP4 weight: two elements to a byte, e8m0 scales of 32; the result has the type of x."""
    w, n, layout = _weight(w)
    if out is None:
        return ops.a16w4(x, w, w_scale, bias, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    ops.a16w4_out(x, w, w_scale, bias, out=out, n=n, layout=layout)
    return out


@_typed
def a8w4(x, w, x_scale, w_scale, bias=None, out=None, *, out_dtype=None):
    """fp8 with a float32 scale for each row of x, or one for all, with an MXFP4 weight."""
    w, n, layout = _weight(w)
    if out is None:
        return ops.a8w4(x, w, x_scale, w_scale, bias, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    ops.a8w4_out(x, w, x_scale, w_scale, bias, out=out, n=n, layout=layout)
    return out


def _run_format(operation, x, w, tensors, bias, out, out_dtype):
    w, n, layout = _weight(w)
    if out is None:
        return getattr(ops, operation)(x, w, *tensors, bias, n, layout, dtype_of(out_dtype))
    _check_out(out, out_dtype)
    getattr(ops, f"{operation}_out")(x, w, *tensors, bias, out=out, n=n, layout=layout)
    return out


@_typed
def a16w4_nvfp4(x, w, w_scale, w_global_scale, bias=None, out=None, *, out_dtype=None):
    """bf16 or f16 with an NVFP4 weight: two elements to a byte, e4m3 scales of 16, a float32 for the tensor."""
    return _run_format("a16w4_nvfp4", x, w, (w_scale, w_global_scale), bias, out, out_dtype)


@_typed
def a8w4_nvfp4(x, w, x_scale, w_scale, w_global_scale, bias=None, out=None, *, out_dtype=None):
    """fp8 with a float32 scale for each row of x, or one for all, with an NVFP4 weight."""
    return _run_format("a8w4_nvfp4", x, w, (x_scale, w_scale, w_global_scale), bias, out, out_dtype)


@_typed
def a4w4_nvfp4(x, w, x_scale, w_scale, x_global_scale, w_global_scale, bias=None, out=None, *, out_dtype=None):
    """Both NVFP4."""
    return _run_format("a4w4_nvfp4", x, w, (x_scale, w_scale, x_global_scale, w_global_scale), bias, out, out_dtype)


@_typed
def a16w4_int4(x, w, w_scale, w_zero_points=None, bias=None, out=None, *, out_dtype=None):
    """bf16 or f16 with an int4 weight: two elements to a byte, scales of the result's type [N, K/group], zero points int8."""
    return _run_format("a16w4_int4", x, w, (w_scale, w_zero_points), bias, out, out_dtype)


@_typed
def a8w4_int4(x, w, x_scale, w_scale, w_zero_points=None, bias=None, out=None, *, out_dtype=None):
    """int8 with a float32 scale for each row of x, or one for all, with an int4 weight."""
    return _run_format("a8w4_int4", x, w, (x_scale, w_scale, w_zero_points), bias, out, out_dtype)


@_typed
def batched_bf16(x, w, bias=None, out=None):
    """bf16 [B, M, K] with weights [B, N, K]."""
    if out is None:
        return ops.batched_bf16(x, w, bias)
    ops.batched_bf16_out(x, w, bias, out=out)
    return out


@_typed
def batched_a8w8(x, w, x_scale, w_scale, bias=None, out=None):
    """int8 or fp8 [B, M, K] with weights [B, N, K] and scales [B, M], [B, N], or one for all."""
    if out is None:
        return ops.batched_a8w8(x, w, x_scale, w_scale, bias)
    ops.batched_a8w8_out(x, w, x_scale, w_scale, bias, out=out)
    return out


@_typed
def fused_moe(x, w1, w2, topk_ids, topk_weights, out=None, *, activation="silu", quant_type="none", gated=True,
              doweight_stage1=False, shared_experts=0, x_scale=None, w1_scale=None, w2_scale=None, bias1=None, bias2=None,
              w1_global_scale=None, w2_global_scale=None, w1_zero_points=None, w2_zero_points=None, out_dtype=None):
    """A mixture of experts, as gemmtune.fused_moe."""
    of_weights = {"w1_global_scale": w1_global_scale, "w2_global_scale": w2_global_scale, "w1_zero_points": w1_zero_points,
                  "w2_zero_points": w2_zero_points}
    words = (operations._word("activation", c.activations, activation), operations._word("quant_type", c.quant_types, quant_type),
             gated, doweight_stage1, shared_experts)
    if out is None:
        return ops.fused_moe(x, w1, w2, topk_ids, topk_weights, x_scale, w1_scale, w2_scale, *words, bias1, bias2,
                             dtype_of(out_dtype), **of_weights)
    activation, quant_type, gated, doweight_stage1, shared_experts = words
    _check_out(out, out_dtype)
    ops.fused_moe_out(x, w1, w2, topk_ids, topk_weights, x_scale, w1_scale, w2_scale, out=out, activation=activation,
                      quant_type=quant_type, gated=gated, doweight_stage1=doweight_stage1, shared_experts=shared_experts, bias1=bias1,
                      bias2=bias2, **of_weights)
    return out


@_typed
def silu_and_mul(gate, up, out=None):
    """silu(gate) * up of two tensors of one shape (columns of one matrix, for example), in float32 and rounded once."""
    if out is None:
        return ops.silu_and_mul(gate, up)
    ops.silu_and_mul_out(gate, up, out=out)
    return out


# ---- packed weights -----------------------------------------------------------------------------------------------------------

_types = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.int8: "i8", torch.uint8: "u8",
          torch.float8_e4m3fn: "f8_e4m3fn", torch.float8_e4m3fnuz: "f8_e4m3fnuz"}
_dtypes = {word: dtype for dtype, word in _types.items()}


def type_of(tensor):
    """gemmtune's word for a tensor's dtype."""
    if tensor.dtype not in _types:
        raise errors.WrongType(f"dtype is {tensor.dtype}, expected one of {', '.join(str(one) for one in _types)}")
    return _types[tensor.dtype]


def device_of(tensor):
    return ("cuda", tensor.device.index) if tensor.is_cuda else ("cpu", 0)


def _wait(tensor):
    """gemmtune packs on a stream of its own."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def pack(w, *, operation="a16w16", x_type=None, y_type=None, scale_ab=False, group=0, zero_points=False, layout=None, context=None):
    """A PackedWeight of the weight w [N, K] in the layout of the tuned files of its device, or w itself if that is plain. layout: as gemmtune.pack()."""
    if w.dim() != 2 or not w.is_contiguous():
        raise errors.InvalidArgument(f"w has shape {list(w.shape)} and strides {list(w.stride())}, expected a dense [N, K]")
    context = context or contexts.current(device_of(w))
    type, n, k = operations.weight_size(operation, type_of(w), *w.shape)
    weight = operations.weight_problem(operation, type, n, k, x_type=x_type, y_type=y_type, scale_ab=scale_ab,
                                       group=group, zero_points=zero_points)
    layout = operations.chosen_layout(context, weight, layout)
    if layout == c.plain:
        return w
    bits = _room(operations.packed_bytes(context, weight, layout), w.device)
    _wait(w)
    with _device_guard(w):
        c.check(c.lib.gemmtune_pack_weight(context.handle, ctypes.byref(weight), layout, w.data_ptr(), bits.data_ptr()))
    return operations.PackedWeight(bits, layout, n, k, type, operation)


def _room(size, device):
    """Bytes for a packed weight. PyTorch's memory on a GPU is aligned."""
    step = operations.packed_alignment(size) if device.type == "cpu" else 1
    room = torch.empty(size + step - 1, dtype=torch.uint8, device=device)
    skip = -room.data_ptr() % step
    return room[skip:skip + size]


def unpack(packed, *, context=None):
    """The plain weight of a PackedWeight whose layout has an inverse."""
    context = context or contexts.current(device_of(packed.bits))
    weight = operations.weight_problem(packed.operation, packed.type, packed.n, packed.k)
    columns, dtype = (packed.k // 2, torch.uint8) if packed.type in ("f4_e2m1", "i4") else (packed.k, _dtypes[packed.type])
    plain = torch.empty((packed.n, columns), dtype=dtype, device=packed.bits.device)
    _wait(plain)
    with _device_guard(plain):
        c.check(c.lib.gemmtune_unpack_weight(context.handle, ctypes.byref(weight), packed.layout, packed.bits.data_ptr(),
                                             plain.data_ptr()))
    return plain


def _device_guard(tensor):
    """gemmtune changes the thread's CUDA device; this puts it back."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else torch.no_grad()


# ---- Inductor -------------------------------------------------------------------------------------------------------------------

def gemmtune_mm(x, w, *, out):
    """x [M, K] · w [K, N] for max-autotune."""
    ops.linear_out(x, w.t(), out=out)


def register_inductor():
    """Adds gemmtune to the kernels that torch.compile(mode="max-autotune") times for a matrix product."""
    import torch._inductor.config as config
    if not hasattr(config, "external_matmul"):
        raise errors.TorchTooOld(f"PyTorch {torch.__version__} has no torch._inductor.config.external_matmul, expected 2.9 or later")
    if gemmtune_mm not in config.external_matmul:
        config.external_matmul.append(gemmtune_mm)
