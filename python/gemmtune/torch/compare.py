"""compare(): is a patched model faster here, and by how much?"""

import collections.abc
import random
import statistics
import time
from math import comb
from typing import NamedTuple

import torch

from .. import errors
from .patch import patch


class Comparison(NamedTuple):
    """What compare() measured. Seconds are medians of a call; `speedup` is the median of before / after, round by round, and `low` and
    `high` are its interval (95 %). `difference`: the largest difference of the results, over the largest value before.
    `tokens`: of a call; None where the inputs do not say."""

    before: float
    after: float
    speedup: float
    low: float
    high: float
    rounds: int
    difference: float
    tokens: int | None

    def __str__(self):
        verdict = "faster" if self.low > 1 else "slower" if self.high < 1 else "not proven faster or slower"
        text = (f"before {1e3 * self.before:.3f} ms, after {1e3 * self.after:.3f} ms: {self.speedup:.3f}x "
                f"(95 %: {self.low:.3f} to {self.high:.3f} in {self.rounds} rounds), {verdict}")
        if self.tokens:
            text += f"; {self.tokens / self.before:.1f} to {self.tokens / self.after:.1f} tokens/s"
        return f"{text}; the results differ by {100 * self.difference:.2g} % of the largest"


def _median_interval(values, confidence=0.95):
    """The order statistics around the median that hold the true one with this confidence, by the binomial distribution."""
    ordered, n = sorted(values), len(values)
    inside, low = 0.0, n // 2
    for low in range((n - 1) // 2, -1, -1):
        inside = sum(comb(n, i) for i in range(low + 1, n - low)) / 2**n
        if inside >= confidence:
            break
    return ordered[low], ordered[n - 1 - low]


def _call(model, inputs):
    if isinstance(inputs, collections.abc.Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _tensors(result):
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, collections.abc.Mapping):
        result = list(result.values())
    return [one for part in result for one in _tensors(part)] if isinstance(result, (tuple, list)) else []


def _tokens(inputs):
    """Of whole numbers [batch, tokens]: all of them."""
    given = list(inputs.values()) if isinstance(inputs, collections.abc.Mapping) else inputs if isinstance(inputs, (tuple, list)) else [inputs]
    ids = [one for one in given if isinstance(one, torch.Tensor) and one.dtype in (torch.int32, torch.int64) and one.dim() == 2]
    return ids[0].numel() if ids else None


def _difference(before, after):
    pairs = [(a.float(), b.float()) for a, b in zip(_tensors(before), _tensors(after)) if a.is_floating_point() and a.shape == b.shape]
    largest = max((float(a.abs().max()) for a, _ in pairs if a.numel()), default=0.0)
    return max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0) / max(largest, 1e-30)


def compare(model, inputs, rounds=21, warmup=3, tokens=None, patched=None, **options):
    """Times the model's call with and without gemmtune's kernels, in turns and in random order; answers a Comparison, which prints as
    one line.

    inputs: a tensor, a tuple of positional or a dictionary of named ones. patched: the Patch of a model that is patched already
    (it stays so); None: patch(model, **options), undone at the end. tokens: of a call, for tokens/s; None: those of a
    whole-number input [batch, tokens]. A layer whose plain weight was dropped (keep_weight=False) has no "before"."""
    if rounds < 6:
        raise errors.InvalidArgument(f"rounds is {rounds}, expected at least 6: fewer have no interval of 95 %")
    own = patch(model, **options) if patched is None else patched
    synchronize = torch.cuda.synchronize if any(one.is_cuda for one in model.parameters()) else lambda: None

    def timed():
        synchronize()
        begin = time.perf_counter()
        result = _call(model, inputs)
        synchronize()
        return time.perf_counter() - begin, result

    times = {"before": [], "after": []}
    results = {}
    try:
        with torch.inference_mode():
            for number in range(warmup + rounds):
                for which in random.sample(("before", "after"), 2):
                    if which == "after":
                        seconds, results[which] = timed()
                    else:
                        with own.paused():
                            seconds, results[which] = timed()
                    if number >= warmup:
                        times[which].append(seconds)
            difference = _difference(results["before"], results["after"])
    finally:
        if patched is None:
            own.undo()
    ratios = [before / after for before, after in zip(times["before"], times["after"])]
    low, high = _median_interval(ratios)
    return Comparison(statistics.median(times["before"]), statistics.median(times["after"]), statistics.median(ratios), low, high, rounds,
                      difference, _tokens(inputs) if tokens is None else tokens)
