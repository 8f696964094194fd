"""patch(): a model's linear layers run gemmtune's kernels, in place, until undo()."""

import operator

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.modules import module as all_modules

from .. import contexts, errors, operations
from . import _operators
from ._operators import ops

_floats = (torch.bfloat16, torch.float16, torch.float32)
_fp8 = torch.float8_e4m3fn
_fp8_max = 448.0
_linear = ops.linear.default
_full_linear = ops.linear.full
_silu_and_mul = ops.silu_and_mul.default


def _product(x, weight, bias, packed, columns, layout, dependent):
    if packed is not None:
        return _full_linear(x, packed, bias, None, None, columns, layout, None, dependent)
    if dependent:
        return _full_linear(x, weight, bias, constant_weight=True)
    return _linear(x, weight, bias)


class GemmtuneLinear(nn.Linear):
    """What a patched nn.Linear is while it is patched: the same parameters, another forward."""

    def forward(self, x):
        parameters = self._parameters  # attributes of a module are slower to find
        if x.dtype is not self.gemmtune_dtype or torch.is_autocast_enabled(self.gemmtune_device):
            return functional.linear(x, self.plain_weight(), parameters["bias"])
        return _product(x, parameters["weight"], parameters["bias"], self.gemmtune_packed, self.out_features, self.gemmtune_layout,
                        self.gemmtune_dependent)

    def plain_weight(self):
        if self.weight is None:
            raise errors.WrongType(f"x is not {self.gemmtune_dtype}, or autocast is on: the plain weight was dropped "
                                   "(patch(keep_weight=False))")
        return self.weight


class _Group:
    """Linear layers of one input whose weights lie one behind the other: one product for all. `held`: (x, y, members that
    still want their columns), replaced as a whole, so that threads see one call's."""

    def __init__(self, weight, bias, rows, max_rows, dependent):
        self.weight, self.bias, self.rows, self.max_rows, self.dependent = weight, bias, rows, max_rows, dependent
        self.packed, self.layout = None, 0
        self.held = (None, None, frozenset())

    def product(self, x):
        return _product(x, self.weight, self.bias, self.packed, self.weight.shape[0], self.layout, self.dependent)

    def columns(self, x, member):
        first, last = self.rows[member]
        held, y, waiting = self.held
        if held is not x or member not in waiting:
            y, waiting = self.product(x), frozenset(range(len(self.rows)))
        waiting = waiting - {member}
        self.held = (x, y, waiting) if waiting else (None, None, waiting)
        return y[..., first:last]


class GemmtuneMergedLinear(GemmtuneLinear):
    """A member of a group."""

    def runs_alone(self, x):
        return (x.dtype is not self.gemmtune_dtype or torch.is_autocast_enabled(self.gemmtune_device)
                or x.numel() > self.gemmtune_group.max_rows * x.shape[-1])

    def forward(self, x):
        return super().forward(x) if self.runs_alone(x) else self.gemmtune_group.columns(x, self.gemmtune_member)


class _LinearsAreLeaves(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, nn.Linear)


def _gated_children(module):
    """The names of (gate, up, down) of a module whose forward computes down(silu(gate(x)) * up(x)) and nothing else; else None."""
    children = dict(module.named_children())
    linears = [name for name, child in children.items() if isinstance(child, nn.Linear)]
    others = [child for name, child in children.items() if name not in linears]
    if len(linears) != 3 or "forward" in vars(module) or any(True for child in others for _ in child.parameters()):
        return None
    try:
        nodes = list(_LinearsAreLeaves().trace(module).nodes)
    except Exception:  # whatever a forward that cannot be traced raises
        return None
    if [node.op for node in nodes[:1] + nodes[-1:]] != ["placeholder", "output"] or len(nodes) != 7:
        return None
    (x, *_), (result,) = nodes, nodes[-1].args

    def is_child(node, of):
        return isinstance(node, fx.Node) and node.op == "call_module" and node.target in linears and node.args == (of,) and not node.kwargs

    if not isinstance(result, fx.Node) or len(result.args) != 1 or not is_child(result, product := result.args[0]):
        return None
    if not isinstance(product, fx.Node) or product.target not in (operator.mul, torch.mul, "mul") or len(product.args) != 2:
        return None
    silu, up = product.args if getattr(product.args[0], "target", None) is functional.silu else reversed(product.args)
    if getattr(silu, "target", None) is not functional.silu or not silu.args or not is_child(silu.args[0], x) or not is_child(up, x):
        return None
    return silu.args[0].target, up.target, result.target


def _has_hooks(module):
    return module._forward_hooks or module._forward_pre_hooks


def _gated_forward(self, x):
    """forward() of a module that computes down(silu(gate(x)) * up(x))."""
    gate, up, down = (self._modules[name] for name in self.gemmtune_gated)
    others = [child for name, child in self._modules.items() if name not in self.gemmtune_gated]
    if any(_has_hooks(child) for child in others) or all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks:
        return type(self).forward(self, x)
    group = getattr(gate, "gemmtune_group", None)
    if group is not None and not gate.runs_alone(x) and not _has_hooks(gate) and not _has_hooks(up):
        y = group.product(x)
        gates, ups = (y[..., slice(*group.rows[member.gemmtune_member])] for member in (gate, up))
    else:
        gates, ups = gate(x), up(x)
    return down(_silu_and_mul(gates, ups))


def _patch_gated(patch, name, module):
    """Requires that its linear layers are patched."""
    names = _gated_children(module)
    if names is None:
        return
    prefix = f"{name}." if name else ""
    gate, up, _ = (module._modules[one] for one in names)
    group = getattr(gate, "gemmtune_group", None)
    together = group is getattr(up, "gemmtune_group", None) and (group is None or len(group.rows) == 2)
    if not together or getattr(gate, "gemmtune_dtype", None) is not getattr(up, "gemmtune_dtype", None):
        return
    if not all(prefix + one in patch.layers for one in names[:2]):
        return
    module.gemmtune_gated = names
    module.forward = _gated_forward.__get__(module)
    patch.gated.append(name)

    def undo():
        del module.forward, module.gemmtune_gated

    patch._undo.append(undo)


def _quantize(x, scale):
    return (x.float() / scale).clamp(-_fp8_max, _fp8_max).to(_fp8)


def _largest(x, dim=None):
    values = x.abs().float()
    return (values.amax() if dim is None else values.amax(dim)).clamp(min=1e-12) / _fp8_max


def _scaled_forward(self, x):
    """forward() of a patched layer with fp8 weights: weight_scale (one, or one a row) or weight_scale_inv (of 128 x 128)."""
    rows = x.reshape(-1, x.shape[-1])
    weight, bias = self.weight, getattr(self, "bias", None)
    if self.gemmtune_kind == "blocks":
        padded = functional.pad(rows, (0, -rows.shape[1] % 128)).unflatten(1, (-1, 128))
        scale = _largest(padded, 2)
        quantized = _quantize(padded, scale[:, :, None]).flatten(1)[:, :rows.shape[1]].contiguous()
        y = ops.a8w8_blockscale(quantized, weight, scale, self.weight_scale_inv.float(), out_dtype=x.dtype)
    elif self.gemmtune_kind == "tensor":
        given = getattr(self, "input_scale", None)
        one = isinstance(given, torch.Tensor) and given.numel() == 1
        scale = given.float().reshape(1) if one else _largest(rows).reshape(1)
        y = _full_linear(_quantize(rows, scale), weight, None, scale, self.weight_scale.float().reshape(1), out_dtype=x.dtype)
    else:
        scale = _largest(rows, 1)
        y = ops.a8w8(_quantize(rows, scale[:, None]), weight, scale, self.weight_scale.float().reshape(-1), out_dtype=x.dtype)
    y = y.view(*x.shape[:-1], y.shape[-1])
    return y if bias is None else y + bias


def _scaled_kind(module):
    """How an fp8 layer is scaled, or None for a layer that is none of these."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dtype is not _fp8 or weight.dim() != 2 or not weight.is_contiguous():
        return None
    blocks = getattr(module, "weight_scale_inv", None)
    if isinstance(blocks, torch.Tensor):
        expected = tuple(-(-size // 128) for size in weight.shape)
        return "blocks" if tuple(blocks.shape) == expected else None
    scale = getattr(module, "weight_scale", None)
    if not isinstance(scale, torch.Tensor):
        return None
    return {1: "tensor", weight.shape[0]: "rows"}.get(scale.numel())


_scaled_operations = {"tensor": "a16w16", "rows": "a8w8", "blocks": "a8w8_blockscale"}


def _why_not_scaled(module, kind):
    """Why this device cannot run an fp8 layer (GPUs have not all operations), or None."""
    n, k = module.weight.shape
    problem = operations.problem(1, n, k, operation=_scaled_operations[kind], x_type="f8_e4m3fn", y_type="bf16",
                                 scale_ab=kind == "tensor")
    try:
        contexts.current(_operators.device_of(module.weight)).plan(problem)
    except errors.Error as error:
        return str(error)
    return None


class Patch:
    """What patch() did. `layers`: names of the patched layers; `packed`: of those with a packed weight; `merged`: groups of
    names that share one product; `gated`: names of modules whose silu(gate(x)) * up(x) is one kernel; `skipped`: names of linear layers
    that stay as they were, with the reason. undo() gives the model back."""

    def __init__(self):
        self.layers, self.packed, self.merged, self.gated, self.skipped = [], [], [], [], {}
        self._undo = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.undo()

    def __len__(self):
        return len(self.layers)

    def undo(self):
        """The model as it was. A second call does nothing."""
        while self._undo:
            self._undo.pop()()


def _why_not(module):
    weight = module.weight
    if weight.dtype not in _floats:
        return f"weight is {weight.dtype}"
    if weight.device.type not in ("cpu", "cuda"):
        return f"weight is on {weight.device}"
    if not weight.is_contiguous():
        return "weight is not dense"
    if type(weight) not in (nn.Parameter, torch.Tensor):
        return f"weight is a {type(weight).__name__}"
    return None


def _patch_linear(patch, name, module, packs, keep_weight, dependent):
    original = type(module)
    packed = None
    if packs is not None:
        key = (module.weight.data_ptr(), tuple(module.weight.shape), module.weight.dtype)
        if key not in packs:
            packs[key] = _operators.pack(module.weight.detach())
        packed = packs[key]
    module.gemmtune_dtype, module.gemmtune_device = module.weight.dtype, module.weight.device.type
    module.gemmtune_packed, module.gemmtune_layout, module.gemmtune_dependent = None, 0, dependent
    weight = module.weight
    if isinstance(packed, operations.PackedWeight):
        module.gemmtune_packed, module.gemmtune_layout = packed.bits, packed.layout
        patch.packed.append(name)
        if not keep_weight:
            _operators.unpack(packed)  # before it is dropped: a layout without an inverse is refused here
            module.weight, weight = None, None
    module.__class__ = GemmtuneLinear
    patch.layers.append(name)

    def undo():
        if module.weight is None:
            module.weight = nn.Parameter(_operators.unpack(packed), requires_grad=False)
        module.__class__ = original
        del module.gemmtune_dtype, module.gemmtune_device, module.gemmtune_packed, module.gemmtune_layout, module.gemmtune_dependent

    patch._undo.append(undo)


def _patch_scaled(patch, name, module, kind):
    module.gemmtune_kind = kind
    module.forward = _scaled_forward.__get__(module)
    patch.layers.append(name)

    def undo():
        del module.forward, module.gemmtune_kind

    patch._undo.append(undo)


# Children of one module that get one input, by their names in transformers' and others' models.
_same_input = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("wq", "wk", "wv"), ("w1", "w3"))


def _groups(model, names, wanted):
    """[(prefix, modules)] of children that can be one product: plain layers of one size of x, type, device and with or without a
    bias, whose weights belong to nothing else."""
    uses = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                uses[parameter.data_ptr()] = uses.get(parameter.data_ptr(), 0) + 1
    found = []
    for prefix, parent in model.named_modules():
        for group in names:
            members = [getattr(parent, name, None) for name in group]
            full = [f"{prefix}.{name}" if prefix else name for name in group]
            if not all(type(one) is nn.Linear and _why_not(one) is None for one in members):
                continue
            kinds = {(one.in_features, one.weight.dtype, one.weight.device, one.bias is None) for one in members}
            if len(kinds) == 1 and all(wanted(*pair) and uses[pair[1].weight.data_ptr()] == 1 for pair in zip(full, members)):
                found.append((full, members))
    return found


def _merge(patch, names, members, packs, max_rows, dependent):
    """Weights (and biases) of patched layers become parts of one, in place; undo() leaves them there."""
    weight = torch.cat([one.weight.detach() for one in members])
    bias = torch.cat([one.bias.detach() for one in members]) if members[0].bias is not None else None
    rows, first = [], 0
    for one in members:
        rows.append((first, first + one.out_features))
        first += one.out_features
        one.weight.data = weight[slice(*rows[-1])]
        if bias is not None:
            one.bias.data = bias[slice(*rows[-1])]
    group = _Group(weight, bias, rows, max_rows, dependent)
    for index, (name, one) in enumerate(zip(names, members)):
        _patch_linear(patch, name, one, None, True, dependent)
        one.gemmtune_group, one.gemmtune_member = group, index
        one.__class__ = GemmtuneMergedLinear

        def undo(one=one):
            del one.gemmtune_group, one.gemmtune_member

        patch._undo.append(undo)
    if packs is not None:
        packed = _operators.pack(weight)
        if isinstance(packed, operations.PackedWeight):
            group.packed, group.layout = packed.bits, packed.layout
            patch.packed.extend(names)
    patch.merged.append(names)


def patch(model, pack=True, keep_weight=True, only=None, merge=False, max_merged_rows=64, dependent=False, silu_and_mul=True):
    """Lets every nn.Linear of the model, and every layer with a scaled fp8 weight, run gemmtune's kernels; returns a Patch.

    merge=True: layers that get one input (q_proj, k_proj and v_proj; gate_proj and up_proj; or the children that a list of tuples
    of names says) become one product: their weights move behind each other, in place, and the first call of them
    computes what the others return. Their input must not be changed in place between their calls. Calls with more than
    max_merged_rows rows run alone: there the columns of a wide result cost their readers what merging gains.
    silu_and_mul: modules that compute down(silu(gate(x)) * up(x)) of patched layers and nothing else (LlamaMLP and its kind) run one
    kernel between their products, which rounds once.
    pack: pack each weight for which the tuned files of its device chose a packed layout. keep_weight=False drops the plain
    copy of a packed weight (undo() unpacks it). only: a function of (name, module) that says which layers. Calls with
    inputs of another type than the weight's, and under autocast, run as before.

    dependent=True promises that no kernel writes a weight while the model runs: on a GPU rows with a pdl_kernelName (`tune(pdl="allow")`)
    then run that programmatic dependent launch, which reads its weight while the kernel before it on the stream still runs (up_proj
    behind gate_proj, for example). To change weights, wait for the device first."""
    done = Patch()
    packs = {} if pack else None
    wanted = only if only is not None else lambda name, module: True
    try:
        for names, members in _groups(model, _same_input if merge is True else merge, wanted) if merge else ():
            _merge(done, names, members, packs, max_merged_rows, dependent)
        for name, module in list(model.named_modules()):
            if not wanted(name, module):
                continue
            kind = _scaled_kind(module)
            if kind is not None:
                why = _why_not_scaled(module, kind)
                if why is not None:
                    done.skipped[name] = why
                else:
                    _patch_scaled(done, name, module, kind)
            elif type(module) is nn.Linear:
                why = _why_not(module)
                if why is not None:
                    done.skipped[name] = why
                else:
                    _patch_linear(done, name, module, packs, keep_weight, dependent)
        for name, module in list(model.named_modules()) if silu_and_mul else ():
            _patch_gated(done, name, module)
    except BaseException:
        done.undo()
        raise
    return done


def warm(model, Ms):
    """Makes the plans of a patched model's layers for these M ahead, by running each layer once (and a module with silu_and_mul as
    a whole): before a CUDA graph is captured, or before the first request. Returns the number of calls."""
    calls = 0
    with torch.inference_mode():
        for module in model.modules():
            whole = module
            if hasattr(module, "gemmtune_gated"):
                module = module._modules[module.gemmtune_gated[0]]
            if not isinstance(module, GemmtuneLinear) and not hasattr(module, "gemmtune_kind"):
                continue
            device = next(tensor.device for tensor in (getattr(module, "gemmtune_packed", None), module.weight) if tensor is not None)
            dtype = getattr(module, "gemmtune_dtype", torch.bfloat16)
            columns = module.in_features if hasattr(module, "in_features") else module.weight.shape[1]
            for m in Ms:
                whole(torch.zeros(m, columns, dtype=dtype, device=device))
                calls += 1
    return calls
