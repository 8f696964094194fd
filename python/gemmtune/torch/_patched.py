"""What patched modules are while they are patched: their own classes with methods of ours in front.

A layer looks at its weight in each call: a weight that is another one, has moved or has changed is packed again, or runs plain."""

import copyreg
import ctypes
import functools
import itertools
import threading
import weakref
from typing import NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from .. import errors, operations
from . import _gradients, _operators
from ._operators import ops

_floats = (torch.bfloat16, torch.float16, torch.float32)
_is_compiling = torch.compiler.is_dynamo_compiling
_linear = ops.linear.default
_full_linear = ops.linear.full
_lock = threading.RLock()  # while a layer looks at its weight


class Options(NamedTuple):
    pack: bool
    layout: str | None  # as gemmtune.pack()
    keep_weight: bool
    pack_again: bool
    dependent: bool
    gradients: bool


# ---- classes --------------------------------------------------------------------------------------------------------------------

@functools.cache
def patched_class(methods, original):
    return type(f"Gemmtune{original.__name__}", (methods, original), {"gemmtune_original": original})


def put_back(module, original):
    """Takes what patched_class() added from a module, also from a class that another library has made of it since."""
    for kind in type(module).__mro__:
        if vars(kind).get("gemmtune_original") is original:
            if kind is type(module):
                module.__class__ = original
            break
        if any(vars(base).get("gemmtune_original") is original for base in kind.__bases__):
            kind.__bases__ = tuple(original if vars(base).get("gemmtune_original") is original else base for base in kind.__bases__)
            break
    if hasattr(module, "gemmtune_number"):
        _numbered.pop(_value(module.gemmtune_number), None)
    for name in [name for name in vars(module) if name.startswith("gemmtune_")]:
        delattr(module, name)


class PatchedModule(nn.Module):
    """A copy (copy.deepcopy, pickle, torch.save) is the module as it was before patch()."""

    def __reduce_ex__(self, protocol):
        make, arguments, state, *rest = super().__reduce_ex__(protocol)
        if make is copyreg.__newobj__:  # which pickle allows for an object's own class alone
            make, arguments = copyreg._reconstructor, (*arguments, object, None)
        arguments = tuple(self.gemmtune_original if one is type(self) else one for one in arguments)
        if isinstance(state, dict):
            state = {name: value for name, value in self.plain_state(state).items() if not name.startswith("gemmtune_")}
        return (make, arguments, state, *rest)

    def plain_state(self, state):
        return state


# ---- weights ----------------------------------------------------------------------------------------------------------------------

def why_not_kind(tensor):
    """Why the operators take no tensor of this kind, or None."""
    if type(tensor) not in (nn.Parameter, torch.Tensor):
        return f"weight is a {type(tensor).__name__}"
    if tensor.dtype not in _floats:
        return f"weight is {tensor.dtype}"
    if tensor.device.type not in ("cpu", "cuda"):
        return f"weight is on {tensor.device}"
    return None


def why_not(weight):
    """Why the operators do not take a weight, or None."""
    kind = why_not_kind(weight)
    if kind is not None:
        return kind
    if weight.numel() == 0:
        return f"weight is empty, of shape {list(weight.shape)}"
    if not weight.is_contiguous():
        return f"weight has strides {list(weight.stride())} and shape {list(weight.shape)}, which is not dense"
    return None


computed = "its weight or bias is computed from other tensors"


def _nothing():
    return None


_computed = object()  # in place of a bias


class _Seen:
    """A tensor as a call saw it."""

    __slots__ = ("tensor", "pointer", "version", "sample", "bytes")
    sampled = 64  # bytes of a weight on the CPU that each call compares: a change through `weight.data` leaves no other trace

    def __init__(self, tensor, values):
        """values: whether changed values count."""
        self.tensor, self.pointer = weakref.ref(tensor), tensor.data_ptr()
        self.version = tensor._version if values and not tensor.is_inference() else None
        self.sample = self.bytes = None
        whole = tensor.numel() * tensor.element_size()
        if values and tensor.device.type == "cpu" and whole > 0:
            size = min(self.sampled, whole)
            self.sample = (ctypes.c_char * size).from_address(self.pointer + (whole - size) // 2)
            self.bytes = self.sample.raw

    def has_changed(self, tensor):
        """Of a tensor that is where it was."""
        return (self.version is not None and tensor._version != self.version) or (self.sample is not None and self.sample.raw != self.bytes)

    def is_still(self, tensor):
        return tensor is not None and self.tensor() is tensor and tensor.data_ptr() == self.pointer and not self.has_changed(tensor)


class _Weight(_Seen):
    """A layer's weight as it runs: packed (`packed` and its `bits`, `rows`, `layout`), plain, or, for the reason `why`, as before patch()."""

    __slots__ = ("dtype", "device", "packed", "bits", "rows", "layout", "why")

    def __init__(self, tensor, packed=None, why=None):
        if tensor is not None and why is None:
            super().__init__(tensor, packed is not None)
        else:
            self.tensor, self.pointer, self.version, self.sample, self.bytes = _nothing if tensor is None else weakref.ref(tensor), None, None, None, None
        self.dtype, self.device = (tensor.dtype, tensor.device.type) if tensor is not None else (None, None)
        self.packed, self.why = packed, why
        self.bits, self.rows, self.layout = (packed.bits, packed.n, packed.layout) if packed is not None else (None, 0, 0)

    @classmethod
    def dropped(cls, packed, dtype, device):
        """Of a layer that has the packed weight alone."""
        seen = cls(None, packed)
        seen.dtype, seen.device = dtype, device
        return seen

    @classmethod
    def plain(cls, tensor):
        """For one call: of what stands for a tensor, too."""
        seen = cls(None)
        seen.dtype, seen.device = tensor.dtype, tensor.device.type
        return seen


def _stands_for_another(tensor):
    """Whether a tensor has no memory of its own because operators are being traced or transformed."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor) or isinstance(tensor, (FakeTensor, FunctionalTensor))


def _require_memory(tensor):
    if tensor.data_ptr() == 0:
        raise errors.InvalidArgument(f"weight of shape {list(tensor.shape)} has no memory: its storage was resized to 0 bytes, expected the "
                                     "weight back before the layer is called")


def _pack(matrix, layout):
    """A PackedWeight of [N, K], or None where the plain layout was chosen."""
    packed = _operators.pack(matrix.contiguous(), layout=layout)
    return packed if isinstance(packed, operations.PackedWeight) else None


def pack_once(packs, weight, matrix, layout):
    """Of a weight whose matrix is [N, K]. packs: what has been packed, by its weight, because weights can be tied."""
    key = (weight.data_ptr(), tuple(matrix.shape), weight.dtype)
    if key not in packs:
        packs[key] = _pack(matrix, layout)
    return packs[key]


def _product(x, weight, bias, bits, columns, layout, dependent):
    if bits is not None:
        return _full_linear(x, bits, bias, None, None, columns, layout, None, dependent)
    if dependent:
        return _full_linear(x, weight, bias, constant_weight=True)
    return _linear(x, weight, bias)


# A compiled graph gets the number of a layer or group with a packed weight, which is looked at when the graph runs. As a tensor: blocks
# that share their code also share their graph. With more elements than Inductor writes into a frozen graph (eight, or a scalar's one): its
# cache of graphs does not look at the values of frozen tensors, so that each block would get the first one's number.
_copies_of_a_number = 16
_numbers = itertools.count(1)
_numbered = weakref.WeakValueDictionary()


def _number(owner):
    number = next(_numbers)
    _numbered[number] = owner
    return torch.full((_copies_of_a_number,), number, device="cpu")


def _value(number):
    return number.tolist()[0]


def _run_patched(x, weights, biases, number, columns):
    owner = _numbered.get(_value(number))
    y = owner.run_compiled(x, weights, biases) if owner is not None else None
    return _run_merged(x, weights, biases, columns, False) if y is None else y


def _whole(parts):
    """The tensor that these tensors are parts of, one behind the other, or None."""
    first, end = parts[0], parts[0].data_ptr()
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        if (part.data_ptr() != end or part.untyped_storage().data_ptr() != storage or part.shape[1:] != first.shape[1:] or part.dtype is not first.dtype
                or not part.is_contiguous()):
            return None
        end += part.numel() * part.element_size()
    return first.as_strided((sum(len(part) for part in parts), *first.shape[1:]), first.stride())


def _run_merged(x, weights, biases, columns, dependent):
    """The product of weights that lie one behind the other, or one product of each."""
    weight, bias = _whole(weights), _whole(biases) if biases else None
    if weight is not None and (bias is not None or not biases):
        return _product(x, weight, bias, None, 0, 0, dependent)
    return torch.cat([_product(x, weight, bias, None, 0, 0, dependent) for weight, bias in zip(weights, biases or [None] * len(weights))], -1)


@_gradients.refusing
def _fake_product(x, weights, biases, columns):
    return x.new_empty((*x.shape[:-1], columns))


def _register(name, schema, kernel, fake):
    _library.define(name + schema)
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)

    torch.library.register_fake(f"gemmtune::{name}", fake)
    _gradients.register(_library, [name])


_library = torch.library.Library("gemmtune", "FRAGMENT")
_register("patched_linear", "(Tensor x, Tensor[] weights, Tensor[] biases, Tensor number, int columns) -> Tensor", _run_patched,
          lambda x, weights, biases, number, columns: _fake_product(x, weights, biases, columns))
_register("merged_linear", "(Tensor x, Tensor[] weights, Tensor[] biases, int columns, bool dependent) -> Tensor", _run_merged,
          lambda x, weights, biases, columns, dependent: _fake_product(x, weights, biases, columns))


# ---- layers -------------------------------------------------------------------------------------------------------------------------

class Linear(PatchedModule):
    """Of an nn.Linear: the same parameters, another forward."""

    def forward(self, input):
        x = input  # the name that nn.Linear has for it
        if _is_compiling():
            return self.forward_compiled(x)
        parameters, options, seen = self._parameters, self.gemmtune_options, self.gemmtune_weight  # parameters as attributes are slower to find
        weight = parameters.get("weight")
        if weight is None:
            if seen.tensor is not _nothing:
                seen = self.look_at_weight()
        elif seen.tensor() is not weight or (weight.dtype is not seen.dtype if seen.why is not None else
                                             weight.data_ptr() != seen.pointer or seen.bits is not None and seen.has_changed(weight)):
            seen = self.look_at_weight()
        bias = parameters.get("bias", _computed)
        if (seen.why is not None or bias is _computed or x.dtype is not seen.dtype or torch.is_autocast_enabled(seen.device)
                or options.gradients and _gradients.followed(x, weight, bias)):
            return self.forward_before(x)
        if seen.bits is not None:
            return _full_linear(x, seen.bits, bias, None, None, seen.rows, seen.layout, None, options.dependent)
        return _product(x, self.matrix(weight), bias, None, 0, 0, options.dependent)

    @staticmethod
    def matrix(weight):
        """The weight as [N, K], or a matrix of that form as the weight."""
        return weight

    def forward_before(self, x):
        if self.gemmtune_dropped:
            raise errors.WrongType(f"x is not {self.gemmtune_weight.dtype}, autocast is on, a gradient is wanted or the bias is computed: the plain weight was dropped "
                                   "(patch(keep_weight=False))")
        return super().forward(x)

    def forward_compiled(self, x):
        """What Dynamo traces: it cannot look at memory, and its graph guards what the tensors are."""
        seen, options = self.gemmtune_weight, self.gemmtune_options
        weight, bias = self._parameters.get("weight"), self._parameters.get("bias")
        if self.gemmtune_dropped:
            if "bias" not in self._parameters or x.dtype is not seen.dtype or torch.is_autocast_enabled(seen.device):
                return self.forward_before(x)
            return _product(x, None, bias, seen.bits, seen.rows, seen.layout, options.dependent)
        if (weight is None or "bias" not in self._parameters or why_not(weight) is not None or x.dtype is not weight.dtype or torch.is_autocast_enabled(weight.device.type)
                or options.gradients and _gradients.followed(x, weight, bias)):
            return super().forward(x)
        matrix = self.matrix(weight)
        if not self.gemmtune_packs:
            if self.why_not_plain(weight) is not None:
                return super().forward(x)
            return _product(x, matrix, bias, None, 0, 0, options.dependent)
        return ops.patched_linear(x, [matrix], [] if bias is None else [bias], self.gemmtune_number, matrix.shape[0])

    def run_compiled(self, x, weights, biases):
        """The product, or None if the graph's weight is not the layer's."""
        weight = self._parameters.get("weight")
        if weight is None or weight.data_ptr() != weights[0].data_ptr():
            return None
        seen = self.gemmtune_weight
        if not seen.is_still(weight):
            seen = self.look_at_weight()
        if seen.bits is None:
            return None
        return _product(x, None, biases[0] if biases else None, seen.bits, seen.rows, seen.layout, self.gemmtune_options.dependent)

    def start(self, packs):
        """Packs the weight, for the first time. packs: of pack_once()."""
        weight, options = self._parameters["weight"], self.gemmtune_options
        self.gemmtune_number = _number(self)
        packed = pack_once(packs, weight, self.matrix(weight.detach()), options.layout) if options.pack and self.packs_alone() else None
        if packed is None or options.keep_weight:
            self.see(_Weight(weight, packed))
            return
        _operators.unpack(packed)  # before the plain one is dropped: a layout without an inverse is refused here
        self.weight = None
        self.see(_Weight.dropped(packed, weight.dtype, weight.device.type))

    def see(self, seen):
        self.gemmtune_weight = seen
        self.gemmtune_packs = seen.bits is not None
        self.gemmtune_dropped = seen.bits is not None and seen.tensor is _nothing

    def look_at_weight(self, again=False):
        """The weight as it runs from now on. again: pack it although nothing has changed."""
        with _lock:
            weight, before, options = self._parameters.get("weight"), self.gemmtune_weight, self.gemmtune_options
            if weight is None:
                seen = before if self.gemmtune_dropped and "weight" in self._parameters else _Weight(None, why=computed)
            elif _stands_for_another(weight):
                return _Weight.plain(weight)
            elif (why := why_not(weight)) is not None:
                seen = _Weight(weight, why=why)
            elif weight.is_cuda and torch.cuda.is_current_stream_capturing():
                return _Weight.plain(weight)
            elif not again and before.is_still(weight):
                return before  # another thread has looked
            else:
                _require_memory(weight)
                packs = options.pack and self.packs_alone() and (again or options.pack_again or before.why is not None)
                packed = _pack(self.matrix(weight.detach()), options.layout) if packs else None
                seen = _Weight(weight, packed, self.why_not_plain(weight) if packed is None else None)
            self.see(seen)
            return seen

    def packs_alone(self):
        return True

    @staticmethod
    def why_not_plain(weight):
        """Why the operators take a weight of this layer well only packed, or None."""
        return None

    def random_rows(self, m):
        seen, weight = self.gemmtune_weight, self._parameters.get("weight")
        if self.gemmtune_dropped:
            return _operators.random_rows(m, seen.packed.k, seen.dtype, seen.bits.device)
        return _operators.random_rows(m, self.matrix(weight).shape[1], weight.dtype, weight.device)

    def plain_weight(self):
        """The weight that was dropped."""
        return nn.Parameter(self.matrix(_operators.unpack(self.gemmtune_weight.packed)).contiguous(), requires_grad=False)

    def plain_state(self, state):
        return {**state, "_parameters": {**state["_parameters"], "weight": self.plain_weight()}} if self.gemmtune_dropped else state


class TransposedLinear(Linear):
    """Of a layer with a weight [K, N]."""

    def forward(self, x):
        return super().forward(x)

    @staticmethod
    def matrix(weight):
        return weight.t()

    @staticmethod
    def why_not_plain(weight):
        if weight.device.type == "cpu":
            return "its weight is [K, N], which a CPU runs well only packed, and the tuned files have no packed row of it"
        return None


class MergedLinear(Linear):
    """A member of a group."""

    def runs_alone(self, x):
        group = self.gemmtune_group
        return (x.dtype is not group.dtype or torch.is_autocast_enabled(group.device) or x.numel() > group.max_rows * x.shape[-1]
                or self.gemmtune_options.gradients and _gradients.followed(x, self._parameters.get("weight"), self._parameters.get("bias")))

    def packs_alone(self):
        return False

    def forward(self, input):
        y = None if self.runs_alone(input) else self.gemmtune_group.columns(input, self.gemmtune_member)
        return super().forward(input) if y is None else y


class Group:
    """Linear layers of one input whose weights lie one behind the other: one product for all. `held`: (x, y, members that
    still want their columns), replaced as a whole, so that threads see one call's. `apart`: a weight has left its place, so that each
    layer runs alone."""

    def __init__(self, members, options, max_rows):
        self.members, self.options, self.max_rows = members, options, max_rows
        self.number = _number(self)
        self._merge()

    def refresh(self):
        """Merges the weights if they are apart, and packs them, as they are now."""
        kinds = [None if (weight := one._parameters.get("weight")) is None or "bias" not in one._parameters or why_not(weight) is not None else
                 (weight.shape[1], weight.dtype, weight.device, one._parameters["bias"] is None) for one in self.members]
        if not self.apart:
            self._see(self.options.pack)
        elif None not in kinds and len(set(kinds)) == 1:
            self._merge()

    def _merge(self):
        """Puts the weights, and the biases, one behind the other."""
        members = self.members
        self.weight = torch.cat([one.weight.detach() for one in members])
        self.bias = torch.cat([one.bias.detach() for one in members]) if members[0].bias is not None else None
        self.rows, first = [], 0
        for one in members:
            self.rows.append((first, first + one.weight.shape[0]))
            first += one.weight.shape[0]
            one.weight.data = self.weight[slice(*self.rows[-1])]
            if self.bias is not None:
                one.bias.data = self.bias[slice(*self.rows[-1])]
        self.apart, self.dtype, self.device = False, self.weight.dtype, self.weight.device.type
        self._see(self.options.pack)

    def _see(self, packs):
        packed = _pack(self.weight, self.options.layout) if packs else None
        self.bits, self.layout = (packed.bits, packed.layout) if packed is not None else (None, 0)
        self.packs = packed is not None
        self.seen = [(_Seen(one.weight, packed is not None), _Seen(one.bias, False) if self.bias is not None else None) for one in self.members]
        self.held = (None, None, frozenset())

    def _is_still(self, member):
        weight, bias = self.seen[member]
        parameters = self.members[member]._parameters
        if "bias" not in parameters or not weight.is_still(parameters.get("weight")):
            return False
        return bias.is_still(parameters["bias"]) if bias is not None else parameters["bias"] is None

    def is_together(self):
        """Whether the weights are where they were put. Changed values are packed again, or not."""
        if self.apart:
            return False
        if all(map(self._is_still, range(len(self.members)))):
            return True
        with _lock:
            for seen, one in zip(self.seen, self.members):
                for tensor, now in zip(seen, (one._parameters.get("weight"), one._parameters.get("bias", _computed))):
                    if tensor is None and now is None or tensor is not None and tensor.tensor() is now and now.data_ptr() == tensor.pointer:
                        continue
                    # Another tensor can be there for one call (torch.func.functional_call, tracing); a parameter stays.
                    if now is None or now is _computed or type(now) is nn.Parameter:
                        self.apart = True
                        self.weight = self.bias = self.bits = None
                        self.packs = False
                    self.held = (None, None, frozenset())
                    return False
            self._see(self.options.pack_again and self.bits is not None)
            return True

    def _whole(self, x):
        return _product(x, self.weight, self.bias, self.bits, self.weight.shape[0], self.layout, self.options.dependent)

    def product(self, x):
        """The product of all, or None if each layer runs alone."""
        if _is_compiling():
            weights = [one._parameters.get("weight") for one in self.members]
            biases = [one._parameters.get("bias") for one in self.members]
            if self.apart or any("bias" not in one._parameters for one in self.members) or any(weight is None or why_not(weight) is not None for weight in weights):
                return None
            biases, columns = [] if self.bias is None else biases, self.weight.shape[0]
            if self.packs:
                return ops.patched_linear(x, weights, biases, self.number, columns)
            return ops.merged_linear(x, weights, biases, columns, self.options.dependent)
        return self._whole(x) if self.is_together() else None

    def run_compiled(self, x, weights, biases):
        """The product, or None if the graph's weights are not where the group has put them."""
        if not self.is_together() or any(one.weight.data_ptr() != weight.data_ptr() for one, weight in zip(self.members, weights)):
            return None
        return self._whole(x)

    def columns(self, x, member):
        """Of one member, or None if each layer runs alone."""
        first, last = self.rows[member]
        held, y, waiting = self.held
        if held is not x or member not in waiting or not (_is_compiling() or self._is_still(member)):
            y, waiting = self.product(x), frozenset(range(len(self.rows)))
            if y is None:
                return None
        waiting = waiting - {member}
        self.held = (x, y, waiting) if waiting else (None, None, waiting)
        return y[..., first:last]
