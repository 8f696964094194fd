"""Models that are being loaded: vLLM prepares the weight of one layer after the other, and layers become ours one by one."""

from . import operators

recorded_eagerly = "shapes are recorded with --enforce-eager"


class Loading:
    """The layers of a model that is being loaded. sizes: M that vLLM will run; eager: no layer is compiled; invariant: the variable that asks for
    rows of a bit class, or None; linear_backend: what the user says, or "auto"."""

    def __init__(self, sizes, eager, invariant, linear_backend):
        self.sizes, self.eager, self.invariant, self.linear_backend = sizes, eager, invariant, linear_backend
        self.taken, self.left, self.known = [], [], {}  # (layer, constants of its graph); (layer, why)
        self.ahead = {}  # key -> one layer of those that are ours and run by gemmtune without vLLM's operator

    def why_not_asked(self):
        """Why no linear layer may become ours, or None."""
        return None if self.linear_backend == "auto" else f"--linear-backend is {self.linear_backend}"

    def why_left(self, device, key, problem):
        """Why tuned rows do not make a layer ours, or None. problem(m): the layer's at a size; key: equal for layers of equal problems."""
        if key not in self.known:
            self.known[key] = self._why_left(device, problem)
        return self.known[key]

    def _why_left(self, device, problem):
        row = next(filter(None, (operators.row_of(device, problem(m)) for m in self.sizes)), None)
        if row is None:
            return operators.no_row
        return operators.no_bit_class(self.invariant) if self.invariant and not row["bits"] else None


_loading = None


def begin(*what):
    """A Loading of these begins."""
    global _loading
    _loading = Loading(*what)


def current():
    """The Loading of the model whose weights are being loaded, or None."""
    return _loading


def end():
    """The Loading of the model whose weights are ready."""
    global _loading
    ended, _loading = _loading, None
    return ended


def safely(take, loading, layer, *arguments):
    """Whether take() made the layer ours. vLLM must load without us: a failure leaves the layer vLLM's."""
    try:
        return take(loading, layer, *arguments)
    except Exception as error:
        loading.left.append((layer, f"{type(error).__name__}: {error}"))
        return False
