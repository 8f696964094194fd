"""patch(): a model's layers run gemmtune's kernels, in place, until undo()."""

import contextlib
import operator

import torch
from torch import fx, nn
from torch.nn import functional
from torch.nn.modules import module as all_modules

from .. import contexts, errors, operations
from . import _gradients, _operators, _patch_text
from ._operators import ops
from ._patched import Group, Linear, MergedLinear, Options, PatchedModule, TransposedLinear, computed, pack_once, patched_class, put_back, why_not, why_not_kind

_fp8 = torch.float8_e4m3fn
_fp8_max = 448.0
_full_linear = ops.linear.full
_silu_and_mul = ops.silu_and_mul.default


class _LinearsAreLeaves(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, nn.Linear)


def _gated_children(module):
    """The names of (gate, up, down) of a module whose forward computes down(silu(gate(x)) * up(x)) and nothing else; else None."""
    children = dict(module.named_children())
    linears = [name for name, child in children.items() if isinstance(child, nn.Linear)]
    others = [child for name, child in children.items() if name not in linears]
    if len(linears) != 3 or "forward" in vars(module) or isinstance(module, PatchedModule) or any(True for child in others for _ in child.parameters()):
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


class _Gated(PatchedModule):
    """A module that computes down(silu(gate(x)) * up(x))."""

    def forward(self, *given, **named):
        x, = (*given, *named.values())
        names = self.gemmtune_gated
        gate, up, down = (self._modules[name] for name in names)
        others = [child for name, child in self._modules.items() if name not in names]
        if any(_has_hooks(child) for child in others) or all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks:
            return super().forward(x)
        group = getattr(gate, "gemmtune_group", None)
        y = None
        if group is not None and group is getattr(up, "gemmtune_group", None) and not _has_hooks(gate) and not _has_hooks(up) and not gate.runs_alone(x):
            y = group.product(x)
        if y is not None:
            gates, ups = (y[..., slice(*group.rows[member.gemmtune_member])] for member in (gate, up))
        else:
            gates, ups = gate(x), up(x)
        if why_not_kind(gates) is not None or gates.dtype is not ups.dtype or (self.gemmtune_options.gradients and _gradients.followed(gates, ups)):
            return down(functional.silu(gates) * ups)
        return down(_silu_and_mul(gates, ups))


def _dtype(module):
    return module.gemmtune_weight.dtype if isinstance(module, Linear) else None


def _patch_gated(patch, name, module, options):
    """Requires that its linear layers are patched."""
    names = _gated_children(module)
    if names is None:
        return
    prefix = f"{name}." if name else ""
    gate, up, _ = (module._modules[one] for one in names)
    group = getattr(gate, "gemmtune_group", None)
    together = group is getattr(up, "gemmtune_group", None) and (group is None or len(group.rows) == 2)
    if not together or not all(prefix + one in patch.layers for one in names[:2]):
        return
    if _dtype(gate) is not _dtype(up):
        return
    module.gemmtune_gated = names
    patch._change(module, _Gated, options)
    patch.gated.append(name)


def _quantize(x, scale):
    return (x.float() / scale).clamp(-_fp8_max, _fp8_max).to(_fp8)


def _largest(x, dim=None):
    values = x.abs().float()
    return (values.amax() if dim is None else values.amax(dim)).clamp(min=1e-12) / _fp8_max


class _Scaled(PatchedModule):
    """A layer with fp8 weights: weight_scale (one, or one a row) or weight_scale_inv (of 128 x 128)."""

    def forward(self, x):
        weight, bias = self.weight, getattr(self, "bias", None)
        if _scaled_kind(self) != self.gemmtune_kind or (self.gemmtune_options.gradients and _gradients.followed(x, bias)):
            return super().forward(x)
        rows = x.reshape(-1, x.shape[-1])
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
    """Why an fp8 layer stays as it is (GPUs have not all operations), or None."""
    if isinstance(module, PatchedModule) or "forward" in vars(module):
        return _why_not_layer(module)
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
    names that share one product; `gated`: names of modules whose silu(gate(x)) * up(x) is one kernel; `skipped`: names of layers
    that stay as they were, with the reason. undo() gives the model back."""

    def __init__(self):
        self.layers, self.packed, self.merged, self.gated, self.skipped = [], [], [], [], {}
        self._undo, self._linears, self._groups, self._changed = [], [], [], []

    def __str__(self):
        return _patch_text.text(self)

    def __repr__(self):
        return f"<gemmtune patch of {len(self.layers)} layers, {len(self.skipped)} left alone; print() says which>"

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
        self._linears, self._groups, self._changed = [], [], []

    @contextlib.contextmanager
    def paused(self):
        """Within it the model runs as before patch(); its weights stay packed for afterwards."""
        dropped = [module for module in self._linears if module.gemmtune_dropped]
        if dropped:
            raise errors.InvalidArgument(f"{len(dropped)} layers have no plain weight (patch(keep_weight=False)): they cannot run as before")
        changed = [(module, type(module), original) for module, original in self._changed]
        try:
            for module, _, original in changed:
                module.__class__ = original
            yield self
        finally:
            for module, kind, _ in changed:
                module.__class__ = kind

    def refresh(self):
        """Packs the weights, and merges the groups, as they are now: behind a change that a call cannot see (of values through
        `weight.data`), and of layers that a change has made plain."""
        for group in self._groups:
            group.refresh()
        for module in self._linears:
            module.look_at_weight(again=True)

    def _change(self, module, methods, options):
        """The module gets methods of ours in front of its own."""
        original = type(module)
        module.gemmtune_options = options
        module.__class__ = patched_class(methods, original)
        self._changed.append((module, original))
        self._undo.append(lambda: put_back(module, original))


def _patch_linear(patch, name, module, options, packs, methods=Linear, group=None):
    if group is not None:
        module.gemmtune_group, module.gemmtune_member = group, group.members.index(module)
    patch._change(module, methods, options)
    module.start(packs)
    if module.gemmtune_packs:
        patch.packed.append(name)
    patch.layers.append(name)
    patch._linears.append(module)

    def undo():
        if module.gemmtune_dropped:
            module.weight = module.plain_weight()

    patch._undo.append(undo)


def _patch_scaled(patch, name, module, kind, options):
    module.gemmtune_kind = kind
    patch._change(module, _Scaled, options)
    patch.layers.append(name)


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
            if not all(type(one) is nn.Linear and _why_not_layer(one) is None for one in members):
                continue
            kinds = {(one.in_features, one.weight.dtype, one.weight.device, one.bias is None) for one in members}
            if len(kinds) == 1 and all(wanted(*pair) and uses[pair[1].weight.data_ptr()] == 1 for pair in zip(full, members)):
                found.append((full, members))
    return found


def _merge(patch, names, members, options, max_rows):
    """Weights (and biases) of patched layers become parts of one, in place; undo() leaves them there."""
    group = Group(members, options, max_rows)
    for name, one in zip(names, members):
        _patch_linear(patch, name, one, options, None, MergedLinear, group)
    if group.bits is not None:
        patch.packed.extend(names)
    patch.merged.append(names)
    patch._groups.append(group)


def _is_conv1d(module):
    """GPT-2's layer: y = x · weight + bias with a weight [K, N]."""
    kind = type(module)
    return (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D")


def _why_not_layer(module):
    """Why a linear layer stays as it is, or None."""
    if isinstance(module, PatchedModule):
        return "it is patched already"
    if "forward" in vars(module):
        return "its forward was replaced"
    if isinstance(module, nn.Linear) and type(module).forward is not nn.Linear.forward:
        return f"it is a {type(module).__name__}, which has a forward of its own"
    weight = module._parameters.get("weight")
    return computed if weight is None or "bias" not in module._parameters else why_not(weight)


def _matrices(module):
    """Of a module that is none of PyTorch's own: its parameters that hold a matrix for each expert, as text; else empty."""
    if type(module).__module__.startswith("torch."):
        return ""
    return ", ".join(f"{name} {list(value.shape)}" for name, value in module._parameters.items()
                     if value is not None and value.dim() == 3 and min(value.shape) > 1)


def _bit_class(module):
    """The bit class of the rows of a layer with a plain weight; "" if there are none. One row says it of every M."""
    weight = module.weight
    n, k = (weight.shape[1], weight.shape[0]) if _is_conv1d(module) else weight.shape
    kind = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}.get(weight.dtype)
    if kind is None:
        return ""
    problem = operations.problem(1, n, k, x_type=kind, y_type=kind, bias=module.bias is not None)
    try:
        plan = contexts.current(_operators.device_of(weight)).tuned_plan(problem)
    except errors.Error:
        return ""
    return plan["bits"] if plan else ""


def patch(model, pack=True, keep_weight=True, only=None, merge=False, max_merged_rows=64, dependent=False, silu_and_mul=True, changed="pack",
          gradients="refuse", invariant=False):
    """Lets every nn.Linear (and Conv1D of transformers) of the model, and every layer with a scaled fp8 weight, run gemmtune's kernels;
    returns a Patch.

    merge=True: layers that get one input (q_proj, k_proj and v_proj; gate_proj and up_proj; or the children that a list of tuples
    of names says) become one product: their weights move behind each other, in place, and the first call of them
    computes what the others return. Their input must not be changed in place between their calls. Calls with more than
    max_merged_rows rows run alone: there the columns of a wide result cost their readers what merging gains.
    silu_and_mul: modules that compute down(silu(gate(x)) * up(x)) of patched layers and nothing else (LlamaMLP and its kind) run one
    kernel between their products, which rounds once.
    pack: pack each weight for which the tuned files of its device chose a packed layout; "any" or the name of a layout (gemmtune.pack())
    packs without a tuned row too. keep_weight=False drops the plain copy of a packed weight (undo() unpacks it). only: a function of
    (name, module) that says which layers. Calls with inputs of another type than the weight's, and under autocast, run as before.

    changed: what a layer does whose packed weight is another one, has moved or has changed since it was packed (a merged LoRA,
    load_state_dict): "pack" packs it again, once, in its next call; "plain" runs the weight as it is from then on, until refresh().
    gradients: "refuse" raises where a gradient is wanted; "torch" runs the layer as before patch() there (training of a LoRA).

    dependent=True promises that no kernel writes a weight while the model runs: on a GPU rows with a pdl_kernelName (`tune(pdl="allow")`)
    then run that programmatic dependent launch, which reads its weight while the kernel before it on the stream still runs (up_proj
    behind gate_proj, for example). To change weights, wait for the device first.

    invariant=True: every layer must have rows of a bit class (`tune --invariant rows`), so that a row has the same bits in every batch.
    Layers without such rows are an error that names them. Weights stay plain, and layers are not merged."""
    if invariant and merge:
        raise errors.InvalidArgument("invariant=True: not with merge, whose product depends on the number of rows")
    pack = not invariant and pack
    for name, value, words in (("changed", changed, ("pack", "plain")), ("gradients", gradients, ("refuse", "torch"))):
        if value not in words:
            raise errors.InvalidArgument(f"{name} is {value!r}, expected one of {', '.join(words)}")
    done = Patch()
    layout = pack if isinstance(pack, str) else None
    options = Options(pack=bool(pack), layout=layout, keep_weight=keep_weight, pack_again=changed == "pack", dependent=dependent,
                      gradients=gradients == "torch")
    packs, without = {}, []
    wanted = only if only is not None else lambda name, module: True
    try:
        for names, members in _groups(model, _same_input if merge is True else merge, wanted) if merge else ():
            _merge(done, names, members, options, max_merged_rows)
        merged = {name for names in done.merged for name in names}
        attention = {id(child) for module in model.modules() if isinstance(module, nn.MultiheadAttention) for child in module.modules()}
        for name, module in list(model.named_modules()):
            if name in merged or not wanted(name, module):
                continue
            kind = _scaled_kind(module)
            if isinstance(module, nn.Linear) or _is_conv1d(module):
                why = _why_not_layer(module) if kind is None else _why_not_scaled(module, kind)
                if id(module) in attention:
                    why = "nn.MultiheadAttention reads its weight and does not call it"
                if why is None and _is_conv1d(module) and (not pack or pack_once(packs, module.weight, module.weight.detach().t(), layout) is None):
                    why = TransposedLinear.why_not_plain(module.weight)
                if invariant and (kind is not None or why is not None or not _bit_class(module)):
                    without.append(f"{name} ({why})" if why is not None else name)
                elif why is not None:
                    done.skipped[name] = why
                elif kind is None:
                    _patch_linear(done, name, module, options, packs, TransposedLinear if _is_conv1d(module) else Linear)
                else:
                    _patch_scaled(done, name, module, kind, options)
            elif kind is not None:
                why = _why_not_scaled(module, kind)
                if why is not None:
                    done.skipped[name] = why
                else:
                    _patch_scaled(done, name, module, kind, options)
            elif matrices := _matrices(module):
                done.skipped[name] = f"its weights are matrices of experts: {matrices}"
        if without:
            raise errors.NotFound(f"invariant=True: {len(without)} layers have no rows of a bit class: {', '.join(without[:8])}"
                                  f"{' ...' if len(without) > 8 else ''}; `gemmtune tune --invariant rows` makes them")
        for name, module in list(model.named_modules()) if silu_and_mul else ():
            _patch_gated(done, name, module, options)
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
            if isinstance(module, _Gated):
                module = module._modules[module.gemmtune_gated[0]]
            if not isinstance(module, (Linear, _Scaled)):
                continue
            for m in Ms:
                whole(module.random_rows(m) if isinstance(module, Linear) else
                      _operators.random_rows(m, module.weight.shape[1], torch.bfloat16, module.weight.device))
                calls += 1
    return calls
