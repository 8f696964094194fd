"""aiter.fused_moe: a mixture of experts."""

from .. import operations
from .._arrays import read
from ..errors import InvalidArgument, Unsupported
from ._words import ActivationType, QuantType, is_torch, refuse, type_word

_activations = {ActivationType.Silu: "silu", ActivationType.Gelu: "gelu", ActivationType.Swiglu: "swiglu"}
_quant_types = {QuantType.No: "none", QuantType.per_Tensor: "per_tensor", QuantType.per_Token: "per_token", QuantType.per_1x32: "per_1x32",
                QuantType.per_1x128: "per_1x128", QuantType.per_128x128: "per_1x128"}


def fused_moe(hidden_states, w1, w2, topk_weight, topk_ids, expert_mask=None, activation=ActivationType.Silu, quant_type=QuantType.No,
              doweight_stage1=False, w1_scale=None, w2_scale=None, a1_scale=None, a2_scale=None, block_size_M=None,
              num_local_tokens=None, moe_sorting_dispatch_policy=0, dtype=None, hidden_pad=0, intermediate_pad=0, bias1=None,
              bias2=None, splitk=0):
    """y [T, K] of hidden_states [T, K], w1 [E, N or 2N, K], w2 [E, K, N], topk_weight float32 and topk_ids int32 [T, k].

    expert_mask [all experts], of expert parallel: not 0 for the experts that w1 and w2 hold; slots of others add nothing.
    hidden_states of 16 bits are quantized as quant_type says (per_Token, per_Tensor, per_1x128); with MXFP4 weights (per_1x32)
    they are multiplied as they are. hidden_states that are quantized already come with a1_scale. a2_scale (the hidden layer is
    quantized here), padding and num_local_tokens are refused."""
    refuse("a2_scale", a2_scale)
    refuse("num_local_tokens", num_local_tokens)
    refuse("hidden_pad", hidden_pad, (0,))
    refuse("intermediate_pad", intermediate_pad, (0,))
    activation, quant_type = ActivationType(activation), QuantType(quant_type)
    if activation not in _activations:
        raise Unsupported(f"activation is {activation.name}, expected {', '.join(one.name for one in _activations)}")
    word = _quant_types[quant_type]
    given = read("hidden_states", hidden_states).type
    result = type_word(dtype) or (given if given in ("bf16", "f16") else "bf16")
    if given in ("bf16", "f16", "f32"):
        if a1_scale is not None:
            raise InvalidArgument("a1_scale is given and hidden_states is not quantized: static scales of tokens are not applied here")
        if quant_type in (QuantType.per_Token, QuantType.per_Tensor, QuantType.per_1x128, QuantType.per_128x128):
            hidden_states, a1_scale = _quantize(hidden_states, word, w1.dtype)
    gated = _inter(w1, w2)
    return operations.fused_moe(hidden_states, w1, w2, _local_ids(topk_ids, expert_mask), topk_weight, activation=_activations[activation],
                                quant_type=word, gated=gated, doweight_stage1=bool(doweight_stage1), x_scale=a1_scale, w1_scale=w1_scale,
                                w2_scale=w2_scale, bias1=bias1, bias2=bias2, out_dtype=result)


def _inter(w1, w2):
    """True if w1 holds a gate and an up half."""
    inter = w2.shape[2] * (w1.shape[2] and w2.shape[1] // w1.shape[2] or 1)  # two 4-bit elements a byte
    if w1.shape[1] not in (inter, 2 * inter):
        raise InvalidArgument(f"w1 has shape {list(w1.shape)} and w2 {list(w2.shape)}, expected [E, N or 2N, K] and [E, K, N]")
    return w1.shape[1] == 2 * inter


def _local_ids(topk_ids, expert_mask):
    """Ids among the experts that are here; -1, an empty slot, for others."""
    if expert_mask is None:
        return topk_ids
    if not is_torch(topk_ids):
        raise Unsupported("expert_mask needs tensors of PyTorch")
    import torch
    here = expert_mask.reshape(-1) != 0
    local = torch.where(here, torch.cumsum(here, 0) - 1, -1).to(torch.int32)
    return torch.where(topk_ids < 0, topk_ids, local[topk_ids.clamp(min=0).long()])


def _quantize(x, word, dtype):
    """(x of dtype, float32 scales), with the largest magnitude of each row, block of 128, or all, at the type's largest value."""
    if not is_torch(x):
        raise Unsupported("hidden_states is not quantized: that needs tensors of PyTorch")
    import torch
    integer = not dtype.is_floating_point
    most = 127.0 if integer else torch.finfo(dtype).max
    rows = x.float()
    if word == "per_1x128":
        padded = torch.nn.functional.pad(rows, (0, -rows.shape[1] % 128))
        groups = padded.view(rows.shape[0], -1, 128)
    elif word == "per_tensor":
        groups = rows.reshape(1, 1, -1)
    else:
        groups = rows.unsqueeze(1)
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / most
    values = (groups / scale).clamp(-most, most)
    values = values.round() if integer else values
    values = values.reshape(rows.shape[0], -1)[:, :rows.shape[1]] if word != "per_tensor" else values.reshape(rows.shape)
    shape = {"per_tensor": (1,), "per_token": (rows.shape[0],)}.get(word, scale.shape[:2])
    return values.contiguous().to(dtype), scale.reshape(shape).contiguous()
