"""Derivatives through the operators are refused with one sentence: of autograd, of forward mode, and of torch.func's transforms.
vmap runs an operator for each element of the batch."""

import functools

import torch
from torch.autograd import forward_ad
from torch.utils import _pytree as trees

from .. import errors


def _has_tangent(tensor):
    try:
        return forward_ad.unpack_dual(tensor, level=0).tangent is not None
    except RuntimeError:  # below autograd, where make_fx runs operators, PyTorch does not say
        return True


def _forward_mode():
    """Whether tangents are carried on; levels are not nested in PyTorch, functorch's included."""
    return forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled()


def needed(*tensors):
    """Whether autograd, or forward mode, wants a derivative of what these tensors (or None) give."""
    given = [tensor for tensor in tensors if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return True
    return _forward_mode() and any(_has_tangent(tensor) for tensor in given)


def followed(*tensors):
    """Whether a derivative of what these tensors give is wanted, or a transform of torch.func is at work."""
    if torch.compiler.is_dynamo_compiling():
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors if tensor is not None)
    return needed(*tensors) or torch._C._functorch.peek_interpreter_stack() is not None


def _tensors(arguments, options):
    return [one for one in trees.tree_leaves((arguments, options)) if isinstance(one, torch.Tensor)]


def refusing(fake):
    """A fake kernel that refuses derivatives, and tensors of several devices, as the real ones do."""
    @functools.wraps(fake)
    def check(*arguments, **options):
        tensors = _tensors(arguments, options)
        if needed(*tensors):
            raise errors.NeedsGradient(errors.NeedsGradient.sentence)
        devices = list(dict.fromkeys(str(tensor.device) for tensor in tensors))
        if len(devices) > 1:
            raise errors.InvalidArgument(f"operands are on {' and '.join(devices)}, expected one device"
                                         + (" (a tensor on meta has no values: was the model moved?)" if "meta" in devices else ""))
        return fake(*arguments, **options)
    return check


# ---- transforms of torch.func -----------------------------------------------------------------------------------------------------
# PyTorch's own kernels for the key below would take an operator without a derivative as one of derivative zero.

def _differentiate(operator, transform, forward, arguments, options):
    """An operator under grad, vjp or jacrev (or jvp and jacfwd: `forward`): run below it if it is of no operand that the transform follows."""
    functorch, level = torch._C._functorch, transform.level()
    own = [one for one in _tensors(arguments, options) if functorch.maybe_get_level(one) == level]
    if forward:
        followed = torch._C._is_fwd_grad_enabled() and any(_has_tangent(one) for one in own)
    else:
        followed = torch.is_grad_enabled() and any(one.requires_grad for one in own)
    if followed:
        raise errors.NeedsGradient(errors.NeedsGradient.sentence)
    arguments, options = trees.tree_map_only(torch.Tensor, lambda one: functorch._unwrap_for_grad(one, level), (arguments, options))
    with transform.lower():
        result = operator(*arguments, **options)
    return None if result is None else functorch._wrap_for_grad(result, level)


def _batch(operator, transform, arguments, options):
    """An operator under vmap: one call for each element."""
    functorch, level, size = torch._C._functorch, transform.level(), transform.batch_size()
    leaves, form = trees.tree_flatten((arguments, options))
    with transform.lower():
        split = [functorch._unwrap_batched(one, level) if isinstance(one, torch.Tensor) else (one, None) for one in leaves]
        if all(dimension is None for _, dimension in split):
            arguments, options = trees.tree_unflatten([one for one, _ in split], form)
            return operator(*arguments, **options)
        if size == 0:
            raise errors.InvalidArgument("vmap is over a dimension of size 0, expected at least 1")
        results = []
        for index in range(size):
            arguments, options = trees.tree_unflatten(
                [one if dimension is None else one.select(dimension, index) for one, dimension in split], form)
            results.append(operator(*arguments, **options))
        if results[0] is None:
            return None
        return functorch._add_batch_dim(torch.stack(results), 0, level)


def _functionalize(operator, transform, arguments, options):
    def plain(tensor):
        if not torch._is_functional_tensor(tensor):
            return tensor
        torch._sync(tensor)
        return torch._from_functional_tensor(tensor)

    arguments, options = trees.tree_map_only(torch.Tensor, plain, (arguments, options))
    with transform.lower():
        return torch._C._functorch._wrap_functional_tensor(operator(*arguments, **options), transform.level())


def _under_transforms(operator, writes_out):
    def run(*arguments, **options):
        from torch._functorch import pyfunctorch
        transform = pyfunctorch.retrieve_current_functorch_interpreter()
        kind = transform.key().name
        arguments, options = trees.tree_map_only(torch.Tensor, torch._C._functorch.unwrap_if_dead, (arguments, options))
        if kind in ("Grad", "Jvp"):
            return _differentiate(operator, transform, kind == "Jvp", arguments, options)
        if writes_out and (kind == "Functionalize" or torch._C._functorch.maybe_get_level(options["out"]) != transform.level()
                           and any(torch._C._functorch.maybe_get_level(one) == transform.level() for one in _tensors(arguments, options))):
            raise errors.Unsupported(f"{operator} writes out, which {kind.lower()} cannot follow: call the operator that returns its result")
        return (_batch if kind == "Vmap" else _functionalize)(operator, transform, arguments, options)
    return run


def register(library, names):
    """Gives operators their kernels for torch.func's transforms."""
    for name in names:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.gemmtune, packet), overload or "default")
        library.impl(name, _under_transforms(operator, packet.endswith("_out")), "FuncTorchDynamicLayerFrontMode")
