"""The operations of the C interface for arrays of any library: numpy, cupy, JAX, all with __dlpack__, and PyTorch's tensors,
which gemmtune.torch serves. On a CPU the result is complete on return; on a GPU work is enqueued on the array's own stream."""

import ctypes
import importlib
import math
import sys

from . import _arrays, contexts
from . import _library as c
from .errors import InvalidArgument, WrongType


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
    """One call: operands are read, checked and put into the structures of the C interface."""

    def __init__(self, operation, x, context, stream):
        first = _plain_array(x)
        self.shared_stream = True
        self.stream = stream
        if not hasattr(first, "__array_interface__") and stream is None and hasattr(first, "__dlpack_device__"):
            if first.__dlpack_device__()[0] not in (1, 3):
                self.stream, self.shared_stream = _arrays.stream_of(x)
        self.x_array = x
        self.operands = []
        self.x = self.read("x", x)
        self.context = context or contexts.current(self.x.device)
        self.problem = c.Problem(operation=c.operations.index(operation), x_type=_number(self.x.type))
        self.values = c.Operands(x=self.x.pointer)

    def read(self, name, array):
        operand = _arrays.read(name, array, self.stream)
        if self.operands and operand.device != self.operands[0].device:
            raise InvalidArgument(f"{name} is on {operand.device[0]}:{operand.device[1]}, expected it beside x on "
                                  f"{self.operands[0].device[0]}:{self.operands[0].device[1]}")
        self.operands.append(operand)
        return operand

    def require(self, operand, shape):
        if operand.shape != tuple(shape):
            raise InvalidArgument(f"{operand.name} has shape {list(operand.shape)}, expected {list(shape)}")

    def dense(self, operand):
        if not operand.is_dense():
            raise InvalidArgument(f"{operand.name} has strides {list(operand.strides)}, expected a dense array")
        return operand.pointer

    def read_weight(self, name, weight, k):
        """(rows, pointer) of a weight with k columns; its layout and order go into the problem."""
        if isinstance(weight, PackedWeight):
            if weight.k != k:
                raise InvalidArgument(f"{name} has {weight.k} columns, expected {k} as x has")
            self.problem.weight_layout = weight.layout
            self.problem.w_type = _number(weight.type)
            return weight.n, self.read(name, weight.bits).pointer
        operand = self.read(name, weight)
        self.problem.w_type = _number(operand.type)
        return operand, None

    def read_scales(self, x_scale, w_scale, w2_scale=None):
        """Reads the scales that the problem has: an array that is too short would be read past its end."""
        has = c.Scales()
        c.check(c.lib.gemmtune_problem_scales(ctypes.byref(self.problem), ctypes.byref(has)))
        self._read_scale("x_scale", x_scale, has.x, has.x_type, has.x_or_one)
        if not self.values.moe:
            self._read_scale("w_scale", w_scale, has.w, has.w_type, has.w_or_one)
            return
        self.values.w_scale = self._scale("w1_scale", w_scale, has.w, has.w_type)[0]
        self.values.moe.contents.w2_scale = self._scale("w2_scale", w2_scale, has.w2, has.w2_type)[0]

    def _read_scale(self, name, array, count, type, or_one):
        pointer, one = self._scale(name, array, count, type, or_one)
        setattr(self.values, name, pointer)
        if one:
            setattr(self.values, name + "_per_tensor", 1)

    def _scale(self, name, array, count, type, or_one=False):
        """The pointer of `count` scales, or, if that is enough, of one; None where there are none. And whether it is one."""
        if count == 0:
            return None, False
        if array is None:
            raise InvalidArgument(f"{name} is missing: quantized operands have scales")
        operand = self.read(name, array)
        if operand.type != c.types[type]:
            raise WrongType(f"{name} is {operand.type}, expected {'e8m0 or u8' if c.types[type] == 'u8' else c.types[type]}")
        size = math.prod(operand.shape)
        one = bool(or_one) and size == 1
        if size != count and not one:
            raise InvalidArgument(f"{name} has {size} elements, expected {f'1 or {count}' if or_one and count > 1 else count}")
        return self.dense(operand), one

    def bias(self, bias, n):
        if bias is None:
            return
        operand = self.read("bias", bias)
        self.require(operand, (n,))
        if c.types[self.problem.y_type] != operand.type:
            raise WrongType(f"bias is {operand.type}, expected the result's type {c.types[self.problem.y_type]}")
        self.problem.bias = 1
        self.values.bias = self.dense(operand)

    def expert_biases(self, bias1, bias2, operands, shape1, shape2):
        if (bias1 is None) != (bias2 is None):
            raise InvalidArgument(f"bias{1 if bias1 is None else 2} is missing, expected bias1 and bias2 or neither")
        if bias1 is None:
            return
        for name, bias, shape, where in (("bias1", bias1, shape1, (self.values, "bias")), ("bias2", bias2, shape2, (operands, "bias2"))):
            operand = self.read(name, bias)
            self.require(operand, shape)
            if operand.type != "f32":
                raise WrongType(f"{name} is {operand.type}, expected f32")
            setattr(*where, self.dense(operand))
        self.problem.bias = 1

    def result(self, out, shape, type):
        """Makes or reads the result; y's pointer goes into the operands."""
        self.out = _arrays.empty_like_of(self.x_array, shape, type) if out is None else out
        operand = self.read("out", self.out)
        self.require(operand, shape)
        if operand.read_only:
            raise InvalidArgument("out is read-only, expected an array to write to")
        if operand.type != type:
            raise WrongType(f"out is {operand.type}, expected {type}")
        self.values.y = operand.pointer
        return operand

    def align(self):
        """What all pointers are multiples of, up to 16 bytes; an operation's default is that promise."""
        together = 16
        for pointer in (self.values.x, self.values.w, self.values.bias, self.values.y):
            together |= pointer or 0
        self.problem.alignment = together & -together

    def run(self):
        self.align()
        c.check(c.lib.gemmtune_gemm(self.context.handle, ctypes.byref(self.problem), ctypes.byref(self.values), self.stream))
        if not self.shared_stream:
            _arrays.synchronize(self.stream)
        return _plain_array(self.out)


def _rows(operand):
    """The leading dimensions of x or out as one: (rows, columns, distance of rows). Of a column-major x the distance of columns
    is strides[1]."""
    if not operand.shape:
        raise InvalidArgument(f"{operand.name} has no dimension, expected at least one")
    columns = operand.shape[-1]
    rows, distance = 1, columns
    if columns > 1 and operand.strides[-1] != 1:
        if len(operand.shape) == 2 and operand.strides[0] == 1 and operand.name == "x":
            return operand.shape[0], columns, columns
        raise InvalidArgument(f"{operand.name} has strides {list(operand.strides)}, expected contiguous rows")
    for size, stride in zip(reversed(operand.shape[:-1]), reversed(operand.strides[:-1])):
        if size > 1 and rows == 1:
            distance = stride
        if (size > 1 and rows > 1 and stride != rows * distance) or (size > 1 and distance < columns):
            raise InvalidArgument(f"{operand.name} has shape {list(operand.shape)} and strides {list(operand.strides)}, expected "
                                  "rows at one distance")
        rows *= size
    return rows, columns, distance


def _matrix_order(operand):
    """row_major or column_major of a dense matrix."""
    if operand.is_dense():
        return c.row_major
    if len(operand.shape) == 2 and operand.strides == (1, operand.shape[0]):
        return c.column_major
    raise InvalidArgument(f"{operand.name} has strides {list(operand.strides)}, expected a dense matrix or its transpose")


def _default_y(quantized, x_type, out, out_dtype):
    if out is not None:
        return _arrays.read("out", out).type
    if out_dtype is not None:
        _number(out_dtype)
        return out_dtype
    return "bf16" if quantized else x_type


def _matmul(operation, x, w, x_scale, w_scale, bias, out, out_dtype, context, stream, k_per_element=1, k_per_weight=None):
    call = _Call(operation, x, context, stream)
    rows, columns, distance = _rows(call.x)
    k = columns * k_per_element
    w_columns = k // (k_per_weight or k_per_element)
    column_major_x = len(call.x.shape) == 2 and rows > 1 and columns > 1 and call.x.strides[-1] != 1
    found, pointer = call.read_weight("w", w, k if operation in c.fp4_weights else columns)
    if pointer is None:
        if len(found.shape) != 2 or found.shape[1] != w_columns:
            raise InvalidArgument(f"w has shape {list(found.shape)}, expected [N, {w_columns}] as x has {columns} columns")
        call.problem.w_order = _matrix_order(found)
        n, pointer = found.shape[0], found.pointer
    else:
        n = found
    call.values.w = pointer
    call.problem.m, call.problem.n, call.problem.k = rows, n, k
    call.problem.x_order = c.column_major if column_major_x else c.row_major
    call.values.ldx = (call.x.strides[1] if column_major_x else distance) * k_per_element
    y_type = _default_y(x_scale is not None, call.x.type, out, out_dtype)
    call.problem.y_type = _number(y_type)
    if operation == "a16w16":
        if (x_scale is None) != (w_scale is None):
            raise InvalidArgument("one of x_scale and w_scale is missing, expected both or none")
        call.problem.scale_ab = int(x_scale is not None)
    call.problem.e8m0_scales = int(operation.startswith("a8w8_blockscale") and w_scale is not None
                                   and _arrays.read("w_scale", w_scale).type == "u8")
    call.read_scales(x_scale, w_scale)
    y = call.result(out, (*call.x.shape[:-1], n), y_type)
    _, _, call.values.ldy = _rows(y)
    call.bias(bias, n)
    return call.run() if out is None else (call.run(), out)[1]


def linear(x, w, bias=None, out=None, *, x_scale=None, w_scale=None, out_dtype=None, context=None, stream=None):
    """y = x · wᵀ (+ bias), the operation a16w16: x [..., K], w [N, K] (or a PackedWeight), bias [N]; bf16, fp16 or fp32, and
    fp8 with x_scale and w_scale, one float32 each."""
    if torch := _torch_for(x):
        return torch.linear(x, w, bias, out, x_scale=x_scale, w_scale=w_scale, out_dtype=out_dtype)
    return _matmul("a16w16", x, w, x_scale, w_scale, bias, out, out_dtype, context, stream)


def _packed_name(operation, w):
    return operation + "_bpreshuffle" if isinstance(w, PackedWeight) else operation


def a8w8(x, w, x_scale, w_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """int8 or fp8 with a float32 scale for each row of x [M] and of w [N], or one for all; the result is bf16 or f16. A
    PackedWeight makes it a8w8_bpreshuffle."""
    if torch := _torch_for(x):
        return torch.a8w8(x, w, x_scale, w_scale, bias, out, out_dtype=out_dtype)
    return _matmul(_packed_name("a8w8", w), x, w, x_scale, w_scale, bias, out, out_dtype, context, stream)


def a8w8_blockscale(x, w, x_scale, w_scale, out=None, *, out_dtype=None, context=None, stream=None):
    """fp8 with scales of blocks: x_scale [M, ceil(K/128)], w_scale [ceil(N/128), ceil(K/128)], both float32 or both e8m0 bytes."""
    if torch := _torch_for(x):
        return torch.a8w8_blockscale(x, w, x_scale, w_scale, out, out_dtype=out_dtype)
    return _matmul(_packed_name("a8w8_blockscale", w), x, w, x_scale, w_scale, None, out, out_dtype, context, stream)


def a4w4_blockscale(x, w, x_scale, w_scale, out=None, *, out_dtype=None, context=None, stream=None):
    """MXFP4: x [M, K/2] and w [N, K/2] of bytes with two elements each, the even one low; e8m0 scales x_scale [M, K/32],
    w_scale [N, K/32]."""
    if torch := _torch_for(x):
        return torch.a4w4_blockscale(x, w, x_scale, w_scale, out, out_dtype=out_dtype)
    x, w = (one if isinstance(one, _arrays.Typed) else _arrays.Typed(one, "f4_e2m1", implicit=True) for one in (x, w))
    return _matmul("a4w4_blockscale", x, w, x_scale, w_scale, None, out, out_dtype, context, stream, k_per_element=2)


def _fp4_weight(w):
    return w if isinstance(w, (_arrays.Typed, PackedWeight)) else _arrays.Typed(w, "f4_e2m1", implicit=True)


def a16w4(x, w, w_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """bf16 or f16 x [..., K] with an MXFP4 weight: w [N, K/2] of bytes with two elements each (or a PackedWeight), e8m0 scales
    w_scale [N, K/32]; the result has the type of x."""
    if torch := _torch_for(x):
        return torch.a16w4(x, w, w_scale, bias, out, out_dtype=out_dtype)
    return _matmul("a16w4", x, _fp4_weight(w), None, w_scale, bias, out, out_dtype, context, stream, k_per_weight=2)


def a8w4(x, w, x_scale, w_scale, bias=None, out=None, *, out_dtype=None, context=None, stream=None):
    """fp8 x [..., K] with a float32 scale for each row or one for all, with an MXFP4 weight as a16w4 has it; the result is bf16 or
    f16."""
    if torch := _torch_for(x):
        return torch.a8w4(x, w, x_scale, w_scale, bias, out, out_dtype=out_dtype)
    return _matmul("a8w4", x, _fp4_weight(w), x_scale, w_scale, bias, out, out_dtype, context, stream, k_per_weight=2)


def _batched(operation, x, w, x_scale, w_scale, bias, out, out_dtype, context, stream):
    call = _Call(operation, x, context, stream)
    if len(call.x.shape) != 3 or (call.x.shape[2] > 1 and call.x.strides[2] != 1):
        raise InvalidArgument(f"x has shape {list(call.x.shape)} and strides {list(call.x.strides)}, expected [B, M, K] with "
                              "contiguous rows")
    batch, m, k = call.x.shape
    weight = call.read("w", w)
    if len(weight.shape) != 3 or (weight.shape[0], weight.shape[2]) != (batch, k):
        raise InvalidArgument(f"w has shape {list(weight.shape)}, expected [{batch}, N, {k}]")
    n = weight.shape[1]
    call.values.w = call.dense(weight)
    problem = call.problem
    problem.w_type = _number(weight.type)
    problem.batch, problem.m, problem.n, problem.k = batch, m, n, k
    call.values.ldx = max(call.x.strides[1], k) if m > 1 else k
    call.values.x_batch_stride = call.x.strides[0] if batch > 1 else 0
    y_type = _default_y(operation == "batched_a8w8", call.x.type, out, out_dtype)
    problem.y_type = _number(y_type)
    call.read_scales(x_scale, w_scale)
    y = call.result(out, (batch, m, n), y_type)
    if n > 1 and y.strides[2] != 1:
        raise InvalidArgument(f"out has strides {list(y.strides)}, expected contiguous rows")
    call.values.ldy = max(y.strides[1], n) if m > 1 else n
    call.values.y_batch_stride = y.strides[0] if batch > 1 else 0
    call.bias(bias, n)
    return call.run() if out is None else (call.run(), out)[1]


def batched_bf16(x, w, bias=None, out=None, *, context=None, stream=None):
    """bf16 [B, M, K] with weights [B, N, K]; bias [N]."""
    if torch := _torch_for(x):
        return torch.batched_bf16(x, w, bias, out)
    return _batched("batched_bf16", x, w, None, None, bias, out, None, context, stream)


def batched_a8w8(x, w, x_scale, w_scale, bias=None, out=None, *, context=None, stream=None):
    """int8 or fp8 [B, M, K] with weights [B, N, K]; scales [B, M] and [B, N], or one for all."""
    if torch := _torch_for(x):
        return torch.batched_a8w8(x, w, x_scale, w_scale, bias, out)
    return _batched("batched_a8w8", x, w, x_scale, w_scale, bias, out, None, context, stream)


def _word(kind, words, value):
    if value not in words:
        raise InvalidArgument(f"{kind} is '{value}', expected one of {', '.join(words)}")
    return words.index(value)


def fused_moe(x, w1, w2, topk_ids, topk_weights, out=None, *, activation="silu", quant_type="none", gated=True,
              doweight_stage1=False, shared_experts=0, x_scale=None, w1_scale=None, w2_scale=None, bias1=None, bias2=None,
              out_dtype=None, context=None, stream=None):
    """A mixture of experts: x [T, K], w1 [E, N or 2N (gated), K], w2 [E, K, N], topk_ids int32 [T, k], topk_weights float32
    [T, k]. The last `shared_experts` of E get every token with the weight 1, beside the k in topk_ids. Scales by quant_type: the
    table of gemmtune_operands in include/gemmtune/c.h. bias1 [E, N or 2N] and bias2 [E, K], float32, are given both or neither."""
    if torch := _torch_for(x):
        return torch.fused_moe(x, w1, w2, topk_ids, topk_weights, out, activation=activation, quant_type=quant_type, gated=gated,
                         doweight_stage1=doweight_stage1, shared_experts=shared_experts, x_scale=x_scale, w1_scale=w1_scale,
                         w2_scale=w2_scale, bias1=bias1, bias2=bias2, out_dtype=out_dtype)
    call = _Call("fused_moe", x, context, stream)
    first, second = call.read("w1", w1), call.read("w2", w2)
    ids, weights = call.read("topk_ids", topk_ids), call.read("topk_weights", topk_weights)
    if len(call.x.shape) != 2 or len(first.shape) != 3 or len(second.shape) != 3 or len(ids.shape) != 2:
        raise InvalidArgument(f"x, w1, w2 and topk_ids have {len(call.x.shape)}, {len(first.shape)}, {len(second.shape)} and "
                              f"{len(ids.shape)} dimensions, expected 2, 3, 3 and 2")
    per_element = 2 if first.type in ("f4_e2m1", "i4") else 1
    tokens, model = call.x.shape
    model *= 2 if call.x.type == "f4_e2m1" else 1
    experts, inter = first.shape[0], second.shape[2] * per_element
    call.require(first, (experts, inter * (2 if gated else 1), model // per_element))
    call.require(second, (experts, model, inter // per_element))
    call.require(ids, (tokens, ids.shape[1]))
    call.require(weights, ids.shape)
    if ids.type != "i32" or weights.type != "f32":
        raise WrongType(f"topk_ids is {ids.type} and topk_weights {weights.type}, expected int32 and f32")
    moe = c.Moe(experts=experts, topk=ids.shape[1] + shared_experts, activation=_word("activation", c.activations, activation),
                quant_type=_word("quant_type", c.quant_types, quant_type), gated=gated, doweight_stage1=doweight_stage1,
                shared_experts=shared_experts)
    operands = c.MoeOperands(w2=call.dense(second), topk_ids=call.dense(ids), topk_weights=call.dense(weights))
    problem = call.problem
    problem.moe, call.values.moe = ctypes.pointer(moe), ctypes.pointer(operands)
    problem.w_type = _number(first.type)
    problem.m, problem.n, problem.k = tokens, inter, model
    call.values.w = call.dense(first)
    call.dense(call.x)
    call.read_scales(x_scale, w1_scale, w2_scale)
    call.expert_biases(bias1, bias2, operands, (experts, inter * (2 if gated else 1)), (experts, model))
    y_type = _default_y(call.x.type not in ("bf16", "f16", "f32"), call.x.type, out, out_dtype)
    problem.y_type = _number(y_type)
    y = call.result(out, (tokens, model), y_type)
    call.dense(y)
    return call.run() if out is None else (call.run(), out)[1]


def problem(m, n, k, *, operation="a16w16", x_type="bf16", w_type=None, y_type=None, batch=1, bias=False, scale_ab=False,
            weight_layout=c.plain, alignment=16):
    """A problem for Context.plan()."""
    return c.Problem(operation=_word("operation", c.operations, operation), m=m, n=n, k=k, batch=batch, x_type=_number(x_type),
                     w_type=_number(w_type or ("f4_e2m1" if operation in c.fp4_weights else x_type)), y_type=_number(y_type or "unset"), bias=bias, scale_ab=scale_ab,
                     weight_layout=weight_layout, alignment=alignment)


def weight_problem(operation, type, n, k, *, x_type=None, y_type=None, batch=1, scale_ab=False):
    return problem(1, n, k, operation=operation, x_type=x_type or c.fp4_weights.get(operation, type), w_type=type, y_type=y_type,
                   batch=batch, scale_ab=scale_ab)


def weight_size(operation, type, n, columns):
    """(type, n, k) of a weight [n, columns]: bytes of a weight-only operation hold two fp4 elements."""
    return ("f4_e2m1", n, columns * 2) if operation in c.fp4_weights else (type, n, columns)


def chosen_layout(context, weight):
    """The layout that the tuned files were made for, of a weight_problem."""
    layout = ctypes.c_int32()
    c.check(c.lib.gemmtune_weight_layout(context.handle, ctypes.byref(weight), ctypes.byref(layout)))
    return layout.value


def packed_bytes(context, weight, layout):
    size = ctypes.c_size_t()
    c.check(c.lib.gemmtune_packed_weight_bytes(context.handle, ctypes.byref(weight), layout, ctypes.byref(size)))
    return size.value


def pack(w, *, operation="a16w16", x_type=None, y_type=None, scale_ab=False, context=None):
    """The weight w [N, K] in the layout that the tuned files of its device were made for: a PackedWeight, or w itself if
    that is the plain layout. operation: what will run it (a16w16, a8w8_bpreshuffle, a8w8_blockscale_bpreshuffle)."""
    if torch := _torch_for(w):
        return torch.pack(w, operation=operation, x_type=x_type, y_type=y_type, scale_ab=scale_ab, context=context)
    stream, shared = _arrays.stream_of(w)
    operand = _arrays.read("w", w, stream)
    if len(operand.shape) != 2 or not operand.is_dense():
        raise InvalidArgument(f"w has shape {list(operand.shape)} and strides {list(operand.strides)}, expected a dense [N, K]")
    context = context or contexts.current(operand.device)
    type, n, k = weight_size(operation, operand.type, *operand.shape)
    weight = weight_problem(operation, type, n, k, x_type=x_type, y_type=y_type, scale_ab=scale_ab)
    layout = chosen_layout(context, weight)
    if layout == c.plain:
        return w
    bits = _aligned_bytes(_plain_array(w), packed_bytes(context, weight, layout))
    if operand.device[0] == "cuda":
        _arrays.synchronize(stream)
    c.check(c.lib.gemmtune_pack_weight(context.handle, ctypes.byref(weight), layout, operand.pointer,
                                       _arrays.read("packed", bits, stream).pointer))
    return PackedWeight(bits, layout, n, k, type, operation)


def _aligned_bytes(like, size):
    """Bytes at a multiple of 64, in an array of `like`'s library."""
    if not hasattr(like, "__array_interface__"):
        return _arrays.empty_like_of(like, (size,), "u8")
    import numpy
    room = numpy.empty(size + 64, numpy.uint8)
    skip = -room.ctypes.data % 64
    return room[skip:skip + size]


def unpack(packed, *, context=None):
    """The plain weight of a PackedWeight whose layout has an inverse."""
    if torch := _torch_for(packed.bits):
        return torch.unpack(packed, context=context)
    operand = _arrays.read("packed", packed.bits, _arrays.stream_of(packed.bits)[0])
    context = context or contexts.current(operand.device)
    weight = weight_problem(packed.operation, packed.type, packed.n, packed.k)
    library_type = packed.type if packed.type in ("f32", "f16") else "u8"
    width = packed.k * (2 if packed.type == "bf16" else 1)
    plain = _arrays.empty_like_of(packed.bits, (packed.n, packed.k if library_type != "u8" else width), library_type)
    c.check(c.lib.gemmtune_unpack_weight(context.handle, ctypes.byref(weight), packed.layout, operand.pointer,
                                         _arrays.read("plain", plain).pointer))
    return plain
