"""check_invariant(): whether the layers of a model give a row the same bits in every batch, as they run now."""

import torch
from torch import nn

_rows = 6  # whose bits count
_types = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Invariance:
    """`invariant`: names of layers whose rows had the same bits at every M; `different`: the others, with the first M, row and
    element that differ; `skipped`: those that could not be run, with the reason. True if all layers are invariant."""

    def __init__(self):
        self.invariant, self.different, self.skipped = [], {}, {}

    def __bool__(self):
        return bool(self.invariant) and not self.different and not self.skipped

    def __str__(self):
        total = len(self.invariant) + len(self.different) + len(self.skipped)
        lines = [f"{len(self.invariant)} of {total} layers are batch-invariant"]
        lines += [f"{name}: {text}" for name, text in self.different.items()]
        lines += [f"{name}: not checked: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)

    def __repr__(self):
        return f"<gemmtune: {len(self.invariant)} layers are batch-invariant, {len(self.different)} are not; print() says which>"


def _width(module):
    """The columns of x; None for a module that is no linear layer."""
    if isinstance(module, nn.Linear):
        return module.in_features
    kind = type(module)
    if "Conv1D" in (kind.__name__, *(base.__name__ for base in kind.__mro__)) and getattr(module, "nx", None):
        return module.nx  # transformers'
    return None


def _batches(m):
    """Pairs of a batch, as indices of rows, and the position of each probe row in it: in order, and from the end on. Indices from
    _rows on are neighbours."""
    for first in range(0, _rows, m):
        order = [first + i if first + i < _rows else _rows + i % _rows for i in range(m)]
        for rows in (order, order[::-1]):
            yield rows, {row: at for at, row in enumerate(rows) if row < _rows}


def _bits(y):
    return y.contiguous().view(_types[y.element_size()])


def _first_difference(module, x, Ms):
    """None, or where a row has other bits than at the first M."""
    seen = {}  # probe row -> (bits, M, position)
    for m in Ms:
        for rows, places in _batches(m):
            y = _bits(module(x[rows]))
            for row, at in places.items():
                known, other_m, other_at = seen.setdefault(row, (y[at], m, at))
                if torch.equal(known, y[at]):
                    continue
                element = int((known != y[at]).nonzero()[0])
                return (f"M = {m}, row {at}, element {element} has the bits {int(y[at][element]):#x}, and {int(known[element]):#x} in row "
                        f"{other_at} of M = {other_m}")
    return None


def check_invariant(model, Ms=(1, 2, 7, 16, 33, 128), seed=1):
    """Runs every linear layer of the model, patched or not, on random rows at each of these M, in two orders and beside other
    rows, and compares the bits of each row with those at the first M. Returns an Invariance."""
    Ms = sorted(set(Ms))
    if not Ms or Ms[0] < 1:
        raise ValueError(f"Ms is {Ms}, expected numbers of rows from 1 on")
    found = Invariance()
    for name, module in model.named_modules():
        width = _width(module)
        if width is None:
            continue
        parameter = next(module.parameters(), None)
        if parameter is None or not parameter.is_floating_point():
            found.skipped[name] = "it has no weight of a float type"
            continue
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(2 * _rows, width, generator=generator)
        x[_rows:] *= torch.tensor([1.0, 512, 0, 1, 64, 1])[:, None]
        try:
            with torch.inference_mode():
                difference = _first_difference(module, x.to(parameter.dtype).to(parameter.device), Ms)
        except (RuntimeError, TypeError) as error:
            found.skipped[name] = str(error).split("\n", 1)[0]
            continue
        if difference is None:
            found.invariant.append(name)
        else:
            found.different[name] = difference
    return found
