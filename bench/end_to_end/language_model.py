#!/usr/bin/env python3
"""Tokens a second of a language model of random weights, built with transformers: as it is, with gemmtune.torch.patch() after
capture -> tune (each layer alone, and with merge=True), and under torch.compile; side by side in one process, in interleaved rounds.

Decode is one token for each of B sequences behind --context tokens, in a captured CUDA graph over a static KV cache; prefill is
the forward pass over one prompt, captured too. Tokens: how many of the next tokens are those of the model as it is. "GEMMs" is a graph of the model's linear layers alone, which says how much of the
time can be gained at all. Outputs: the relative error of the logits against a float32 copy of the model.

Usage: language_model.py [--models llama-3.1-8b,qwen3-8b] [--decode 1,8,16,64] [--prefill 512,2048] [--budget SECONDS]
       [--variants patched+merged] [--output FILE.csv] [--compile SECONDS] [--tuned FILE | --untuned | --plain]
With --plain gemmtune is not imported: the program that bench/end_to_end/interposed.sh runs under libgemmtune_cublas.
On a CPU torch.compile freezes the weights, which packs them: --device cpu --models llama-3.2-1b,qwen3-0.6b --decode 1,4,16
--prefill 128 --variants "plain weights+patched" --compile 300 [--load 3, busy processes for each core, bench/busy_cores.py]. Small: --layers 2 --hidden 256 --vocab 1024 --decode 1 --prefill 64"""

import argparse
import contextlib
import copy
import csv
import os
import random
import statistics
import sys
import tempfile
import time

import torch
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from busy_cores import busy_cores  # noqa: E402

SIZES = {
    "llama-3.1-8b": dict(kind="llama", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=128, intermediate_size=14336, vocab_size=128256),
    "qwen3-8b": dict(kind="qwen3", hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, intermediate_size=12288, vocab_size=151936),
    "llama-3.2-1b": dict(kind="llama", hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=64, intermediate_size=8192, vocab_size=128256),
    "qwen3-0.6b": dict(kind="qwen3", hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
                       head_dim=128, intermediate_size=3072, vocab_size=151936),
}
ATTENTION = "benchmark_static_cache"
begun = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - begun:6.1f} s] {text}", file=sys.stderr, flush=True)


# ---- the model ----------------------------------------------------------------------------------------------------------------

def attend(module, query, key, value, attention_mask, scaling=None, **_):
    """Attention of transformers' models. A decoding layer has its cache as attributes: the new token is the last entry."""
    cache = getattr(module, "benchmark_cache", None)
    if cache is not None:
        cache[0][:, :, -1:].copy_(key)
        cache[1][:, :, -1:].copy_(value)
        key, value = cache
    y = functional.scaled_dot_product_attention(query, key, value, scale=scaling, is_causal=query.shape[2] > 1, enable_gqa=True)
    return y.transpose(1, 2).contiguous(), None


def build(options, name):
    import transformers
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attend)
    sizes = dict(SIZES[name])
    kind = sizes.pop("kind")
    if options.hidden:
        heads = max(1, options.hidden // sizes["head_dim"])
        sizes.update(hidden_size=options.hidden, num_attention_heads=heads, num_key_value_heads=max(1, heads // 4),
                     intermediate_size=options.hidden * 7 // 2)
    if options.layers:
        sizes["num_hidden_layers"] = options.layers
    if options.vocab:
        sizes["vocab_size"] = options.vocab
    config = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config}[kind](
        **sizes, max_position_embeddings=8192, tie_word_embeddings=False, use_cache=False)
    with torch.device(options.device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=ATTENTION)
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(0, 0.02)
    return model.eval().requires_grad_(False)


def twin(model):
    """Another model with the same weights, whose modules can be changed."""
    return copy.deepcopy(model, {id(one): one for one in (*model.parameters(), *model.buffers())})


# The options of gemmtune.torch.patch() of each variant.
PATCHES = {
    "patched": {},
    "plain weights": dict(pack=False),
    "packed untuned": dict(pack="any"),
    "dependent": dict(dependent=True),
    "merged": dict(merge=True),
    "merged, dependent": dict(merge=True, dependent=True),
    "merged, silu apart": dict(merge=True, silu_and_mul=False),
}


def patched_twin(model, variant):
    import gemmtune.torch
    changed = twin(model)
    for module in linears(changed):  # a parameter of its own over the same memory: merging moves it
        module.weight = torch.nn.Parameter(module.weight.data, requires_grad=False)
    return changed, gemmtune.torch.patch(changed, **PATCHES[variant])


def linears(model):
    return [module for module in model.modules() if isinstance(module, torch.nn.Linear)]


class Case:
    """One size of decode (B sequences, one token each) or prefill (one prompt of M tokens), with its inputs."""

    def __init__(self, options, model, kind, size):
        self.kind, self.size, self.name = kind, size, f"{kind} {size}"
        self.tokens = size
        config, device = model.config, options.device
        shape = (size, 1) if kind == "decode" else (1, size)
        self.input = torch.randint(0, config.vocab_size, shape, device=device)
        first = options.context if kind == "decode" else 0
        self.positions = torch.arange(first, first + shape[1], device=device)[None].expand(shape).contiguous()
        self.caches = None
        if kind == "decode":
            entries = (2, size, config.num_key_value_heads, options.context + 1, config.head_dim)
            self.caches = [tuple(torch.randn(entries, device=device, dtype=torch.bfloat16)) for _ in model.model.layers]

    def run(self, model, dtype=torch.bfloat16):
        for index, layer in enumerate(model.model.layers):
            layer.self_attn.benchmark_cache = tuple(one.to(dtype) for one in self.caches[index]) if self.caches else None
        return model(input_ids=self.input, position_ids=self.positions, use_cache=False, logits_to_keep=1).logits


# ---- time -----------------------------------------------------------------------------------------------------------------------

class Timed:
    """A call that can be repeated: a CUDA graph of it, or on a CPU the call."""

    def __init__(self, device, call):
        self.device, self.call, self.graph = device, call, None
        if device == "cpu":
            self.output = call()
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = call()
        self.graph.replay()
        torch.cuda.synchronize()

    def ms(self, calls):
        if self.graph is None:
            begin = time.perf_counter()
            for _ in range(calls):
                self.call()
            return (time.perf_counter() - begin) * 1e3 / calls
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            self.graph.replay()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / calls


def interleaved(variants, rounds, milliseconds):
    """{name: [ms of each round]}: each round times every variant, in an order of its own, because the clocks that a variant finds are what
    the one before it left."""
    calls = {name: max(2, round(milliseconds / max(timed.ms(2), 1e-3))) for name, timed in variants.items()}
    times = {name: [] for name in variants}
    orders = random.Random(1)
    for _ in range(rounds):
        for name in orders.sample(list(variants), len(variants)):
            times[name].append(variants[name].ms(calls[name]))
    return times


def profile(path, title, timed):
    """Appends the kernels of one replay, by their time."""
    from torch.profiler import ProfilerActivity
    with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        timed.ms(1)
    kernels = sorted(seen.key_averages(), key=lambda one: -one.device_time_total)
    with open(path, "a") as file:
        file.write(f"{title}: {sum(one.device_time_total for one in kernels) / 1e3:.3f} ms of kernels\n")
        for one in kernels[:40]:
            if one.device_time_total > 0:
                file.write(f"{one.device_time_total:10.1f} us {one.count:6} x {one.device_time_total / one.count:8.2f}  {one.key[:150]}\n")


def ratio(base, other):
    """The median of paired ratios base / other, and their smallest and largest."""
    ratios = sorted(a / b for a, b in zip(base, other))
    return statistics.median(ratios), ratios[0], ratios[-1]


def linear_calls(model, case):
    """The model's linear layers one behind the other, as this case runs them: no attention, no norms."""
    inputs = {}
    for module in linears(model):
        rows = (case.size if case.kind == "decode" else 1) if module is model.lm_head else case.tokens
        inputs.setdefault((rows, module.in_features), torch.randn(rows, module.in_features, device=case.input.device,
                                                                  dtype=torch.bfloat16))

    def call():
        y = None
        for module in linears(model):
            rows = (case.size if case.kind == "decode" else 1) if module is model.lm_head else case.tokens
            y = module(inputs[rows, module.in_features])
        return y
    return call


# ---- correctness ------------------------------------------------------------------------------------------------------------------

def relative_error(logits, exact):
    return ((logits.double() - exact).norm() / exact.norm()).item()


def same_tokens(base, logits):
    """Of each sequence the next token, the one of the largest logit: how many are equal, of how many."""
    equal = base.argmax(-1) == logits.argmax(-1)
    return f"{int(equal.sum())}/{equal.numel()}"


def exact_logits(model, cases):
    """Logits of a float32 copy of the model, of each case."""
    exact = {}
    copied = copy.deepcopy(model).float()
    for case in cases:
        exact[case.name] = case.run(copied, torch.float32).double()
    del copied
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # for the worker processes that tune
    return exact


# ---- one model --------------------------------------------------------------------------------------------------------------------

def add_compiled(options, models, cases, variants):
    """Adds the forms of each case whose decoder layers torch.compile made (one is compiled and serves for all), while there is time.
    `models`: by variant."""
    begin = time.monotonic()
    longest = 0.0
    on_cpu = options.device == "cpu"
    if on_cpu:  # weights as constants, which oneDNN's kernels take packed: each layer and size is a compilation, and all are kept
        import torch._inductor.config
        torch._inductor.config.freezing = True
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 10000
    for model in models.values():
        for layer in model.model.layers:
            layer.compile(mode=options.compile_mode, dynamic=False, fullgraph=True)
    for case in cases:
        spent = time.monotonic() - begin
        if spent + longest > options.compile:
            say(f"no time to compile {case.name} and what follows (--compile {options.compile:g})")
            break
        for name, model in models.items():
            if not on_cpu:  # there a graph keeps what was compiled
                torch._dynamo.reset()
            try:
                variants[case.name][name] = Timed(options.device, lambda case=case, model=model: case.run(model))
            except Exception as error:
                say(f"{name}, {case.name}: {type(error).__name__}: {str(error)[:2000]}")
        longest = max(longest, time.monotonic() - begin - spent)
        say(f"{' and '.join(models)}: {case.name} in {time.monotonic() - begin - spent:.0f} s")


def lists_to_capture(options, path):
    """{file: whether its weights are packed}: on a CPU packed ones, and plain ones for a variant that keeps them."""
    if options.device != "cpu":
        return {path: False}
    keeps = any(PATCHES[variant].get("pack") is False for variant in options.variants)
    return {path: True, **({path.replace(".shapes.csv", ".plain.shapes.csv"): False} if keeps else {})}


def parts_to_tune(lists, device):
    """[(file, its share of the sizes, options of tune)]. On a GPU sizes of many rows are limited by power: one such product behind
    another runs at lower clocks than a model's, where small kernels lie between them, so a few percent there are none here."""
    if device == "cpu":
        return [(path, 1 / len(lists), {}) for path in lists]
    (shapes,) = lists
    with open(shapes) as file:
        rows = list(csv.DictReader(file))
    parts = []
    for word, some, words in (("few", [row for row in rows if int(row["M"]) <= 64], {}),
                              ("many", [row for row in rows if int(row["M"]) > 64], {"prefer_ratio": 0.95})):
        if some:
            path = shapes.replace(".shapes.csv", f".{word}_rows.csv")
            with open(path, "w", newline="") as file:
                writer = csv.DictWriter(file, rows[0], lineterminator="\n")
                writer.writeheader()
                writer.writerows(some)
            parts.append((path, len(some) / len(rows), words))
    return parts


def tune(options, models, cases, folder, name):
    import gemmtune
    import gemmtune.torch
    if options.tuned or options.untuned:
        gemmtune.use(options.tuned, device=options.device)
        return options.tuned
    tuned = os.path.join(folder, f"{name}.tuned.csv")
    lists = lists_to_capture(options, os.path.join(folder, f"{name}.shapes.csv"))
    with contextlib.ExitStack() as captures:
        for path, packed in lists.items():
            captures.enter_context(gemmtune.torch.capture(path, packed=packed))
        for one in models:
            for case in cases:
                case.run(one)
    if options.device != "cpu":
        torch.cuda.synchronize()
    for path in lists:
        with open(path) as file:
            say(f"{name}: {os.path.basename(path)}: {sum(1 for _ in file) - 1} sizes captured")
    begin = time.monotonic()
    for part, share, words in parts_to_tune(lists, options.device):
        report = gemmtune.tune(part, tuned, backend="cpu" if options.device == "cpu" else "cuda", budget=options.budget * share, **words)
        say(f"{name}: {os.path.basename(part)} tuned at {time.monotonic() - begin:.0f} s, exit code {report['exit_code']}")
    if not os.path.exists(tuned):  # nothing was won within the budget
        say(f"{name}: no row was tuned, what follows runs untuned")
        tuned = None
    gemmtune.use(tuned, device=options.device)
    return tuned


def measure(options, name, folder):
    """Rows, as they are measured."""
    model = build(options, name)
    say(f"{name}: built, {sum(one.numel() for one in model.parameters()) / 1e9:.2f} G parameters")
    cases = [Case(options, model, "decode", size) for size in options.decode] + [
        Case(options, model, "prefill", size) for size in options.prefill]
    exact = {} if options.plain else exact_logits(model, cases)
    say("float32 logits")
    variants = {case.name: {} for case in cases}
    gemms = {case.name: {} for case in cases}

    def add(model, variant):
        for case in cases:
            variants[case.name][variant] = Timed(options.device, lambda case=case: case.run(model))
            gemms[case.name][variant] = Timed(options.device, linear_calls(model, case))
        say(f"{name}: {variant} ready")

    models = {}
    if not options.plain:
        for variant in options.variants:
            models[variant], patched = patched_twin(model, variant)
            say(f"{name}: {variant}: {len(patched.layers)} layers, {len(patched.merged)} groups of them merged, "
                f"{len(patched.gated)} with silu_and_mul")
        tune(options, [model, *models.values()], cases, folder, name)
        models = {variant: patched_twin(model, variant)[0] for variant in models}  # packed as the files say
    add(model, "stock")
    for variant, changed in models.items():
        add(changed, variant)
    if options.compile:
        changed = {f"compiled, {variant}": patched_twin(model, variant)[0] for variant in options.compiled_variants if models}
        add_compiled(options, {"compiled": twin(model), **changed}, cases, variants)

    if options.logits:
        torch.save({f"{name} {case.name}": variants[case.name]["stock"].output.cpu() for case in cases}, options.logits)
    if options.profile:
        for case in cases:
            for variant, timed in variants[case.name].items():
                profile(options.profile, f"{name}, {case.name}, {variant}", timed)
    for load in dict.fromkeys((None, options.load)):
        with busy_cores(load):
            for case in cases:
                yield from time_case(options, name, case, load, variants[case.name], gemms[case.name], exact.get(case.name))
                say(f"{name}: {case.name} timed, load: {load or 'none'}")


def time_case(options, name, case, load, variants, gemms, exact):
    times = interleaved(variants, options.rounds, options.milliseconds)
    products = interleaved(gemms, options.rounds, options.milliseconds / 2)
    rows = []
    for variant, timed in variants.items():
        base = "compiled" if variant.startswith("compiled, ") and "compiled" in times else "stock"
        middle, low, high = ratio(times[base], times[variant])
        ms = statistics.median(times[variant])
        row = {"model": name, "case": case.name, "load": load or "", "variant": variant, "tokens_per_s": f"{case.tokens / ms * 1e3:.1f}",
               "ms": f"{ms:.4f}", "base": base, "speed_up": f"{middle:.3f}", "lowest": f"{low:.3f}", "highest": f"{high:.3f}"}
        if "compiled" in times:
            row["over_compiled"] = f"{ratio(times['compiled'], times[variant])[0]:.3f}"
        if variant in products:
            gemm = statistics.median(products[variant])
            row["gemm_ms"], row["gemm_share"] = f"{gemm:.4f}", f"{gemm / ms:.3f}"
            row["gemm_speed_up"] = f"{ratio(products['stock'], products[variant])[0]:.3f}"
        if exact is not None:
            row["error"] = f"{relative_error(timed.output, exact):.2e}"
        else:
            row["error"] = f"{timed.output.double().norm().item():.6e}"
        row["same_tokens"] = same_tokens(variants["stock"].output, timed.output)
        rows.append(row)
    return rows


FIELDS = ("model", "case", "load", "variant", "tokens_per_s", "ms", "base", "speed_up", "lowest", "highest", "over_compiled", "gemm_ms",
          "gemm_share", "gemm_speed_up", "error", "same_tokens")


def table(rows, plain):
    lines = [f"{'model':14}{'case':14}{'load':6}{'variant':20}{'tokens/s':>10}{'ms':>10}{'speed-up':>10}{'lowest':>8}{'/compiled':>10}{'GEMMs ms':>10}"
             f"{'share':>7}{'GEMMs':>7}{'norm' if plain else 'error':>14}{'tokens':>8}"]
    for row in rows:
        lines.append(f"{row['model']:14}{row['case']:14}{row['load']:6.6}{row['variant']:20}{row['tokens_per_s']:>10}{row['ms']:>10}"
                     f"{row['speed_up']:>10}{row['lowest']:>8}{row.get('over_compiled', ''):>10}{row.get('gemm_ms', ''):>10}"
                     f"{row.get('gemm_share', ''):>7}{row.get('gemm_speed_up', ''):>7}{row['error']:>14}{row['same_tokens']:>8}")
    return "\n".join(lines)


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama-3.1-8b,qwen3-8b", help="of " + ", ".join(SIZES))
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu", help="cuda:0 or cpu")
    parser.add_argument("--decode", type=numbers, default="1,8,16,64", help="batch sizes")
    parser.add_argument("--prefill", type=numbers, default="512,2048", help="tokens")
    parser.add_argument("--variants", type=lambda text: text.split("+"), default="patched+merged", help="joined by +, of " + "; ".join(PATCHES))
    parser.add_argument("--context", type=int, default=512, help="tokens in the KV cache before the decoded one")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tuning for a model")
    parser.add_argument("--tuned", help="tuned files in place of a tuning run")
    parser.add_argument("--untuned", action="store_true", help="neither tuned files nor a tuning run")
    parser.add_argument("--plain", action="store_true", help="only the model as it is; without gemmtune and the float32 copy")
    parser.add_argument("--compile", type=float, default=0, help="seconds for torch.compile's forms (0: none)")
    parser.add_argument("--compile-mode", default="max-autotune-no-cudagraphs", help="torch.compile's; 'default' compiles faster on a CPU")
    parser.add_argument("--compiled-variants", type=lambda text: text.split("+") if text else [], default="merged",
                        help="what torch.compile gets beside the model as it is, as --variants")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--milliseconds", type=float, default=40, help="of one sample")
    parser.add_argument("--load", help="time all cases once more beside that many busy processes for each core, or beside this command")
    parser.add_argument("--profile", help="append the kernels of each case and their times to this file")
    parser.add_argument("--logits", help="save the logits of the model as it is in this file")
    parser.add_argument("--output", help="CSV of the table; tuned files of the run lie beside it")
    for word in ("layers", "hidden", "vocab"):
        parser.add_argument("--" + word, type=int, default=0, help="in place of the model's (for a quick look)")
    options = parser.parse_args()
    names = options.models.split(",")
    for name in names:
        if name not in SIZES:
            parser.error(f"--models: '{name}', expected some of {', '.join(SIZES)}")
    for option, variants in (("--variants", options.variants), ("--compiled-variants", options.compiled_variants)):
        for variant in variants:
            if variant not in PATCHES:
                parser.error(f"{option}: '{variant}', expected some of {'; '.join(PATCHES)}")
    where = torch.cuda.get_device_name(0) if options.device != "cpu" else f"CPU, {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__}, {where}, bf16, context {options.context}, {options.rounds} rounds; error: relative, of logits",
          flush=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # the same attention kernel for every size
    rows = []
    with tempfile.TemporaryDirectory(prefix="gemmtune-") as work, torch.inference_mode():
        folder = os.path.dirname(os.path.abspath(options.output)) if options.output else work
        for name in names:
            for row in measure(options, name, folder):
                rows.append(row)
                if options.output:  # what a run that is stopped has measured, too
                    with open(options.output, "w", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                        writer.writeheader()
                        writer.writerows(rows)
            print(table([row for row in rows if row["model"] == name], options.plain), flush=True)
            if options.device != "cpu":
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
