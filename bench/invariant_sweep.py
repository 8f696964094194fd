#!/usr/bin/env python3
"""Whether tables of `tune --invariant rows` give a row of x the same bits of y in every batch: a sweep over M, with PyTorch's tensors on a CPU or a GPU.

For each format and (N, K) eight rows of x are multiplied alone (M = 1). Then every M to --every and --drawn further M to --most are run: the rows
stand at drawn positions among other rows, of which some are large, zero, infinite or NaN, and their bits are compared with those of M = 1. The
rows differ in kind, and the products of one of them cancel, so that y has the rounding of its sums alone. On a GPU all M of a case are captured
into one graph; the first --eager cases of a format run without a graph too, where each M is verified first. A line for each case says how many M and elements were compared, how many bits differed, where first, and which kernels ran.

Tables: --tables FOLDER has FORMAT.csv, or is filled: the first --tune sizes of a format are tuned at the M of --m, and the rows of its other sizes name
the kernels of the tuned ones. After --seconds no case is begun; those that were not reached are named. Exit code 1 if a bit differs or a case fails.

Usage: invariant_sweep.py [--device cpu] [--formats bf16,…] [--every 256] [--drawn 200] [--most M] [--tables FOLDER] [--tune 1] [--m 1,16,128]
                          [--eager 1] [--seconds N] [--csv FILE]"""

import argparse
import contextlib
import csv
import dataclasses
import os
import pathlib
import random
import sys
import tempfile
import time

import torch

import gemmtune
import gemmtune.torch as gt
from gemmtune import operations

PROBES = 8  # rows whose bits are compared
CANCELLING = 5  # the one whose products cancel
SHIFTS = 64  # where a batch may begin in the pool of rows
EXPERTS, TOPK = 16, 4

# A third is no multiple of 128; the first is tuned.
CPU_SIZES = [(200, 544), (360, 736), (131, 1056), (640, 736), (88, 288), (392, 416), (264, 1824), (520, 1056),
             (128, 128), (128, 512), (128, 1024), (256, 256), (256, 512), (256, 1024), (256, 2048), (384, 384), (384, 768), (512, 256),
             (512, 512), (512, 1024), (640, 640), (768, 256), (768, 768), (1024, 384)]
GPU_SIZES = [(1544, 2080), (2880, 2880), (1031, 4128), (5120, 2880), (712, 1056), (3208, 1568), (2112, 7200), (4104, 4064),
             (512, 512), (1024, 1024), (1024, 4096), (1280, 8192), (1536, 2048), (2048, 512), (2048, 2048), (2048, 8192), (2560, 4096), (3072, 1024),
             (4096, 1536), (4096, 4096), (6144, 4096), (7168, 2048), (8192, 1024), (4096, 14336)]
CPU_MIXTURES = [(96, 160), (64, 128), (160, 288), (128, 256)]  # inter_dim, model_dim
GPU_MIXTURES = [(704, 1056), (768, 2048), (2880, 2880), (256, 7168)]

# What of a GPU's families is searched: few kernels, because compiling them takes longer than the sweep.
_WGMMA = {"wgmma": {"swap": [0, 1], "bm": [64, 128], "bn": [16, 64, 128], "pp": [0], "cm": [1], "cn": [1], "csk": [1], "smem": [226]},
          "skinny": {"csk": [1], "smem": [110]}}
_FOUR_BIT = {"mxfp4": {"wg": [1, 2], "bm": [64, 128], "mma": [0], "bk": [256], "csk": [1], "smem": [110, 220]}}
_EXPERTS = {"wgmma_moe": {"bm": [16, 64], "bn": [64, 128], "cm": [1], "smem": [226]}}


def bits_of(tensor):
    """The same memory as integers."""
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[tensor.element_size()])


class Data:
    """What cases are made of: rows and weights of a format, from a seed."""

    def __init__(self, device, n, k, rows, seed):
        self.device, self.n, self.k, self.rows = device, n, k, rows
        self.generator = torch.Generator(device=device).manual_seed(seed)
        # Between columns of K whose products cancel, in blocks of scales; 0: there are none. Not half of K if another is there: the halves of a split
        # would cancel as a whole.
        self.distance = (k * 3 // 8 // 128 or k // 2 // 128) * 128
        kinds = torch.randint(0, 8, (rows,), generator=self.generator, device=device)
        kinds[-PROBES:] = 0
        self.kinds = kinds

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def whole(self, low, high, *shape, dtype=torch.uint8):
        return torch.randint(low, high, shape, generator=self.generator, device=self.device, dtype=dtype)

    def uniform(self, *shape):
        return torch.rand(*shape, generator=self.generator, device=self.device) + 0.5

    def x(self, dtype):
        """All rows, the probes at the end."""
        x = self.normal(self.rows, self.k)
        for kind, value in ((4, 512.0), (5, 0.0), (6, float("nan")), (7, float("inf"))):
            chosen = self.kinds == kind
            x[chosen] = x[chosen] * value if kind < 6 else torch.where(x[chosen] > 1, value, x[chosen])
        probes = x[-PROBES:]
        columns = torch.arange(self.k, device=self.device)
        probes[1].abs_()
        probes[2] *= 2.0 ** (columns % 13 - 6)
        probes[3, -67:] *= 256
        probes[4, ::2] *= 128
        probes[6] /= 64
        if self.distance:
            probes[CANCELLING, self.distance:2 * self.distance] = -probes[CANCELLING, :self.distance]
            probes[CANCELLING, 2 * self.distance:] = 0
        if dtype == torch.int8:
            return (x.nan_to_num(0, 1e3, -1e3) * 32).round().clamp(-128, 127).to(dtype)
        return x.clamp(-448, 448).to(dtype) if dtype.itemsize == 1 else x.to(dtype)

    def row_scales(self, columns):
        """A float32 a row and block of K; those of some rows are infinite or NaN."""
        scale = self.uniform(self.rows, columns)
        scale[self.kinds == 2] = float("inf")
        scale[self.kinds == 3] = float("nan")
        if self.distance and columns > 1:
            blocks = self.distance // 128
            scale[self.rows - PROBES + CANCELLING, blocks:2 * blocks] = scale[self.rows - PROBES + CANCELLING, :blocks]
        return scale

    def mirrored(self, w, per_element=1):
        """The weight (or its scales) with columns that repeat, so that products of that probe cancel. per_element: columns of w for one of K."""
        count = round(self.distance * per_element)
        w[..., count:2 * count] = w[..., :count]
        return w

    def weight(self, dtype):
        w = self.normal(self.n, self.k)
        if dtype == torch.int8:
            return self.mirrored((w * 32).round().clamp(-127, 127).to(dtype))
        return self.mirrored((w / self.k ** 0.5 if dtype.itemsize > 1 else w).to(dtype))

    def four_bit(self, scale, columns_per_element):
        """Bytes with two elements each, and their scales, [N, K · columns_per_element]."""
        return self.mirrored(self.whole(0, 256, self.n, self.k // 2), 1 / 2), self.mirrored(scale, columns_per_element)


@dataclasses.dataclass
class Operands:
    """rows: tensors with a row for each row of x; call(*rows, out) runs the operation on as many as it is given."""
    rows: list
    call: object
    problem: object  # M -> the problem of Context.plan()
    columns: int
    y_type: torch.dtype


@dataclasses.dataclass
class Form:
    operation: str
    make: object  # Data -> Operands
    words: dict  # options of the run that tunes
    columns: dict  # of a shape to tune, beside its sizes
    spaces: dict  # of a GPU
    is_mixture: bool = False


def plain(type, dtype):
    def make(data):
        w = data.weight(dtype)
        return Operands([data.x(dtype)], lambda x, out: gt.linear(x, w, out=out), lambda m: operations.problem(m, data.n, data.k, x_type=type),
                        data.n, dtype)
    return Form("a16w16", make, {"indtype": type}, {}, _WGMMA)


def scaled_rows(type, word, dtype):
    def make(data):
        w, w_scale = data.weight(dtype), data.uniform(data.n) / data.k
        return Operands([data.x(dtype), data.row_scales(1)], lambda x, x_scale, out: gt.a8w8(x, w, x_scale, w_scale, out=out),
                        lambda m: operations.problem(m, data.n, data.k, operation="a8w8", x_type=type, y_type="bf16"), data.n, torch.bfloat16)
    return Form("a8w8", make, {"indtype": word}, {}, _WGMMA)


def make_blocks(data):
    dtype = torch.float8_e4m3fn
    w, blocks = data.weight(dtype), -(-data.k // 128)
    w_scale = data.mirrored(data.uniform(-(-data.n // 128), blocks), 1 / 128)
    return Operands([data.x(dtype), data.row_scales(blocks)], lambda x, x_scale, out: gt.a8w8_blockscale(x, w, x_scale, w_scale, out=out),
                    lambda m: operations.problem(m, data.n, data.k, operation="a8w8_blockscale", x_type="f8_e4m3fn", y_type="bf16"), data.n,
                    torch.bfloat16)


def four_bit(operation, block, scales, further=lambda data: (), **problem):
    """block: elements of K that share a scale; scales(data, columns) -> those of the weight; further(data) -> operands between them and the bias."""
    def make(data):
        w, w_scale = data.four_bit(scales(data, data.k // block), 1 / block)
        rest, run = further(data), getattr(gt, operation)
        return Operands([data.x(torch.bfloat16)], lambda x, out: run(x, w, w_scale, *rest, out=out),
                        lambda m: operations.problem(m, data.n, data.k, operation=operation, x_type="bf16", **problem), data.n, torch.bfloat16)
    return Form(operation, make, {}, problem, _FOUR_BIT)


def mixture(quant_type, q_type, word, weights, spaces):
    """weights(data, rows, columns) -> the experts' weights and their scales, which may be None."""
    def make(data):
        inter, model = data.n, data.k
        (w1, w1_scale), (w2, w2_scale) = weights(data, 2 * inter, model), weights(data, model, inter)
        logits = data.normal(data.rows, EXPERTS)
        topk_weights, topk_ids = torch.softmax(logits, 1).topk(TOPK)
        rows = [data.x(torch.bfloat16), topk_ids.to(torch.int32), topk_weights.contiguous()]

        def call(x, ids, weights, out):
            gt.fused_moe(x, w1, w2, ids, weights, out=out, quant_type=quant_type, w1_scale=w1_scale, w2_scale=w2_scale)
        return Operands(rows, call, lambda m: operations.mixture_problem(m, inter, model, experts=EXPERTS, topk=TOPK, x_type="bf16", w_type=word,
                                                                         y_type="bf16", quant_type=quant_type), model, torch.bfloat16)
    columns = {"expert": EXPERTS, "topk": TOPK, "act_type": "Silu", "dtype": "bf16", "q_dtype_a": "bf16", "q_dtype_w": q_type[0], "q_type": q_type[1],
               "use_g1u1": 1, "doweight_stage1": 0}
    return Form("fused_moe", make, {}, columns, spaces, True)


def wide_experts(data, rows, columns):
    w = torch.empty(EXPERTS, rows, columns, dtype=torch.bfloat16, device=data.device)
    for one in w:
        one.copy_(data.normal(rows, columns) / columns ** 0.5)
    return w, None


def four_bit_experts(data, rows, columns):
    middle = 125 - round(columns.bit_length() / 2)
    return (data.whole(0, 256, EXPERTS, rows, columns // 2), data.whole(middle - 1, middle + 2, EXPERTS, rows, columns // 32))


# In the order of importance: a limit of time leaves out the last ones.
FORMS = {
    "bf16": plain("bf16", torch.bfloat16),
    "fp8 rows": scaled_rows("f8_e4m3fn", "fp8", torch.float8_e4m3fn),
    "MXFP4 weights": four_bit("a16w4", 32, lambda data, columns: data.whole(118, 124, data.n, columns)),
    "bf16 experts": mixture("none", ("bf16", "No"), "bf16", wide_experts, _EXPERTS),
    "fp8 blocks": Form("a8w8_blockscale", make_blocks, {}, {}, _WGMMA),
    "MXFP4 experts": mixture("per_1x32", ("fp4", "per_1x32"), "f4_e2m1", four_bit_experts, _EXPERTS),
    "fp16": plain("f16", torch.float16),
    "int8 rows": scaled_rows("i8", "int8", torch.int8),
    "NVFP4 weights": four_bit("a16w4_nvfp4", 16, lambda data, columns: data.uniform(data.n, columns).to(torch.float8_e4m3fn).view(torch.uint8),
                              lambda data: (torch.tensor([data.k ** -0.5], device=data.device),)),
    "int4 weights": four_bit("a16w4_int4", 32, lambda data, columns: (data.uniform(data.n, columns) / data.k ** 0.5).to(torch.bfloat16),
                             lambda data: (None,), group=32),
}


# ---- tables --------------------------------------------------------------------------------------------------------------------


def sizes_of(form, on_gpu):
    if form.is_mixture:
        return GPU_MIXTURES if on_gpu else CPU_MIXTURES
    return GPU_SIZES if on_gpu else CPU_SIZES


def size_columns(form):
    return ("inter_dim", "model_dim") if form.is_mixture else ("N", "K")


def search_space(spaces, folder):
    """The file of a GPU's spaces, in YAML."""
    path = folder / "space.yaml"
    path.write_text("".join(f"{family}:\n  parameters: {{{', '.join(f'{key}: {values}' for key, values in space.items())}}}\n"
                            for family, space in spaces.items()))
    return path


def tune(form, path, sizes, options):
    """Rows of these sizes. Raises gemmtune.errors.CommandFailed."""
    n, k = size_columns(form)
    m = "token" if form.is_mixture else "M"
    shapes = [{m: rows, n: size[0], k: size[1], **form.columns} for size in sizes for rows in options.m]
    words = form.words
    if options.on_gpu:
        words = {**words, "libtype": ",".join(form.spaces), "search_space": search_space(form.spaces, path.parent)}
    gemmtune.tune(shapes, path, op=form.operation, device=options.device, invariant="rows", warmup=1, iters=5, **words)


def write_rows(path, rows):
    """A CSV of dictionaries that all have the keys of the first."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def complete(form, path, sizes):
    """Sizes without rows get those of the first size that has some, with times in proportion: a row that is faster than the device can compute is
    never chosen."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    n, k = size_columns(form)
    here = {(int(row[n]), int(row[k])) for row in rows if row["bits"]}
    if not here:
        return
    tuned = next(size for size in sizes if size in here)
    copied = []
    for size in sizes:
        times = max(1, size[0] * size[1] / (tuned[0] * tuned[1]))
        copied += [{**row, n: size[0], k: size[1], "us": float(row["us"]) * times} for row in rows
                   if size not in here and (int(row[n]), int(row[k])) == tuned]
    write_rows(path, rows + copied)


def table_of(name, form, sizes, options):
    """The file of a format, tuned and completed if it is not there."""
    path = pathlib.Path(options.tables) / f"{name.replace(' ', '_')}.csv"
    if not path.exists():
        tune(form, path, sizes[:options.tune], options)
        complete(form, path, sizes)
    return path


# ---- the comparison -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Batch:
    """Probe probes[i] stands at row positions[i] of a batch of m rows, which begins at row `first` of the pool."""
    m: int
    first: int
    probes: list
    positions: list


def batches_of(options, seed):
    """The probes alone first, then every M and those that are drawn."""
    draw = random.Random(seed)
    batches = [Batch(1, draw.randrange(SHIFTS), [probe], [0]) for probe in range(PROBES)]
    for m in [*range(2, options.every + 1), *sorted(draw.sample(range(options.every + 1, options.most + 1), options.drawn))]:
        probes = [(m + i) % PROBES for i in range(min(m, PROBES))]
        batches.append(Batch(m, draw.randrange(SHIFTS), probes, draw.sample(range(m), len(probes))))
    return batches


class Case:
    """One (N, K) of a format: its operands, and what its batches gave."""

    def __init__(self, form, n, k, options):
        self.options, self.batches = options, batches_of(options, n * 31 + k)
        pool_rows = options.most + SHIFTS
        self.operands = form.make(Data(options.device, n, k, pool_rows + PROBES, n * 31 + k))
        self.dtypes = [rows.dtype for rows in self.operands.rows]
        whole = [bits_of(rows) for rows in self.operands.rows]
        self.pools = [rows[:pool_rows].clone() for rows in whole]
        self.neighbours = [rows[:pool_rows] for rows in whole]
        self.probes = [rows[pool_rows:] for rows in whole]
        columns = self.operands.columns
        self.y = torch.empty(options.most, columns, dtype=self.operands.y_type, device=options.device)
        self.expected = torch.zeros(PROBES, columns, dtype=torch.int16, device=options.device)
        self.poison = torch.full((PROBES, columns), -1, dtype=torch.int16, device=options.device)
        self.other = torch.zeros(len(self.batches), PROBES, dtype=torch.int64, device=options.device)
        count = [len(batch.probes) for batch in self.batches]
        chosen = torch.tensor([batch.probes + [0] * (PROBES - n) for batch, n in zip(self.batches, count)], device=options.device)
        places = torch.tensor([batch.positions + [0] * (PROBES - n) for batch, n in zip(self.batches, count)], device=options.device)
        begins = torch.tensor([[batch.first] for batch in self.batches], device=options.device)
        self.chosen = [row[:n] for row, n in zip(chosen, count)]
        self.places = [row[:n] for row, n in zip(places, count)]
        self.in_pool = [row[:n] for row, n in zip(places + begins, count)]

    def bits(self, i):
        """Of the probes of batch i."""
        batch, at = self.batches[i], self.in_pool[i]
        for pool, probes in zip(self.pools, self.probes):
            pool.index_copy_(0, at, probes.index_select(0, self.chosen[i]))
        out = self.y[:batch.m]
        bits_of(out).index_copy_(0, self.places[i], self.poison[:len(batch.probes)])
        self.operands.call(*(pool[batch.first:batch.first + batch.m].view(dtype) for pool, dtype in zip(self.pools, self.dtypes)), out=out)
        for pool, neighbours in zip(self.pools, self.neighbours):
            pool.index_copy_(0, at, neighbours.index_select(0, at))
        return bits_of(out).index_select(0, self.places[i])

    def compare(self, indices):
        for i in indices:
            torch.sum(self.bits(i) != self.expected.index_select(0, self.chosen[i]), 1, out=self.other[i, :len(self.batches[i].probes)])

    def plan(self, context):
        """Kernel -> the M that it serves; makes all plans."""
        kernels = {}
        for m in dict.fromkeys(batch.m for batch in self.batches):
            kernels.setdefault(context.plan(self.operands.problem(m))["kernelName"], []).append(m)
        return kernels

    def run(self, eager=False):
        """`eager`: on a GPU without a graph too."""
        for i in range(PROBES):
            self.expected.index_copy_(0, self.chosen[i], self.bits(i))
        rest = range(PROBES, len(self.batches))
        if not self.options.on_gpu:
            return self.compare(rest)
        self.compare(rest if eager else rest[:1])
        torch.cuda.synchronize()
        before = self.other.clone()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            graph.capture_begin()
            try:
                self.compare(rest)
            except BaseException:
                with contextlib.suppress(RuntimeError):  # that the capture failed
                    graph.capture_end()
                raise
            graph.capture_end()
        graph.replay()
        torch.cuda.synchronize()
        if eager:
            self.other += before

    def first_difference(self):
        other = self.other.nonzero()
        if not len(other):
            return ""
        i, probe = (int(value) for value in other[0])
        wrong = self.bits(i) != self.expected.index_select(0, self.chosen[i])
        columns = wrong[probe].nonzero()
        batch = self.batches[i]
        where = f"column {int(columns[0])}" if len(columns) else "not in another run"
        return f"M = {batch.m} row {batch.positions[probe]} (probe {batch.probes[probe]}) {where}"


def text_of(kernels):
    """"M from 1 skinny_…, from 46 tiled_…"."""
    return "M " + ", ".join(f"from {ms[0]} {kernel}" for kernel, ms in kernels.items())


def sweep(context, form, n, k, eager, options):
    case = Case(form, n, k, options)
    kernels = case.plan(context)
    case.run(eager)
    probes = sum(len(batch.probes) for batch in case.batches[PROBES:])
    return {"m": len(case.batches) - PROBES + 1, "elements": probes * case.operands.columns, "other_bits": int(case.other.sum()),
            "first": case.first_difference(), "kernels": text_of(kernels)}


def run_format(name, form, options, deadline, results):
    """Appends a result for each case that was reached."""
    sizes = sizes_of(form, options.on_gpu)
    begin = time.monotonic()
    path = table_of(name, form, sizes, options)
    tuning = time.monotonic() - begin
    context = gemmtune.use({form.operation: str(path)}, device=options.device)
    print(f"{name}: table {path}, {tuning:.1f} s", flush=True)
    shown = ""
    for index, (n, k) in enumerate(sizes):
        if deadline and time.monotonic() > deadline:
            return
        begin = time.monotonic()
        result = {"format": name, "n": n, "k": k, "m": 0, "elements": 0, "other_bits": 0, "first": "", "kernels": ""}
        try:
            result.update(sweep(context, form, n, k, index < options.eager, options))
        except (gemmtune.errors.Error, RuntimeError) as error:
            result["first"] = f"failed: {str(error).splitlines()[0][:300]}"
        result["seconds"] = round(time.monotonic() - begin, 2)
        results.append(result)
        if options.csv:
            write_rows(options.csv, results)
        if result["kernels"] not in ("", shown):
            shown = result["kernels"]
            print(f"  {shown}")
        print(f"  {n} x {k}: {result['m']} M, {result['elements']} elements, {result['other_bits']} other bits, {result['seconds']} s "
              f"{result['first']}", flush=True)
        if options.on_gpu:
            torch.cuda.empty_cache()


def report(results, options):
    """Prints a line for each format; returns the exit code."""
    failed = 0
    for name in options.formats:
        mine = [result for result in results if result["format"] == name]
        cases = len(sizes_of(FORMS[name], options.on_gpu))
        wrong = [result for result in mine if result["first"]]
        failed += len(wrong)
        print(f"{name}: {len(mine)} of {cases} (N, K), {sum(result['m'] for result in mine)} M, {sum(result['elements'] for result in mine):,} elements, "
              f"{sum(result['other_bits'] for result in mine)} other bits" + ("" if not wrong else f", {len(wrong)} cases failed or differ")
              + ("" if len(mine) == cases else f"; not reached: {cases - len(mine)}"))
    return 1 if failed or not results else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    parser.add_argument("--formats", type=lambda text: text.split(","), default=list(FORMS), help=", ".join(FORMS))
    parser.add_argument("--every", type=int, default=256)
    parser.add_argument("--drawn", type=int, default=200)
    parser.add_argument("--most", type=int, help="the largest M; default: 1024 on a CPU, 8192 on a GPU")
    parser.add_argument("--tables", help="folder; default: a temporary one")
    parser.add_argument("--tune", type=int, default=1)
    parser.add_argument("--m", type=lambda text: [int(word) for word in text.split(",")], default=[1, 16, 128])
    parser.add_argument("--eager", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--csv")
    options = parser.parse_args()
    options.on_gpu = options.device.startswith("cuda")
    options.most = options.most or (8192 if options.on_gpu else 1024)
    if options.on_gpu and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: there is no GPU")
    for name in options.formats:
        if name not in FORMS:
            parser.error(f"--formats: '{name}', expected some of {', '.join(FORMS)}")
    if options.every < 1 or options.drawn > options.most - options.every:
        parser.error(f"--drawn {options.drawn}: expected at most {options.most - options.every}, the M above --every {options.every} up to {options.most}")
    return options


def main():
    options = arguments()
    deadline = time.monotonic() + options.seconds if options.seconds else 0
    results = []
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        options.tables = options.tables or folder
        os.makedirs(options.tables, exist_ok=True)
        for name in options.formats:
            if deadline and time.monotonic() > deadline:
                break
            try:
                run_format(name, FORMS[name], options, deadline, results)
            except gemmtune.errors.Error as error:
                print(f"{name}: no table: {error}", flush=True)
    return report(results, options)


if __name__ == "__main__":
    sys.exit(main())
