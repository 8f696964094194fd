#!/usr/bin/env python3
"""A PyTorch program's pattern on a CPU: a parallel operation of PyTorch, then a linear layer in bf16 with cold weights; PyTorch's calls and
gemmtune's tuned rows in turns. Each has weights of its own: one that was read a moment before by another would come from the cache.
Only torch and plain exchange theirs after each round.

  torch      torch.nn.functional.linear
  prepacked  PyTorch's packed weight (mkldnn._linear_pointwise, which torch.compile calls with frozen weights)
  plain      torch.ops.gemmtune.linear
  packed     gemmtune.torch.linear with a weight in the layout that the rows chose (none: no packed row was chosen); with --untuned in
             that of an untuned call
  library    with --untuned: the same in oneDNN's layout, which oneDNN alone reads
  compiled   with --compile: torch.compile(mode="max-autotune") with a frozen weight, which chooses among oneDNN's packed kernel and its own

Printed for each size: microseconds of each layer, the operation before it subtracted (medians), and ratios, each the median of the
paired rounds with quartiles: torch over plain, torch over packed, prepacked, library and compiled over packed. Above 1 gemmtune is faster. `read` is the time in which
all of PyTorch's threads read as many bytes as the weight has (torch.max); kernels that prefetch may be faster.

Beside a load a call lasts some turns of the scheduler, whatever it runs. So with --load torch, plain and packed have one call each in a round, for
as many rounds as fit into --seconds. Times are means of the operation and the layer, and ratios those of the sums of all rounds, with the 95 % interval of a
bootstrap over rounds. `processor` is the time of all threads of the process in a call, waits in which they spin included.

Usage: in_a_program.py TUNED.csv|--untuned [MxNxK ...] [--rounds N] [--calls N] [--seconds S] [--load N|COMMAND] [--compile N] [--csv FILE]
  --list FILE  writes the sizes as a list for `gemmtune tune -i`, plain and packed, and ends
  --untuned    without a tuned file
  --rounds     11; with --load as many as --seconds (30) allow
  --load       what runs beside all rounds: N busy processes for each core (bench/busy_cores.py), or a command
  --compile    so many weights of each size under torch.compile, which takes some seconds for each
  --calls      of a layer in a round, in place of one with each of its weights (as many as are not in a cache)
  --seconds    of a size: no round begins later, if five have ended"""

import argparse
import csv
import math
import mmap
import random
import statistics
import sys
import time

from busy_cores import busy_cores
from cold_weights import copies, level_3_bytes

SIZES = ["1x2048x2048", "1x3072x2048", "1x16384x2048", "1x2048x8192", "4x2048x2048", "4x3072x2048", "4x16384x2048", "4x2048x8192",
         "16x2048x2048", "16x3072x2048", "16x16384x2048", "16x2048x8192", "64x2048x2048", "64x3072x2048", "64x2048x8192",  # Llama-3.2-1B
         "1x4096x1024", "4x6144x1024", "16x1024x3072", "1x9728x896", "64x4864x896"]  # Qwen3-0.6B, Qwen2.5-0.5B
HEADER = ["M", "N", "K", "bias", "dtype", "outdtype", "bpreshuffle"]


def write_list(path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for size in SIZES:
            for packed in (False, True):
                writer.writerow([*size.split("x"), False, "torch.bfloat16", "torch.bfloat16", packed])


def write(path, rows):
    """The table so far, so that a run that is stopped leaves one."""
    if not path:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def quartiles(values):
    ordered = sorted(values)
    return statistics.median(ordered), ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]


def of_sums(base, other, draws=2000):
    """sum(base) / sum(other) of paired rounds, and its 95 % interval by a bootstrap over rounds."""
    drawn = random.Random(1)
    rounds = list(zip(base, other))
    ratios = []
    for _ in range(draws):
        some = drawn.choices(rounds, k=len(rounds))
        ratios.append(sum(a for a, _ in some) / sum(b for _, b in some))
    ratios.sort()
    return sum(base) / sum(other), ratios[draws * 25 // 1000], ratios[draws * 975 // 1000 - 1]


def memory_rate():
    """Bytes per microsecond of memory that no cache holds, read by all of PyTorch's threads; huge pages where the system gives them."""
    import torch
    memory = mmap.mmap(-1, max(1 << 30, 2 * level_3_bytes()))
    memory.madvise(mmap.MADV_HUGEPAGE)
    words = torch.frombuffer(memory, dtype=torch.int64)
    words.fill_(1)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        words.max()
        times.append(time.perf_counter() - begin)
    return len(memory) / min(times) / 1e6


def prepack(weight, rows):
    import torch
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def compiled(weights, rows):
    """torch.compile's form of a linear layer, which freezes the weight and tries oneDNN's and its own kernels: one a weight."""
    import torch
    import torch._inductor.config
    torch._inductor.config.freezing = True
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10000
    layers = []
    for weight in weights:
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
        layer.weight.data = weight
        layers.append(torch.compile(layer.eval().requires_grad_(False), mode="max-autotune", dynamic=False, fullgraph=True))
        layers[-1](torch.randn(rows, weight.shape[1]).bfloat16())
    return layers


def measure(size, options):
    """{name: [microseconds of a round's layer]}, with a load of the operation and the layer; {name: those of all threads on processors}."""
    import torch
    import gemmtune.torch
    m, n, k = map(int, size.split("x"))
    pool = copies(n * k * 2, competitors=5 if options.untuned else 4)
    drawn = [torch.randn(n, k).bfloat16() * 0.02 for _ in range(2)]
    wanted = options.calls or (1 if options.load else pool)
    # Memory on small pages is not equally fast everywhere: torch and plain change places from round to round.
    places = weights, plain = [[drawn[i % 2].clone() for i in range(pool)] for _ in range(2)]
    x = torch.randn(m, k).bfloat16()
    calls = {"torch": lambda i: torch.nn.functional.linear(x, places[i // wanted % 2][i % pool]),
             "plain": lambda i: torch.ops.gemmtune.linear(x, places[1 - i // wanted % 2][i % pool], None)}
    packed = [gemmtune.torch.pack(weight, layout="any" if options.untuned else None) for weight in plain]
    if packed[0] is not None and packed[0] is not plain[0]:
        calls["packed"] = lambda i: gemmtune.torch.linear(x, packed[i])
    if options.untuned:
        library = [gemmtune.torch.pack(weight, layout="onednn") for weight in plain]
        calls["library"] = lambda i: gemmtune.torch.linear(x, library[i])
    prepacked = [prepack(weight, m) for weight in plain]
    calls["prepacked"] = lambda i: torch.ops.mkldnn._linear_pointwise(x, prepacked[i], None, "none", [], "")
    if options.compile:
        layers = compiled([weight.clone() for weight in weights[:options.compile]], m)
        calls["compiled"] = lambda i: layers[i](x)
    exact = calls["torch"](0)
    for name, call in calls.items():
        torch.testing.assert_close(call(0), exact, rtol=0.02, atol=0.02, msg=lambda text, name=name: f"{size}, {name}: {text}")
    if options.load:
        calls = {name: call for name, call in calls.items() if name in ("torch", "plain", "packed")}
    else:
        calls["nothing"] = lambda i: None
    before = torch.randn(64, 8192)  # large enough that PyTorch divides it among its threads
    times, processor = ({name: [] for name in calls} for _ in range(2))
    names = list(calls)
    # Of torch.compile, which takes seconds for each, there are fewer weights: they have one call each in a round.
    pools = {name: min(pool, options.compile) if name == "compiled" else pool for name in names}
    counts = {name: min(wanted, pools[name]) if name == "compiled" else wanted for name in names}
    with busy_cores(options.load):
        end = time.monotonic() + options.seconds
        for number in range(options.rounds + 2):
            if number >= 7 and time.monotonic() > end:
                break
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                call = calls[name]
                begin, used = time.perf_counter(), time.process_time()
                for i in range(number * counts[name], (number + 1) * counts[name]):
                    torch.nn.functional.silu(before)
                    call(i if name in ("torch", "plain") else i % pools[name])
                times[name].append((time.perf_counter() - begin) / counts[name] * 1e6)
                processor[name].append((time.process_time() - used) / counts[name] * 1e6)
    alone = 0.0 if options.load else statistics.median(times.pop("nothing")[2:])
    return ({name: [value - alone for value in values[2:]] for name, values in times.items()},
            {name: values[2:] for name, values in processor.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?")
    parser.add_argument("sizes", nargs="*", metavar="MxNxK")
    parser.add_argument("--untuned", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--calls", type=int, metavar="N")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--load", metavar="N|COMMAND")
    parser.add_argument("--compile", type=int, default=0, metavar="N")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--list", metavar="FILE")
    options = parser.parse_intermixed_args()
    options.rounds = options.rounds or (10 ** 9 if options.load else 11)
    options.seconds = options.seconds or (30 if options.load else math.inf)
    if options.list:
        write_list(options.list)
        return
    if options.untuned and options.table:
        options.sizes.insert(0, options.table)
    elif not options.table and not options.untuned:
        parser.error("expected a tuned file, or --untuned")
    import torch
    import gemmtune
    torch.set_grad_enabled(False)
    if not options.untuned:
        gemmtune.use(options.table)
    rate = memory_rate()
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, load: {options.load or 'none'}; memory is read at "
          f"{rate / 1e3:.1f} GB/s", flush=True)
    rows = []
    for size in options.sizes or SIZES:
        times, processor = measure(size, options)
        average, compared = (statistics.mean, of_sums) if options.load else (
            statistics.median, lambda base, other: quartiles([a / b for a, b in zip(base, other)]))
        _, n, k = map(int, size.split("x"))
        row = {"size": size, "rounds": len(times["torch"]), "read_us": round(2 * n * k / rate, 1),
               **{name + "_us": round(average(values), 1) for name, values in times.items()}}
        text = f"{size}: " + ", ".join(f"{name} {average(values):.0f}" for name, values in times.items()) + f", read {row['read_us']:.0f} us"
        if options.load:
            row.update({name + "_processor_us": round(average(values), 1) for name, values in processor.items()})
            text += "; processor: " + ", ".join(f"{name} {average(values):.0f}" for name, values in processor.items())
        for base, other in (("torch", "plain"), ("torch", "packed"), ("prepacked", "packed"), ("library", "packed"), ("compiled", "packed")):
            if base not in times or other not in times:
                continue
            middle, low, high = compared(times[base], times[other])
            row.update({f"{base}/{other}": round(middle, 3), f"{base}/{other}_low": round(low, 3), f"{base}/{other}_high": round(high, 3)})
            text += f"; {base}/{other} {middle:.2f} ({low:.2f} to {high:.2f})"
        rows.append(row)
        print(text, flush=True)
        write(options.csv, rows)


if __name__ == "__main__":
    sys.exit(main())
