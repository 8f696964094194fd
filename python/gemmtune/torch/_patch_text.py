"""What print(patched) says: layers, sizes with rows of a tuned file, and what was left alone."""

import csv
import os
from collections import Counter, defaultdict

from .. import contexts, errors
from . import _operators


def _rows_by_size(context):
    """{(N, K): numbers of rows} of this device in the tuned files of a16w16."""
    device = context.device()
    rows = Counter()
    for file in context.files():
        if file["operation"] != "a16w16" or file["own_rows"] == 0 or not os.path.isfile(file["path"]):
            continue
        with open(file["path"], newline="", encoding="utf-8", errors="replace") as lines:
            for row in csv.DictReader(line for line in lines if not line.startswith("#")):
                if row.get("gfx", device["gfx"]) == device["gfx"] and row.get("cu_num") == str(device["cu_num"]):
                    rows[row.get("N"), row.get("K")] += 1
    return rows


def _size(module):
    seen = module.gemmtune_weight
    if module.gemmtune_dropped:
        return str(seen.packed.n), str(seen.packed.k)
    n, k = module.matrix(module._parameters["weight"]).shape
    return str(n), str(k)


def _device(module):
    weight = module._parameters.get("weight")
    return _operators.device_of(module.gemmtune_weight.bits if weight is None else weight)


def text(patch):
    """Several lines. A file that cannot be read counts for nothing."""
    sizes = defaultdict(Counter)  # by device
    for module in patch._linears:
        sizes[_device(module)][_size(module)] += 1
    total = len(patch.layers) + len(patch.skipped)
    lines = [f"{len(patch.layers)} of {total} layers run gemmtune's kernels"
             f" ({len(patch.packed)} with a packed weight, {sum(map(len, patch.merged))} merged, {len(patch.gated)} gated)"]
    for device, counts in sizes.items():
        name = f"{device[0]}:{device[1]}" if device[0] != "cpu" else "cpu"
        try:
            context = contexts.current(device)
            rows = _rows_by_size(context)
        except (errors.Error, OSError) as error:
            lines.append(f"{name}: {error}")
            continue
        tuned = [size for size in counts if rows[size]]
        layers = sum(counts[size] for size in tuned)
        lines.append(f"{name}: {len(tuned)} of {len(counts)} sizes have rows of a tuned file ({layers} of {sum(counts.values())} layers); the others "
                     "run the default kernel")
        for n, k in counts:
            found = f"{rows[n, k]} rows" if rows[n, k] else "untuned"
            lines.append(f"  N={n} K={k}: {counts[n, k]} layer{'' if counts[n, k] == 1 else 's'}, {found}")
        named = [file for file in context.files() if file["operation"] == "a16w16" and (file["own_rows"] > 0 or file["named"])]
        lines += [f"  from {file['path']}: {file['own_rows']} rows of this device{'; ' + file['unused'] if file['unused'] else ''}" for file in named]
        if not named:
            lines.append("  no tuned file of this device is in use; gemmtune.use(FILE), or GEMMTUNE_CONFIG_A16W16")
    reasons = defaultdict(list)
    for name, why in patch.skipped.items():
        reasons[why].append(name)
    for why, names in reasons.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"left alone: {len(names)} ({shown}): {why}")
    return "\n".join(lines)
