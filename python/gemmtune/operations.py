"""The operations of the C interface for arrays of any library: numpy, cupy, JAX, all with __dlpack__, and PyTorch's tensors,
which gemmtune.torch serves. On a CPU the result is complete on return; on a GPU work is enqueued on the array's own stream."""

import ctypes
import functools
import importlib
import sys

from . import _arrays, contexts
from . import _library as c
from .errors import InvalidArgument, WrongType

huge_page_bytes = 2 << 20  # of x86


class PackedWeight:
    """A weight in a packed layout, for one version of gemmtune on one device. Give it where an operation takes w."""

    def __init__(self, bits, layout, n, k, type, operation, batch=1):
        self.bits, self.layout, self.n, self.k, self.type, self.operation, self.batch = bits, layout, n, k, type, operation, batch

    @property
    def layout_name(self):
        return c.lib.gemmtune_layout_text(self.layout).decode()

    def __repr__(self):
        return f"PackedWeight({self.operation}, n={self.n}, k={self.k}, {self.type}, {self.layout_name})"


def _torch_for(array):
    """gemmtune.torch for a tensor of PyTorch, else None."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return None
    module = sys.modules.get("gemmtune.torch")
    return module if module is not None else importlib.import_module("gemmtune.torch")


def _number(type):
    if type not in c.types:
        raise WrongType(f"type '{type}', expected one of {', '.join(c.types[1:])}")
    return c.types.index(type)


def _plain_array(array):
    return array.array if isinstance(array, _arrays.Typed) else array


class _Call:
    """One call: its arrays become the problem and the operands of the C interface, which decides what is right."""

    def __init__(self, operation, x, context, stream):
        first = _plain_array(x)
        _arrays.refuse_traced("x", first)
        self.shared_stream = True
        self.stream = stream
        if not hasattr(first, "__array_interface__") and stream is None and hasattr(first, "__dlpack_device__"):
            if first.__dlpack_device__()[0] not in (1, 3):
                self.stream, self.shared_stream = _arrays.stream_of(x)
        self.x_array = x
        self.read = {}
        self.arrays = c.Arrays()
        self.problem = c.Problem(operation=c.operations.index(operation))
        self.values = c.Operands()
        self.add("x", x)
        self.context = context or contexts.current(self.read["x"].device)

    def add(self, member, array, name=None):
        """`array` as a member of gemmtune_arrays; `name`: its own, if that is another one. None: absent."""
        if array is None:
            return
        operand = _arrays.read(name or member, array, self.stream)
        first = self.read.setdefault("x", operand)
        if operand.device != first.device:
            raise InvalidArgument(f"{operand.name} is on {operand.device[0]}:{operand.device[1]}, expected it beside x on "
                                  f"{first.device[0]}:{first.device[1]}")
        self.read[member] = operand
        operand.description = operand.describe()
        setattr(self.arrays, member, ctypes.pointer(operand.description))

    def add_weight(self, weight):
        if isinstance(weight, PackedWeight):
            self.problem.weight_layout, self.problem.w_type = weight.layout, _number(weight.type)
            self.problem.n, self.problem.k = weight.n, weight.k
            weight = weight.bits
        self.add("w", weight)

    def _check(self):
        """Fills problem and operands; what a kernel cannot read where it lies is copied, if it belongs to this call alone."""
        while True:
            strided = ctypes.POINTER(c.Array)()
            c.check(c.lib.gemmtune_read_arrays(ctypes.byref(self.arrays), ctypes.byref(self.problem), ctypes.byref(self.values),
                                               ctypes.byref(strided)))
            if not strided:
                return
            address = ctypes.addressof(strided.contents)
            member, operand = next((member, operand) for member, operand in self.read.items()
                                   if ctypes.addressof(operand.description) == address)
            copied = _arrays.contiguous(operand)
            if copied is None:  # its library is not known: the sentence
                c.check(c.lib.gemmtune_read_arrays(ctypes.byref(self.arrays), ctypes.byref(self.problem),
                                                   ctypes.byref(self.values), None))
            self.add(member, copied, operand.name)

    def _launch(self, kernel):
        if self.read["x"].device[0] == "cuda" and _arrays.is_capturing(self.stream):
            contexts.keep(self.context)
        if kernel is None:
            c.check(c.lib.gemmtune_gemm(self.context.handle, ctypes.byref(self.problem), ctypes.byref(self.values), self.stream))
            return
        plan = self.context.named_plan(self.problem, kernel)
        workspace = _aligned_bytes(_plain_array(self.x_array), plan.workspace_bytes) if plan.workspace_bytes else None
        pointer = None if workspace is None else _arrays.read("workspace", workspace, self.stream).pointer
        plan.run(self.values, pointer, self.stream)
        if workspace is not None and self.read["x"].device[0] != "cpu":
            _arrays.synchronize(self.stream)  # the kernel has the workspace until it ends

    def run(self, out, out_dtype, kernel=None):
        made = out
        if out is not None:
            _arrays.refuse_immutable("out", _plain_array(out))
            self.add("out", out)
            if out_dtype is not None and out_dtype != self.read["out"].type:
                raise InvalidArgument(f"out is {self.read['out'].type} and out_dtype {out_dtype}, expected one of the two, or the same")
        elif out_dtype is not None:
            self.problem.y_type = _number(out_dtype)
        self._check()
        if out is None:
            shape = (*self.read["x"].shape[:-1], self.values.ldy)
            made = _arrays.empty_like_of(self.x_array, shape, c.types[self.problem.y_type])
            self.add("out", made)
            self._check()
        self._launch(kernel)
        if not self.shared_stream:
            _arrays.synchronize(self.stream)
        return _plain_array(made) if out is None else out


def _multiply(operation, x, w, x_scale, w_scale, bias, out, out_dtype, context, stream, kernel=None, **beside):
    call = _Call(operation, x, context, stream)
    call.add_weight(w)
    for member, array in {"x_scale": x_scale, "w_scale": w_scale, "bias": bias, **beside}.items():
        call.add(member, array)
    return call.run(out, out_dtype, kernel)


def linear(x, w, bias=None, out=None, *, x_scale=None, w_scale=None, out_dtype=None, context=None, stream=None, kernel=None):
    """y = x · wᵀ (+ bias), the operation a16w16: x [..., K], w [N, K] (or a PackedWeight), bias [N]; bf16, fp16 or fp32, and
    fp8 with x_scale and w_scale, one float32 each. kernel: a kernelName, "family" or "family:index" to run in place of what the
    tuned files say, verified in its first run (Context.named_plan); for tests, not for speed."""
    if kernel is None and (torch := _torch_for(x)):
        return torch.linear(x, w, bias, out, x_scale=x_scale, w_scale=w_scale, out_dtype=out_dtype)
    return _multiply("a16w16", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream, kernel)


def a8w8(x, w, x_scale, w_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """int8 or fp8 with a float32 scale for each row of x [M] and of w [N], or one for all; the result is bf16 or f16. A
    PackedWeight makes it a8w8_bpreshuffle."""
    if torch := _torch_for(x):
        return torch.a8w8(x, w, x_scale, w_scale, bias, out, out_dtype=out_dtype)
    return _multiply("a8w8", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream)


def a8w8_blockscale(x, w, x_scale, w_scale, out=None, *, out_dtype=None, context=None, stream=None):
    """fp8 with scales of blocks: x_scale [M, ceil(K/128)], w_scale [ceil(N/128), ceil(K/128)], both float32 or both e8m0 bytes."""
    if torch := _torch_for(x):
        return torch.a8w8_blockscale(x, w, x_scale, w_scale, out, out_dtype=out_dtype)
    return _multiply("a8w8_blockscale", x, w, x_scale, w_scale, None, out, out_dtype, context, stream)


def a4w4_blockscale(x, w, x_scale, w_scale, out=None, *, out_dtype=None, context=None, stream=None):
    """MXFP4: x [M, K/2] and w [N, K/2] of bytes with two elements each, the even one low; e8m0 scales x_scale [M, K/32],
    w_scale [N, K/32]."""
    if torch := _torch_for(x):
        return torch.a4w4_blockscale(x, w, x_scale, w_scale, out, out_dtype=out_dtype)
    return _multiply("a4w4_blockscale", x, w, x_scale, w_scale, None, out, out_dtype, context, stream)


def a16w4(x, w, w_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """bf16 or f16 x [..., K] with an MXFP4 weight: w [N, K/2] of bytes with two elements each (or a PackedWeight), e8m0 scales
    w_scale [N, K/32]; the result has the type of x."""
    if torch := _torch_for(x):
        return torch.a16w4(x, w, w_scale, bias, out, out_dtype=out_dtype)
    return _multiply("a16w4", x, w, None, w_scale, bias, out, out_dtype, context, stream)


def a8w4(x, w, x_scale, w_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """fp8 x [..., K] with a float32 scale for each row or one for all, with an MXFP4 weight as a16w4 has it; the result is bf16 or
    f16."""
    if torch := _torch_for(x):
        return torch.a8w4(x, w, x_scale, w_scale, bias, out, out_dtype=out_dtype)
    return _multiply("a8w4", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream)


def a16w4_nvfp4(x, w, w_scale, w_global_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """bf16 or f16 x [..., K] with an NVFP4 weight: w [N, K/2] of bytes with two elements each (or a PackedWeight), e4m3 scales
    w_scale [N, K/16] (bytes or fp8) and one float32 w_global_scale, by which elements are multiplied; the result has the type of x."""
    if torch := _torch_for(x):
        return torch.a16w4_nvfp4(x, w, w_scale, w_global_scale, bias, out, out_dtype=out_dtype)
    return _multiply("a16w4_nvfp4", x, w, None, w_scale, bias, out, out_dtype, context, stream, w_global_scale=w_global_scale)


def a8w4_nvfp4(x, w, x_scale, w_scale, w_global_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """fp8 x [..., K] with a float32 scale for each row or one for all, with an NVFP4 weight as a16w4_nvfp4 has it; the result is
    bf16 or f16."""
    if torch := _torch_for(x):
        return torch.a8w4_nvfp4(x, w, x_scale, w_scale, w_global_scale, bias, out, out_dtype=out_dtype)
    return _multiply("a8w4_nvfp4", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream, w_global_scale=w_global_scale)


def a4w4_nvfp4(x, w, x_scale, w_scale, x_global_scale, w_global_scale, bias=None, out=None, *, out_dtype=None, context=None,
               stream=None):
    """Both operands NVFP4, as the weight of a16w4_nvfp4: x [M, K/2], w [N, K/2], e4m3 scales [M, K/16] and [N, K/16], a float32 for
    each tensor; the result is bf16 or f16."""
    if torch := _torch_for(x):
        return torch.a4w4_nvfp4(x, w, x_scale, w_scale, x_global_scale, w_global_scale, bias, out, out_dtype=out_dtype)
    return _multiply("a4w4_nvfp4", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream, x_global_scale=x_global_scale,
                     w_global_scale=w_global_scale)


def a16w4_int4(x, w, w_scale, w_zero_points=None, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """bf16 or f16 x [..., K] with an int4 weight: w [N, K/2] of bytes with two elements in two's complement each (or a PackedWeight),
    w_scale [N, K/group] of the result's type for groups of 32, 64 or 128 elements of K or for all of them, w_zero_points int8
    [N, K/group] from -8 to 8, which are subtracted from the elements. The result has the type of x."""
    if torch := _torch_for(x):
        return torch.a16w4_int4(x, w, w_scale, w_zero_points, bias, out, out_dtype=out_dtype)
    return _multiply("a16w4_int4", x, w, None, w_scale, bias, out, out_dtype, context, stream, w_zero_points=w_zero_points)


def a8w4_int4(x, w, x_scale, w_scale, w_zero_points=None, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """int8 x [..., K] with a float32 scale for each row or one for all, with an int4 weight as a16w4_int4 has it; the result is
    bf16 or f16."""
    if torch := _torch_for(x):
        return torch.a8w4_int4(x, w, x_scale, w_scale, w_zero_points, bias, out, out_dtype=out_dtype)
    return _multiply("a8w4_int4", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream, w_zero_points=w_zero_points)


def batched_bf16(x, w, bias=None, out=None, *, context=None, stream=None):
    """bf16 [B, M, K] with weights [B, N, K]; bias [N]."""
    if torch := _torch_for(x):
        return torch.batched_bf16(x, w, bias, out)
    return _multiply("batched_bf16", x, w, None, None, bias, out, None, context, stream)


def batched_a8w8(x, w, x_scale, w_scale, bias=None, out=None, *, context=None, stream=None):
    """int8 or fp8 [B, M, K] with weights [B, N, K]; scales [B, M] and [B, N], or one for all."""
    if torch := _torch_for(x):
        return torch.batched_a8w8(x, w, x_scale, w_scale, bias, out)
    return _multiply("batched_a8w8", x, w, x_scale, w_scale, bias, out, None, context, stream)


def _word(kind, words, value):
    if value not in words:
        raise InvalidArgument(f"{kind} is '{value}', expected one of {', '.join(words)}")
    return words.index(value)


def _mixture(activation, quant_type, **members):
    return c.Moe(activation=_word("activation", c.activations, activation), quant_type=_word("quant_type", c.quant_types, quant_type), **members)


def fused_moe(x, w1, w2, topk_ids, topk_weights, out=None, *, activation="silu", quant_type="none", gated=True,
              doweight_stage1=False, shared_experts=0, x_scale=None, w1_scale=None, w2_scale=None, bias1=None, bias2=None,
              w1_global_scale=None, w2_global_scale=None, w1_zero_points=None, w2_zero_points=None, out_dtype=None, context=None,
              stream=None):
    """A mixture of experts: x [T, K], w1 [E, N or 2N (gated), K], w2 [E, K, N], topk_ids int32 [T, k], topk_weights float32
    [T, k]; an id of -1 is an empty slot, which adds nothing. The last `shared_experts` of E get every token with the weight 1, beside the k in topk_ids. Scales by quant_type: the
    table of gemmtune_operands in include/gemmtune/c.h. bias1 [E, N or 2N] and bias2 [E, K], float32, are given both or neither.

    Of weights alone, with x of bf16 or f16, are per_1x16 (NVFP4: w1_scale [E, N or 2N, K/16], w2_scale [E, K, N/16], e4m3, and
    float32 w1_global_scale and w2_global_scale [E]) and per_group (int4: scales of the result's type [E, N or 2N, K/group] and
    [E, K, N/group], int8 w1_zero_points and w2_zero_points of these shapes or neither). Two elements lie in a byte."""
    if torch := _torch_for(x):
        return torch.fused_moe(x, w1, w2, topk_ids, topk_weights, out, activation=activation, quant_type=quant_type, gated=gated,
                         doweight_stage1=doweight_stage1, shared_experts=shared_experts, x_scale=x_scale, w1_scale=w1_scale,
                         w2_scale=w2_scale, bias1=bias1, bias2=bias2, w1_global_scale=w1_global_scale, w2_global_scale=w2_global_scale,
                         w1_zero_points=w1_zero_points, w2_zero_points=w2_zero_points, out_dtype=out_dtype)
    call = _Call("fused_moe", x, context, stream)
    moe = _mixture(activation, quant_type, gated=gated, doweight_stage1=doweight_stage1, shared_experts=shared_experts)
    call.arrays.moe, call.arrays.moe_operands = ctypes.pointer(moe), ctypes.pointer(c.MoeOperands())
    for member, name, array in (("w", "w1", w1), ("w2", "w2", w2), ("topk_ids", "topk_ids", topk_ids),
                                ("topk_weights", "topk_weights", topk_weights), ("x_scale", "x_scale", x_scale),
                                ("w_scale", "w1_scale", w1_scale), ("w2_scale", "w2_scale", w2_scale), ("bias", "bias1", bias1),
                                ("bias2", "bias2", bias2), ("w_global_scale", "w1_global_scale", w1_global_scale),
                                ("w2_global_scale", "w2_global_scale", w2_global_scale), ("w_zero_points", "w1_zero_points", w1_zero_points),
                                ("w2_zero_points", "w2_zero_points", w2_zero_points)):
        call.add(member, array, name)
    return call.run(out, out_dtype)


def problem(m, n, k, *, operation="a16w16", x_type="bf16", w_type=None, y_type=None, batch=1, bias=False, scale_ab=False,
            weight_layout=c.plain, alignment=16, group=0, zero_points=False):
    """A problem for Context.plan(). group: of an int4 weight, 32, 64 or 128; 0: whole rows."""
    w_type = w_type or (c.weight_formats[operation][0] if operation in c.weight_formats else x_type)
    return c.Problem(operation=_word("operation", c.operations, operation), m=m, n=n, k=k, batch=batch, x_type=_number(x_type),
                     w_type=_number(w_type), y_type=_number(y_type or "unset"), bias=bias, scale_ab=scale_ab,
                     weight_layout=weight_layout, alignment=alignment, w_group=group, zero_points=zero_points)


def mixture_problem(tokens, inter_dim, model_dim, *, experts, topk, x_type="bf16", w_type=None, y_type=None, bias=False, activation="silu",
                    quant_type="none", gated=True, doweight_stage1=False, shared_experts=0, group=0, zero_points=False):
    """The problem of a fused_moe for Context.plan(). group: of per_group, 32, 64 or 128; 0: whole rows."""
    made = problem(tokens, inter_dim, model_dim, operation="fused_moe", x_type=x_type, w_type=w_type, y_type=y_type, bias=bias,
                   group=group, zero_points=zero_points)
    made.moe = ctypes.pointer(_mixture(activation, quant_type, experts=experts, topk=topk, gated=gated, doweight_stage1=doweight_stage1,
                                       shared_experts=shared_experts))
    return made


def weight_problem(operation, type, n, k, *, x_type=None, y_type=None, batch=1, scale_ab=False, group=0, zero_points=False):
    x_type = x_type or (c.weight_formats[operation][1] if operation in c.weight_formats else type)
    return problem(1, n, k, operation=operation, x_type=x_type, w_type=type, y_type=y_type, batch=batch, scale_ab=scale_ab,
                   group=group, zero_points=zero_points)


def weight_size(operation, type, n, columns):
    """(type, n, k) of a weight [n, columns]: bytes of a weight of 4 bits hold two elements."""
    return (c.weight_formats[operation][0], n, columns * 2) if operation in c.weight_formats else (type, n, columns)


def chosen_layout(context, weight, wanted=None):
    """The layout of a packed weight_problem: None: the one that the tuned files were made for; "any": the one of the kernel that runs, tuned or not;
    or a layout's name."""
    if wanted == "any":
        free = c.Problem.from_buffer_copy(weight)
        free.weight_layout = c.any_layout
        return context.plan(free)["weight_layout"]
    if wanted is not None:
        return layout_named(wanted)
    layout = ctypes.c_int32()
    c.check(c.lib.gemmtune_weight_layout(context.handle, ctypes.byref(weight), ctypes.byref(layout)))
    return layout.value


@functools.cache
def _layouts():
    """{name: number}: those of c.h, and the opaque ones behind them."""
    known = ((c.lib.gemmtune_layout_text(number).decode(), number) for number in range(1 << 13))
    return {name: number for name, number in known if name != "unknown layout"}


def layout_named(name):
    if name not in _layouts():
        raise InvalidArgument(f"layout is {name!r}, expected one of {', '.join(_layouts())}")
    return _layouts()[name]


def packed_bytes(context, weight, layout):
    size = ctypes.c_size_t()
    c.check(c.lib.gemmtune_packed_weight_bytes(context.handle, ctypes.byref(weight), layout, ctypes.byref(size)))
    return size.value


def pack(w, *, operation="a16w16", x_type=None, y_type=None, scale_ab=False, group=0, zero_points=False, layout=None, context=None):
    """The weight w [N, K] in the layout that the tuned files of its device were made for: a PackedWeight, or w itself if
    that is the plain layout. operation: what will run it (a16w16, a8w8_bpreshuffle, a16w4, a16w4_int4 ...); group and zero_points:
    of an int4 weight (group 0: whole rows). layout: "any" for that of the kernel that runs without a tuned row too, or a name (panel16, onednn ...);
    one that no kernel reads raises Unsupported."""
    if torch := _torch_for(w):
        return torch.pack(w, operation=operation, x_type=x_type, y_type=y_type, scale_ab=scale_ab, group=group,
                          zero_points=zero_points, layout=layout, context=context)
    _arrays.refuse_traced("w", _plain_array(w))
    stream, shared = _arrays.stream_of(w)
    operand = _arrays.read("w", w, stream)
    if len(operand.shape) != 2 or not operand.is_dense():
        raise InvalidArgument(f"w has shape {list(operand.shape)} and strides {list(operand.strides)}, expected a dense [N, K]")
    context = context or contexts.current(operand.device)
    type, n, k = weight_size(operation, operand.type, *operand.shape)
    weight = weight_problem(operation, type, n, k, x_type=x_type, y_type=y_type, scale_ab=scale_ab, group=group,
                            zero_points=zero_points)
    layout = chosen_layout(context, weight, layout)
    if layout == c.plain:
        return w
    bits = _aligned_bytes(_plain_array(w), packed_bytes(context, weight, layout))
    if operand.device[0] == "cuda":
        _arrays.synchronize(stream)
    c.check(c.lib.gemmtune_pack_weight(context.handle, ctypes.byref(weight), layout, operand.pointer,
                                       _arrays.read("packed", bits, stream).pointer))
    return PackedWeight(bits, layout, n, k, type, operation)


def packed_alignment(size):
    """Where packed weights of so many bytes begin on a CPU: gemmtune_pack_weight asks for huge pages, which a small one does not fill."""
    return huge_page_bytes if size >= huge_page_bytes else 64


def _aligned_bytes(like, size):
    """Bytes for a packed weight, in an array of `like`'s library (numpy: at packed_alignment)."""
    if not hasattr(like, "__array_interface__"):
        return _arrays.empty_like_of(like, (size,), "u8")
    import numpy
    step = packed_alignment(size)
    room = numpy.empty(size + step, numpy.uint8)
    skip = -room.ctypes.data % step
    return room[skip:skip + size]


def unpack(packed, *, context=None):
    """The plain weight of a PackedWeight whose layout has an inverse."""
    if torch := _torch_for(packed.bits):
        return torch.unpack(packed, context=context)
    operand = _arrays.read("packed", packed.bits, _arrays.stream_of(packed.bits)[0])
    context = context or contexts.current(operand.device)
    weight = weight_problem(packed.operation, packed.type, packed.n, packed.k)
    library_type = packed.type if packed.type in ("f32", "f16") else "u8"
    width = packed.k // 2 if packed.type in ("f4_e2m1", "i4") else packed.k * (2 if packed.type == "bf16" else 1)
    plain = _arrays.empty_like_of(packed.bits, (packed.n, packed.k if library_type != "u8" else width), library_type)
    c.check(c.lib.gemmtune_unpack_weight(context.handle, ctypes.byref(weight), packed.layout, operand.pointer,
                                         _arrays.read("plain", plain).pointer))
    return plain
