"""One function for each way in which checkpoints pack 4-bit weights, from a layer's tensors to operands.

All take tensors of one device and give tensors of that device. Errors are WrongType (a dtype) and InvalidArgument (a shape, a value);
they name the tensor, what it is and what was expected, and have the tensor's name in `tensor`.

Sources of the layouts: AutoAWQ's WQLinear_GEMM, AutoGPTQ's and GPTQModel's QuantLinear, compressed-tensors' pack-quantized and
nvfp4-pack-quantized compressors, ModelOpt's NVFP4QTensor, the checkpoints of gpt-oss."""

from dataclasses import dataclass, fields, replace
from typing import Optional

import torch

from ..errors import InvalidArgument, WrongType


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """The weight of a layer, y = x · wᵀ, as operands. N: outputs, K: inputs, E: experts (of fused_moe alone)."""

    operation: str
    """That the checkpoint was made for. The operands of an a4w4_nvfp4 also are those of a8w4_nvfp4 and a16w4_nvfp4."""
    w: torch.Tensor
    """uint8 [N, K/2] ([E, N, K/2]): two elements in a byte, the even one low; e2m1, or int4 in two's complement."""
    w_scale: torch.Tensor
    """[N, K/group] ([E, N, K/group]): float16 or bfloat16 of int4, float8_e4m3fn of NVFP4, bytes of e8m0 of MXFP4."""
    group: int
    """Elements along k that share a scale; K if it is one a row."""
    w_zero_points: Optional[torch.Tensor] = None
    """int8 [N, K/group], -8 to 8: w = (q - zero point) · scale. None: all are 0."""
    w_global_scale: Optional[torch.Tensor] = None
    """float32 [1], of NVFP4: w = q · scale · global scale."""
    x_global_scale: Optional[torch.Tensor] = None
    """float32 [1], of a4w4_nvfp4: x = its e2m1 · its e4m3 scale · global scale."""
    k_order: Optional[torch.Tensor] = None
    """int64 [K]: w has the inputs in this order, so the operation gets x[..., k_order]. None: as they are."""
    bias: Optional[torch.Tensor] = None
    """[N] ([E, N]), as the file has it."""


_int32 = (torch.int32,)
_bytes = (torch.uint8,)
_float32 = (torch.float32,)
_indices = (torch.int32, torch.int64)
_halves = (torch.float16, torch.bfloat16)
_e4m3 = (torch.float8_e4m3fn,)
_of_a_bias = (torch.float16, torch.bfloat16, torch.float32)
_awq_nibbles = (0, 4, 1, 5, 2, 6, 3, 7)  # which nibble of a word of AWQ holds element 0, 1, ...
_nvfp4_group, _mxfp4_group = 16, 32
_tiny = torch.finfo(torch.float32).tiny


def _refusal(tensor, sentence, kind=InvalidArgument):
    error = kind(f"{tensor} {sentence}")
    error.tensor = tensor
    return error


def _word(dtype):
    return str(dtype).replace("torch.", "")


def _require(name, tensor, dtypes, letters, sizes, device=None):
    """Refuses a tensor of another dtype, shape or device. letters: the shape in the documentation; sizes: None where any is right."""
    if not isinstance(tensor, torch.Tensor):
        raise _refusal(name, f"is a {type(tensor).__name__}, expected a tensor", WrongType)
    right_type = tensor.dtype in dtypes
    if not right_type or tensor.dim() != len(sizes) or any(there < 1 or there != (size or there) for there, size in zip(tensor.shape, sizes)):
        known = f" = {list(sizes)}" if sizes and None not in sizes else ""
        raise _refusal(name, f"is {_word(tensor.dtype)} {list(tensor.shape)}, expected {' or '.join(map(_word, dtypes))} {letters}{known}",
                       InvalidArgument if right_type else WrongType)
    if device is not None and tensor.device != device:
        raise _refusal(name, f"is on {tensor.device}, expected {device}, where the weight is")


def _group_of(k, group):
    """Elements of a group; k for -1, which means whole rows."""
    if k % 2:
        raise InvalidArgument(f"K = {k}, expected an even number")
    if group == -1:
        return k
    if not isinstance(group, int) or group < 1 or k % group:
        raise InvalidArgument(f"group_size = {group}, expected a divisor of K = {k}, or -1 for whole rows")
    return group


def _nibbles(words):
    """int32 [..., W] to uint8 [..., 8 W]: each word's eight nibbles, the lowest first."""
    octets = words.contiguous().view(torch.uint8)
    return torch.stack((octets & 15, octets >> 4), -1).flatten(-2)


def _int4(nibbles):
    """Nibbles q of [N, K] as operand: q - 8 in two's complement."""
    return ((nibbles[:, ::2] | nibbles[:, 1::2] << 4) ^ 0x88).contiguous()


def _zero_points(nibbles, offset=0):
    """Zero points of unsigned q, [N, groups] and less by `offset`, as those of q - 8."""
    return (nibbles.to(torch.int8) + (offset - 8)).contiguous()


def _group_order(name, groups_of_k, k, group, device):
    """The order of the inputs in which groups lie one behind the other; None if they do."""
    _require(name, groups_of_k, _indices, "[K]", (k,), device)
    count = k // group
    if torch.equal(groups_of_k, torch.arange(k, device=device, dtype=groups_of_k.dtype) // group):
        return None
    low, high = (int(bound) for bound in torch.aminmax(groups_of_k))
    if low < 0 or high >= count:
        raise _refusal(name, f"has group {low if low < 0 else high}, expected 0 to {count - 1}: K = {k}, groups of {group}")
    sizes = torch.bincount(groups_of_k, minlength=count)
    wrong = torch.nonzero(sizes != group)
    if len(wrong):
        first = int(wrong[0])
        raise _refusal(name, f"has {int(sizes[first])} inputs in group {first}, expected {group} in each of {count} groups")
    return torch.argsort(groups_of_k, stable=True)


def _global_scale(name, scale, device, divides=False):
    """A scale of a whole tensor as float32 [1]; of one that divides the reciprocal."""
    _require(name, scale, _float32, "[1] or []", (1,) if getattr(scale, "ndim", 0) else (), device)
    value = float(scale)
    if not _tiny <= value <= 1 / _tiny:
        raise _refusal(name, f"= {value}, expected a positive number from 2^-126 to 2^126")
    return (1 / scale if divides else scale).reshape(1)


def with_bias(weight, bias):
    """The weight with its layer's bias."""
    shape = weight.w.shape[:-1]
    _require("bias", bias, _of_a_bias, "[E, N]" if len(shape) > 1 else "[N]", tuple(shape), weight.w.device)
    return replace(weight, bias=bias)


def awq(qweight, qzeros, scales, *, group):
    """AWQ's `gemm` version to a16w4_int4. A word holds eight outputs, in the nibbles 0, 4, 1, 5, 2, 6, 3, 7.

    qweight: int32 [K, N/8]; qzeros: int32 [K/group, N/8]; scales: float16 or bfloat16 [K/group, N]; group: group_size of the config."""
    _require("qweight", qweight, _int32, "[K, N/8]", (None, None))
    k, n, device = qweight.shape[0], qweight.shape[1] * 8, qweight.device
    group = _group_of(k, group)
    _require("qzeros", qzeros, _int32, "[K/g, N/8]", (k // group, n // 8), device)
    _require("scales", scales, _halves, "[K/g, N]", (k // group, n), device)
    order = torch.tensor(_awq_nibbles, device=device)

    def columns(words):  # [..., N/8] to [N, ...]
        return _nibbles(words).unflatten(-1, (-1, 8))[..., order].flatten(-2).t()

    return QuantizedWeight("a16w4_int4", _int4(columns(qweight)), scales.t().contiguous(), group, _zero_points(columns(qzeros)))


def gptq(qweight, qzeros, scales, g_idx=None, *, group, symmetric=False, v2=False):
    """GPTQ to a16w4_int4. A word of qweight holds eight inputs, one of qzeros eight outputs, the first in the lowest nibble.

    qweight: int32 [K/8, N]; qzeros: int32 [K/group, N/8], the zero points less 1, or as they are (v2: the format gptq_v2); scales:
    float16 or bfloat16 [K/group, N]; g_idx: int32 [K], the group of each input. Of groups in another order (desc_act) w is sorted and
    has a `k_order`; each group must be whole. symmetric: all zero points must be 8, and the operand has none."""
    _require("qweight", qweight, _int32, "[K/8, N]", (None, None))
    k, n, device = qweight.shape[0] * 8, qweight.shape[1], qweight.device
    group = _group_of(k, group)
    if n % 8:
        raise _refusal("qweight", f"is int32 {list(qweight.shape)}, expected N of [K/8, N] to be a multiple of 8")
    _require("qzeros", qzeros, _int32, "[K/g, N/8]", (k // group, n // 8), device)
    _require("scales", scales, _halves, "[K/g, N]", (k // group, n), device)
    order = None if g_idx is None else _group_order("g_idx", g_idx, k, group, device)
    zero_points = _zero_points(_nibbles(qzeros).t(), 0 if v2 else 1)
    if symmetric:
        others = torch.nonzero(zero_points)
        if len(others):
            row, column = others[0].tolist()
            raise _refusal("qzeros", f"has zero point {int(zero_points[row, column]) + 8} of output {row} and group {column}, expected 8: the "
                                     f"config says sym, and the format {'gptq_v2' if v2 else 'gptq'}")
        zero_points = None
    words = qweight.t().contiguous()  # [N, K/8]
    w = words.view(torch.uint8) ^ 0x88 if order is None else _int4(_nibbles(words)[:, order])
    return QuantizedWeight("a16w4_int4", w, scales.t().contiguous(), group, zero_points, k_order=order)


def compressed_int4(weight_packed, weight_scale, weight_shape, weight_zero_point=None, weight_g_idx=None, *, group, operation="a16w4_int4"):
    """compressed-tensors' `pack-quantized` with num_bits 4. A word holds eight elements q + 8, the first in the lowest nibble.

    weight_packed: int32 [N, ceil(K/8)]; weight_scale: float16 or bfloat16 [N, K/group]; weight_shape: int64 [2], N and K;
    weight_zero_point: int32 [ceil(N/8), K/group], packed along N; weight_g_idx: int32 [K], as g_idx of gptq(); group: group_size of the
    config, -1 of its strategy `channel`; operation: a8w4_int4 for activations of int8."""
    _require("weight_packed", weight_packed, _int32, "[N, K/8]", (None, None))
    n, device = weight_packed.shape[0], weight_packed.device
    _require("weight_shape", weight_shape, _indices, "[2]", (2,))
    shape, width = [int(size) for size in weight_shape], weight_packed.shape[1]
    if shape[0] != n or -(-shape[1] // 8) != width:
        raise _refusal("weight_shape", f"= {shape}, expected [{n}, {width * 8 - 7} to {width * 8}]: weight_packed is {[n, width]}")
    k = shape[1]
    group = _group_of(k, group)
    _require("weight_scale", weight_scale, _halves, "[N, K/g]", (n, k // group), device)
    order = None if weight_g_idx is None else _group_order("weight_g_idx", weight_g_idx, k, group, device)
    zero_points = None
    if weight_zero_point is not None:
        _require("weight_zero_point", weight_zero_point, _int32, "[N/8, K/g] (packed)", (-(-n // 8), k // group), device)
        zero_points = _zero_points(_nibbles(weight_zero_point.t()).t()[:n])
    if order is None:
        w = weight_packed.contiguous().view(torch.uint8)[:, :k // 2] ^ 0x88
    else:
        w = _int4(_nibbles(weight_packed)[:, order])
    return QuantizedWeight(operation, w, weight_scale.contiguous(), group, zero_points, k_order=order)


def _nvfp4(names, packed, scale, global_scale, x_global_scale, operation, divides):
    _require(names[0], packed, _bytes, "[N, K/2]", (None, None))
    (n, half), device = packed.shape, packed.device
    if half * 2 % _nvfp4_group:
        raise _refusal(names[0], f"is uint8 {[n, half]}, expected K = {half * 2} to be a multiple of {_nvfp4_group}")
    _require(names[1], scale, _e4m3, "[N, K/16]", (n, half * 2 // _nvfp4_group), device)
    of_w = _global_scale(names[2], global_scale, device, divides)
    of_x = None if x_global_scale is None else _global_scale(names[3], x_global_scale, device, divides)
    operation = operation or ("a16w4_nvfp4" if of_x is None else "a4w4_nvfp4")
    return QuantizedWeight(operation, packed.contiguous(), scale.contiguous(), _nvfp4_group, w_global_scale=of_w, x_global_scale=of_x)


def compressed_nvfp4(weight_packed, weight_scale, weight_global_scale, input_global_scale=None, *, operation=None):
    """compressed-tensors' `nvfp4-pack-quantized`, without a copy. Its global scales divide; the operand's multiply.

    weight_packed: uint8 [N, K/2]; weight_scale: float8_e4m3fn [N, K/16]; weight_global_scale, input_global_scale: float32 [1]; operation:
    a4w4_nvfp4 if there is an input_global_scale, else a16w4_nvfp4, unless given."""
    return _nvfp4(("weight_packed", "weight_scale", "weight_global_scale", "input_global_scale"), weight_packed, weight_scale, weight_global_scale,
                  input_global_scale, operation, True)


def modelopt_nvfp4(weight, weight_scale, weight_scale_2, input_scale=None):
    """ModelOpt's NVFP4, without a copy, to a4w4_nvfp4; to a16w4_nvfp4 without an input_scale.

    weight: uint8 [N, K/2]; weight_scale: float8_e4m3fn [N, K/16]; weight_scale_2, input_scale: float32 [] or [1], which multiply."""
    return _nvfp4(("weight", "weight_scale", "weight_scale_2", "input_scale"), weight, weight_scale, weight_scale_2, input_scale, None, False)


def gpt_oss_mxfp4(blocks, scales):
    """The experts of gpt-oss, without a copy, to a weight of fused_moe. Rows of gate and up take turns in gate_up_proj.

    blocks: uint8 [E, N, K/32, 16]; scales: uint8 [E, N, K/32], e8m0."""
    _require("blocks", blocks, _bytes, "[E, N, K/32, 16]", (None, None, None, 16))
    _require("scales", scales, _bytes, "[E, N, K/32]", tuple(blocks.shape[:3]), blocks.device)
    return QuantizedWeight("fused_moe", blocks.contiguous().flatten(2), scales.contiguous(), _mxfp4_group)


@dataclass(frozen=True, eq=False)
class QuantizedExperts:
    """The weights of a mixture as operands of fused_moe, gated. E: experts, K: model_dim, N: inter_dim."""

    quant_type: str
    """per_group of int4, per_1x16 of NVFP4."""
    group: int
    """Elements along k that share a scale; K if w1 has one a row, and so has w2."""
    w1: torch.Tensor
    """uint8 [E, 2N, K/2], the gate's rows first."""
    w2: torch.Tensor
    """uint8 [E, K, N/2]."""
    w1_scale: torch.Tensor
    """[E, 2N, K/group]."""
    w2_scale: torch.Tensor
    """[E, K, N/group]."""
    w1_zero_points: Optional[torch.Tensor] = None
    """int8 as w1_scale; None: all are 0."""
    w2_zero_points: Optional[torch.Tensor] = None
    w1_global_scale: Optional[torch.Tensor] = None
    """float32 [E], of NVFP4."""
    w2_global_scale: Optional[torch.Tensor] = None

    def operands(self):
        """What gemmtune.fused_moe takes beside x and the routes, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "group"}


_of_experts = {"a16w4_int4": "per_group", "a16w4_nvfp4": "per_1x16", "a4w4_nvfp4": "per_1x16"}


def _check_expert(place, weight, shape, like):
    """Refuses a weight that cannot lie beside others in one operand of fused_moe. like: the first of all experts' weights."""
    if weight.operation not in _of_experts:
        raise InvalidArgument(f"{place} is of {weight.operation}, expected {', '.join(_of_experts)}: fused_moe has x of 16 bits")
    for what in ("k_order", "bias"):
        if getattr(weight, what) is not None:
            raise InvalidArgument(f"{place} has a {what}, expected none: all experts get the same x, and add biases of float32")
    whole_rows = like.group == 2 * like.w.shape[1]
    for what, own, expected in (("operation", weight.operation, like.operation), ("shape", list(weight.w.shape), list(shape)),
                                ("group", weight.group, 2 * shape[1] if whole_rows else like.group),
                                ("scales of", weight.w_scale.dtype, like.w_scale.dtype),
                                ("zero points", weight.w_zero_points is not None, like.w_zero_points is not None)):
        if own != expected:
            raise InvalidArgument(f"{place} has {what} {own}, expected {expected}: gate of expert 0 is uint8 {list(like.w.shape)}")


def _gate_and_up(expert, gate, up):
    """One weight [2N, K], the gate's rows first."""
    if gate.w_global_scale is not None and not torch.equal(gate.w_global_scale, up.w_global_scale):
        raise InvalidArgument(f"gate and up of expert {expert} have the global scales {float(gate.w_global_scale)} and "
                              f"{float(up.w_global_scale)}, expected one: w1 has one for both")
    def rows(field):
        return None if getattr(gate, field) is None else torch.cat((getattr(gate, field), getattr(up, field)))
    return replace(gate, **{field: rows(field) for field in ("w", "w_scale", "w_zero_points")})


def stack_weights(weights, count):
    """(w, w_scale, w_zero_points, w_global_scale) of `count` QuantizedWeights of one shape, [count, ...], the last one [count]; None where the first
    weight has none. An iterator is asked for one weight after the other, so that no list of all of them is in memory."""
    fields = ("w", "w_scale", "w_zero_points", "w_global_scale")
    stacked = [None] * len(fields)
    for index, weight in enumerate(weights):
        for place, tensor in enumerate(getattr(weight, field) for field in fields):
            if index == 0 and tensor is not None:
                stacked[place] = tensor.new_empty(count, *tensor.shape)
            if stacked[place] is not None:
                stacked[place][index] = tensor
    *operands, global_scale = stacked
    return *operands, None if global_scale is None else global_scale.flatten()


def stack_experts(gate, up, down):
    """The weights of a layer's experts as QuantizedExperts: copies, which need the room of the experts once more.

    gate, up, down: a QuantizedWeight each, of a16w4_int4, a16w4_nvfp4 or a4w4_nvfp4 (whose x stays as it is), for each expert, [N, K]
    and of down [K, N]. NVFP4's gate and up of an expert must have one global scale, because fused_moe has one for w1. Errors:
    InvalidArgument, which names weight, expert, value and what was expected."""
    gate, up, down = list(gate), list(up), list(down)
    if not gate or len({len(gate), len(up), len(down)}) > 1:
        raise InvalidArgument(f"gate, up and down have {len(gate)}, {len(up)} and {len(down)} experts, expected as many each, and one at least")
    n, half_k = gate[0].w.shape
    for name, weights, shape in (("gate", gate, (n, half_k)), ("up", up, (n, half_k)), ("down", down, (2 * half_k, n // 2))):
        for expert, weight in enumerate(weights):
            _check_expert(f"{name} of expert {expert}", weight, shape, gate[0])
    both = (_gate_and_up(expert, *pair) for expert, pair in enumerate(zip(gate, up)))
    w1, w1_scale, w1_zero_points, w1_global_scale = stack_weights(both, len(gate))
    w2, w2_scale, w2_zero_points, w2_global_scale = stack_weights(down, len(down))
    return QuantizedExperts(_of_experts[gate[0].operation], gate[0].group, w1, w2, w1_scale, w2_scale, w1_zero_points, w2_zero_points,
                            w1_global_scale, w2_global_scale)


def gate_first(rows):
    """gpt-oss's gate_up_proj, its scales or its bias ([E, 2N, ...], a row of the gate and one of up in turns) with all rows of the gate
    first, as fused_moe takes them: a copy."""
    return torch.cat((rows[:, ::2], rows[:, 1::2]), 1)
