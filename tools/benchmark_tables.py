#!/usr/bin/env python3
"""Writes the tables of README.md and docs/benchmarks*.md from the files of bench/results. A table stands between `<!-- table NAME -->` and
`<!-- end -->`.

Usage: benchmark_tables.py            writes the pages
       benchmark_tables.py --check    exits 1 if a page differs from what its tables would be

Ratios are of peers' time to ours: above 1 gemmtune is faster. Bold figures are below 1: there it is slower.
"""

import csv
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
TABLE = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)


def rows(name):
    with open(RESULTS / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def ratio(value):
    text = f"{float(value):.2f}"
    return f"**{text}**" if float(text) < 1 else text


def table(head, body):
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *body])


def span(low, high):
    return low if low == high else f"{low} to {high}"


def dense():
    """The default's time over the tuned one, by groups of M."""
    files = [("bf16, one H200", "h200/dense_bf16_groups.csv"), ("fp8 `fp32`, one H200", "h200/dense_fp8_groups.csv"),
             ("fp8 `fp32`, two H100s", "h100/dense_fp8_groups.csv"), ("fp8 `tensor_core`, one H200", "h200/dense_fp8_fast_groups.csv")]
    body = [[label, span(row["M_from"], row["M_to"]), row["shapes"], ratio(row["speedup"]), ratio(row["min_speedup"]),
             ratio(row["speedup_dependent"]) if row["speedup_dependent"] else "", row["own_kernels_win"], row["share_of_floor"]]
            for label, file in files for row in rows(file)]
    return table(["type, machine", "M", "shapes", "speed-up", "lowest", "with dependent launches", "own kernels win", "share of the floor"], body)


def peers():
    """The best peer's time over ours by M, with the worst shape: files of bench/peers, a row for each shape and program."""
    cases = [
        ("fp8, scales of blocks, one H100", "h100/dense_8bit_blocks_peers.csv", {"run": "4"}, ["deep_gemm", "torch_block"], "DeepGEMM, `_scaled_mm`"),
        ("fp8, scales of rows, `tensor_core`, one H100", "h100/dense_8bit_rows_peers.csv", {"format": "fp8row"},
         ["torch_row_fast", "vllm_cutlass"], "vLLM's CUTLASS, `_scaled_mm`"),
        ("int8, one H100", "h100/dense_8bit_rows_peers.csv", {"format": "int8"}, ["torch_int_mm+scale", "vllm_cutlass"], "vLLM's CUTLASS, `_int_mm`"),
        ("MXFP4 weights, bf16 tokens, one H200", "h200/mxfp4_humming.csv", {}, ["humming"], "humming-kernels"),
        ("the same", "h200/mxfp4_humming.csv", {}, ["F.linear bf16", "gemmtune bf16"], "bf16 weights, the faster of cuBLASLt and ours"),
        ("batched bf16, one H200", "h200/batched_peers.csv", {}, ["torch.bmm", "torch.bmm [B,K,N]"], "`torch.bmm`"),
    ]
    columns = ["1", "16", "64", "128", "256", "512", "1024", "4096"]
    body = []
    for label, file, only, others, names in cases:
        times = {}
        for row in rows(file):
            if all(row[key] == value for key, value in only.items()):
                shape = tuple(row.get(key, "") for key in ("batch", "n", "k", "side_by_side"))
                times.setdefault(row["m"], {}).setdefault(shape, {})[row["who"]] = float(row["us"])
        line = [label, names]
        for m in columns:
            shapes = [(min(who[other] for other in others if other in who) / who["gemmtune"]) for who in times.get(m, {}).values()
                      if "gemmtune" in who and any(other in who for other in others)]
            line.append(f"{ratio(mean(shapes))}, {ratio(min(shapes))}" if shapes else "")
        body.append(line)
    return table(["operation", "the best of", *(f"M = {m}" for m in columns)], body)


def moe_layers():
    """Microseconds of a whole untuned layer, with the share of the floor."""
    layers = rows("h200/fused_moe_untuned.csv")
    cases = [(model, routing) for model, routing in dict.fromkeys((row["model"], row["routing"]) for row in layers)]
    tokens = sorted({int(row["tokens"]) for row in layers})
    cells = {(row["model"], row["routing"], int(row["tokens"]), row["who"]): f"{float(row['us']):.1f} ({float(row['share_of_floor']):.2f})" for row in layers}
    programs = list(dict.fromkeys(row["who"] for row in layers))
    body = [[f"{model}, {routing}" if len(programs) == 1 else f"{model}, {routing}, {who}",
             *(cells.get((model, routing, count, who), "") for count in tokens)]
            for model, routing in cases for who in programs if any((model, routing, count, who) in cells for count in tokens)]
    return table(["layer, routing", *map(str, tokens)], body)


def models():
    """Tokens a second of whole models before and after, with the lowest and highest round."""
    files = [("H200", "h200/end_to_end.csv"), ("H200", "h200/end_to_end_compiled.csv"), ("EPYC, Zen 5, one thread, 4 layers", "epyc_zen5/end_to_end.csv")]
    body = []
    for machine, file in files:
        lines = rows(file)
        stock = {(row["model"], row["case"], row["variant"]): row["tokens_per_s"] for row in lines}
        body += [[f"{row['model']}, {row['case']}, {machine}", row["variant"], row["base"], stock[row["model"], row["case"], row["base"]], row["tokens_per_s"],
                  f"{ratio(row['speed_up'])} ({float(row['lowest']):.2f} to {float(row['highest']):.2f})"]
                 for row in lines if row["variant"] != row["base"] and not (row["variant"] == "merged" and "compiled" in file) and row["variant"] != "compiled"
                 and row["variant"] != "merged, silu apart"]
    for row in rows("h200/end_to_end_interposed.csv"):
        times = [float(row[key]) for key in ("interposed_ms", "interposed_ms_second_run") if row[key]]
        how = "`libgemmtune_cublas.so`" + (", constant weights" if row["constant_weights"] == "1" else "")
        body.append([f"{row['model']}, {row['case']}, H200", how, "stock", "", "", ratio(float(row["plain_ms"]) * len(times) / sum(times))])
    return table(["model, case, machine", "variant", "against", "tokens/s before", "after", "speed-up (rounds)"], body)


def cpu_kernels():
    """Packed weights: the time of others over ours by M. A range is over machines, sizes and runs."""
    names = {"onednn_packed": "oneDNN 2.6.3, packed", "openblas_plain": "OpenBLAS", "own_bf16": "our bf16", "read": "a read of the weights"}
    columns = ["1", "1 16", "16", "32", "64", "128", "512", "2048"]
    body = []
    for machine, file in (("EPYC, Zen 5", "epyc_zen5/kernels_by_operation.csv"), ("Xeons, AMX", "xeon_amx/kernels_by_operation.csv")):
        groups = {}
        for row in rows(file):
            key = (row["operation"], row["compared_with"], row["threads"])
            groups.setdefault(key, {}).setdefault(row["M"], []).extend(float(row[cell]) for cell in ("ratio", "max_ratio") if row.get(cell))
        for (operation, other, threads), by_m in sorted(groups.items(), key=lambda group: (group[0][2], group[0][0].lower(), group[0][1])):
            cells = [span(ratio(min(by_m[m])), ratio(max(by_m[m]))) if m in by_m else "" for m in columns]
            body.append([machine, threads, operation, names[other], *cells])
    return table(["machine", "threads", "type", "against", *("M = " + m.replace(" ", ", ") for m in columns)], body)


def cpu_moe():
    """A fused layer: the time of a read of the weights, and of separate calls of oneDNN, over ours."""
    body = []
    for machine, file in (("EPYC, Zen 5", "epyc_zen5/fused_moe.csv"), ("Xeon", "xeon_amx/fused_moe.csv")):
        for row in rows(file):
            half = f" ± {row['separate_calls_half_width']}" if row["separate_calls_half_width"] else ""
            name = f"{machine} {row['machine']}" + (f", {row['kernel_uses']}" if row["kernel_uses"] else "") if "machine" in row else machine
            body.append([name, row["threads"], row["tokens"], ratio(row["read_ratio"]), ratio(row["separate_calls_ratio"]) + half])
    return table(["machine", "threads", "tokens", "of a read", "against separate calls of oneDNN 2.6.3"], body)


def tuned_cpu():
    """One model's shapes on a CPU."""
    return table(["M x N x K", "oneDNN 2.6.3, µs", "tuned, µs", "± µs", "speed-up", "verdict"],
                 [[f"{row['M']} x {row['N']} x {row['K']}", row["default_us"], row["tuned_us"], row["spread_us"], ratio(row["speedup"]), row["verdict"]]
                  for row in rows("epyc_zen4/tune_llama_3.2_1b.csv")])


def calls():
    """Look-up, loading and calls; of this version alone, where a file also has older commits."""
    machines = (("EPYC, Zen 4", "epyc_zen4"), ("EPYC, AVX2", "epyc_avx2"))
    body = [[machine, row["what"], row["median"], row["spread"], row["unit"]]
            for machine, folder in machines for row in rows(f"{folder}/calls_and_{'lookup' if folder == 'epyc_zen4' else 'tables'}.csv")]
    body += [["EPYC, Zen 5", row["what"], row["median"], f"{row['lowest']} to {row['highest']}", row["unit"]]
             for row in rows("epyc_zen5/calls_and_tables.csv") if row["commit"] == "this"]
    return table(["machine", "what", "median", "standard deviation or range", "unit"], body)


def single():
    """Figures that have no table of their own."""
    return table(["machine", "what", "figure", "command"], [[row["machine"], row["what"], row["figure"], f"`{row['command']}`" if row["command"] else ""]
                                                            for row in rows("single_figures.csv")])


def readme_losses():
    """Not for you, with what was measured."""
    prompts = [ratio(row["speed_up"]) for row in rows("h200/end_to_end.csv") if row["variant"] == "patched" and row["case"].startswith("prefill")]
    compiled = next(ratio(row["speed_up"]) for row in rows("h200/end_to_end_compiled.csv") if row["variant"] == "compiled, merged" and row["case"] == "decode 1")
    mxfp4 = against(by_shape("h200/mxfp4_humming.csv", ("n", "k")), ["256", "1024"], "gemmtune", ["F.linear bf16", "gemmtune bf16"])
    blocks = against(by_shape("h100/dense_8bit_blocks_peers.csv", ("n", "k"), run="4"), ["4096"], "gemmtune", ["deep_gemm", "torch_block"])[0]
    return table(["not for you", "measured"], [
        ["prompts alone", f"one H200, prompts of 512 and 2048 tokens: {min(prompts)} to {max(prompts)}"],
        ["prompts alone in vLLM", f"one H200, prompts of 512 and 1500 tokens, bf16: {served_span('bf16', decodes=False, run='35')} (a second stock engine {served_span('bf16', decodes=False, run='35', engine='stock2')}); fp8 per token: {served_span('fp8 per token', decodes=False, run='30', engine='pdl')}"],
        ["prompts with tensor parallelism in vLLM", f"two H200s, Llama-3.1-8B bf16: {served_span('bf16', decodes=False, run='13')}; decoding {served_span('bf16', run='13')}"],
        ["one sequence under `torch.compile` with max-autotune", compiled],
        ["MXFP4 weights at many rows", " and ".join(f"{cell.split(',')[0].split(' (')[0]} of bf16 weights' speed at M = {m}" for cell, m in zip(mxfp4, ("256", "1024")))],
        ["fp8 with scales of blocks at 4096 rows", f"{blocks.split(',')[0]} of DeepGEMM's speed"],
        ["GPUs of sm_80 and sm_89", "the family `mma` that they run was **never measured** on one"],
        ["training", "no gradients"],
    ])


def by_shape(file, key, **only):
    """M -> shape -> program -> microseconds, of the rows that have all of `only`."""
    times = {}
    for row in rows(file):
        if all(row[name] == value for name, value in only.items()):
            times.setdefault(row["m"], {}).setdefault(tuple(row[name] for name in key), {})[row["who"]] = float(row["us"])
    return times


def against(times, columns, ours, others):
    """The fastest of `others` over ours by M: geometric mean, of dependent launches in brackets, and the worst shape."""
    cells = []
    for m in columns:
        def ratios(who):
            return [min(programs[other] for other in others if other in programs) / programs[who] for programs in times.get(m, {}).values()
                    if who in programs and any(other in programs for other in others)]
        plain, dependent = ratios(ours), ratios(f"{ours} dependent")
        text = ratio(mean(plain)) if plain else ""
        if plain and dependent and mean(dependent) > mean(plain) * 1.005:
            text += f" ({ratio(mean(dependent))})"
        cells.append(f"{text}, {ratio(min(plain))}" if plain else "")
    return cells


def microseconds(times, columns, others, digits=1):
    """A row a shape: ours, of dependent launches in brackets, and the fastest of `others`; bold where that is faster."""
    body = []
    for shape in dict.fromkeys(shape for shapes in times.values() for shape in shapes):
        cells = []
        for m in columns:
            programs = times.get(m, {}).get(shape, {})
            there = [programs[other] for other in others if other in programs]
            if "gemmtune" not in programs:
                cells.append("")
                continue
            text = f"{programs['gemmtune']:.{digits}f}"
            if there and min(there) < programs["gemmtune"]:
                text = f"**{text}**"
            if programs.get("gemmtune dependent", programs["gemmtune"]) < 0.99 * programs["gemmtune"]:
                text += f" ({programs['gemmtune dependent']:.{digits}f})"
            cells.append(text + (f", {min(there):.{digits}f}" if there else ""))
        body.append([" x ".join(shape), *cells])
    return body


ROWS = ["1", "16", "64", "128", "512", "4096"]
INVARIANT = "bf16, batch-invariant"
INT4 = "int4, groups of 128"
FOUR_BIT_FORMS = {"a16w4_int4": INT4, "a16w4_nvfp4": "NVFP4"}


def eight_bit_h200():
    """PyTorch's time over ours on one H200, by scales."""
    file = "h200/dense_8bit_peers.csv"
    cases = [("fp8 rows, `fp32`, its slow accumulation", {"format": "fp8row", "run": ""}, ["torch_row"]),
             ("fp8 rows, `tensor_core`, its fast one", {"format": "fp8row", "run": "fast"}, ["torch_row_fast"]),
             ("fp8 blocks", {"format": "fp8block"}, ["torch_block"]),
             ("int8, against `_int_mm` and a scaling kernel", {"format": "int8"}, ["torch_int_mm+scale"])]
    return table(["scales, against `_scaled_mm`", *(f"M = {m}" for m in ROWS)],
                 [[label, *against(by_shape(file, ("n", "k"), **only), ROWS, "gemmtune", others)] for label, only, others in cases])


def eight_bit_blocks():
    """The better of DeepGEMM and `_scaled_mm` over ours on one H100."""
    times = by_shape("h100/dense_8bit_blocks_peers.csv", ("n", "k"), run="4")
    return table([f"M = {m}" for m in ROWS[1:]], [against(times, ROWS[1:], "gemmtune", ["deep_gemm", "torch_block"])])


def eight_bit_blocks_times():
    """The same by shape."""
    times = by_shape("h100/dense_8bit_blocks_peers.csv", ("n", "k"), run="4")
    return table(["N x K", *(f"M = {m}" for m in ROWS[1:])], microseconds(times, ROWS[1:], ["deep_gemm", "torch_block"]))


def eight_bit_rows():
    """vLLM's CUTLASS and PyTorch over ours on one H100."""
    file = "h100/dense_8bit_rows_peers.csv"
    cases = [("int8", "int8", ["torch_int_mm+scale", "vllm_cutlass"]), ("fp8 rows, `tensor_core`", "fp8row", ["torch_row_fast", "vllm_cutlass"]),
             ("fp8 rows, PyTorch's slow accumulation", "fp8row", ["torch_row"])]
    return table(["type", *(f"M = {m}" for m in ROWS)],
                 [[label, *against(by_shape(file, ("n", "k"), format=form), ROWS, "gemmtune", others)] for label, form, others in cases])


def eight_bit_untuned():
    """Untuned kernels beside CUTLASS."""
    body = []
    for label, form in (("scales of rows (CUTLASS: `tensor_core`, ours: `fp32`)", "fp8row"), ("int8", "int8"), ("scales of blocks", "fp8block")):
        times = by_shape("h100/vllm_kernels_untuned.csv", ("n", "k"), format=form)
        body += [[label, *line[1:]] for line in microseconds(times, ["16", "512"], ["vllm_cutlass"])]
    return table(["4096 x 7168", "M = 16", "M = 512"], body)


def batches():
    """`torch.bmm` over ours."""
    times = by_shape("h200/batched_peers.csv", ("batch", "n", "k", "side_by_side"))
    columns = ["1", "16", "128", "512"]
    return table([f"M = {m}" for m in columns], [against(times, columns, "gemmtune", ["torch.bmm", "torch.bmm [B,K,N]"])])


def whole_models():
    """Ratios of tokens a second to stock PyTorch."""
    lines = {(row["model"], row["case"], row["variant"]): row for row in rows("h200/end_to_end.csv")}
    cases = ["decode 1", "decode 8", "decode 16", "decode 64", "prefill 512", "prefill 2048"]
    body = []
    for model in dict.fromkeys(model for model, _, _ in lines):
        stock = [lines[model, case, "stock"] for case in cases]
        body.append([f"{model}, stock: tokens/s (share of linear layers)",
                     *(f"{float(row['tokens_per_s']):,.0f} ({float(row['gemm_share']):.2f})" for row in stock)])
        for variant in dict.fromkeys(variant for name, _, variant in lines if name == model and variant != "stock"):
            body.append([variant, *(f"{float(lines[model, case, variant]['speed_up']):.3f}" if (model, case, variant) in lines else "" for case in cases)])
    return table(["", *cases], body)


def python_calls():
    """Microseconds of a call from Python."""
    gpu = {row["call"]: row for row in rows("h200/calls_from_python.csv")}
    return table(["call", "EPYC, Zen 5, fp32", "H200, bf16", "H200 under `no_grad`"],
                 [[f"`{row['call']}`" if " " not in row["call"] else row["call"], row["inference_mode_us"], gpu[row["call"]]["inference_mode_us"],
                   gpu[row["call"]]["no_grad_us"]] for row in rows("epyc_zen5/calls_from_python.csv") if row["call"] in gpu])


def mxfp4_h200():
    """Ours (dependent) and humming; bf16; then humming and bf16 over ours."""
    columns = ["1", "16", "64", "256", "1024"]
    times = by_shape("h200/mxfp4_humming.csv", ("n", "k"))
    body = microseconds(times, columns, ["humming"])
    for shape in dict.fromkeys(shape for shapes in times.values() for shape in shapes):
        body.append([f"{' x '.join(shape)}, bf16 weights", *(f"{min(times[m][shape]['F.linear bf16'], times[m][shape]['gemmtune bf16']):.1f}" for m in columns)])
    body.append(["humming over ours, worst shape", *against(times, columns, "gemmtune", ["humming"])])
    body.append(["bf16 over ours, worst shape", *against(times, columns, "gemmtune", ["F.linear bf16", "gemmtune bf16"])])
    return table(["N x K", *(f"M = {m}" for m in columns)], body)


def mxfp4_marlin():
    """Untuned kernels of a plain weight, Marlin's, and bf16."""
    columns = ["1", "16", "64", "256", "1024"]
    times = by_shape("h100/vllm_kernels_untuned.csv", ("n", "k"), format="a16w4")
    body = []
    for shape in dict.fromkeys(shape for shapes in times.values() for shape in shapes):
        for who, label in (("gemmtune", "ours, untuned"), ("vLLM Marlin", "Marlin, packed"), ("F.linear bf16", "bf16")):
            body.append([" x ".join(shape), label, *(f"{times[m][shape][who]:.1f}" for m in columns)])
    return table(["N x K", "", *(f"M = {m}" for m in columns)], body)


def four_bit_vllm():
    """Times of vLLM's kernels and of bf16 weights over ours, geometric means of the four (N, K) of Llama-3.1-8B, and the worst of them."""
    lines, body = rows("h200/four_bit_llama.csv"), []
    for form, m in dict.fromkeys((row["form"], row["M"]) for row in lines):
        here = [row for row in lines if (row["form"], row["M"]) == (form, m)]
        cells = []
        for peer in ("machete_us", "marlin_us", "linear_bf16_us"):
            ratios = [float(row[peer]) / float(row["gemmtune_us"]) for row in here if row[peer]]
            cells.append(f"{ratio(mean(ratios))} ({min(ratios):.2f})" if ratios else "")
        body.append([FOUR_BIT_FORMS[form], m, *cells])
    return table(["weight", "M", "Machete", "Marlin", "F.linear on bf16"], body)


def four_bit_peers():
    """Times of others over ours, geometric means of the (N, K) that they take, and the worst of them."""
    lines, body = rows("h200/four_bit_peers.csv"), []
    others = ["vLLM Marlin", "humming", "vLLM Machete", "F.linear bf16"]
    times = {(row["form"], row["m"], row["n"], row["k"], row["who"]): float(row["us"]) for row in lines}
    for form, m in dict.fromkeys((row["form"], row["m"]) for row in lines):
        sizes = [key[:4] for key in times if key[:2] == (form, m) and key[4] == "gemmtune"]
        cells = []
        for who in others:
            ratios = [times[*size, who] / times[*size, "gemmtune"] for size in sizes if (*size, who) in times]
            cells.append(f"{ratio(mean(ratios))} ({min(ratios):.2f}), {len(ratios)}" if ratios else "")
        peers = {size: [times[*size, who] for who in others[:3] if (*size, who) in times] for size in sizes}
        best = [min(found) / times[*size, "gemmtune"] for size, found in peers.items() if found]
        body.append([FOUR_BIT_FORMS[form], m, *cells, f"{ratio(mean(best))} ({min(best):.2f})"])
    return table(["weight", "M", "Marlin", "humming", "Machete", "F.linear on bf16", "the fastest of the three"], body)


def moe_untuned():
    """Microseconds of a whole untuned layer, with the share of the floor; uniform routing."""
    layers = [row for row in rows("h200/fused_moe_untuned.csv") if row["routing"] == "uniform"]
    tokens = sorted({int(row["tokens"]) for row in layers})
    cells = {(row["model"], row["who"], int(row["tokens"])): f"{float(row['us']):.1f} ({float(row['share_of_floor']):.2f})" for row in layers}
    return table(["layer", *(f"{count} tokens" if count > 1 else "1 token" for count in tokens)],
                 [[model + who.removeprefix("gemmtune").replace(" with", ", with"), *(cells.get((model, who, count), "") for count in tokens)]
                  for model, who in dict.fromkeys((row["model"], row["who"]) for row in layers)])


def moe_peers():
    """Ours tuned, PyTorch's grouped product and the fastest Triton kernel, microseconds."""
    layers = [row for row in rows("h200/fused_moe_peers.csv") if row["routing"] == "uniform"]
    tokens = sorted({int(row["tokens"]) for row in layers})
    body = []
    for model in dict.fromkeys(row["model"] for row in layers):
        for label, is_it in (("ours, tuned", "gemmtune tuned".__eq__), ("`torch._grouped_mm`", "torch._grouped_mm".__eq__),
                             ("the fastest Triton kernel", lambda who: who.startswith("triton"))):
            cells = [[float(row["us"]) for row in layers if row["model"] == model and int(row["tokens"]) == count and is_it(row["who"])] for count in tokens]
            if any(cells):
                body.append([model, label, *(f"{min(times):.1f}" if times else "" for times in cells)])
    return table(["layer", "", *(f"{count} tokens" if count > 1 else "1 token" for count in tokens)], body)


def served_moe():
    """Whole layers of ours, vLLM and SGLang on one routing, microseconds."""
    layers = rows("h200/served_moe.csv")
    tokens = list(dict.fromkeys(row["tokens"] for row in layers))
    times = {(row["model"], row["who"], row["tokens"]): row["us"] for row in layers}
    body = [[model, who, *(f"{float(times[model, who, count]):.1f}" for count in tokens)] for model, who in dict.fromkeys(key[:2] for key in times)]
    return table(["layer", "", *(f"{count} tokens" for count in tokens)], body)


def moe_marlin():
    """Whole layers of 4-bit experts of ours, microseconds, and vLLM's Marlin over ours."""
    layers = rows("h200/fused_moe_marlin.csv")
    tokens = list(dict.fromkeys(row["tokens"] for row in layers))
    times = {(row["model"], row["who"], row["tokens"]): float(row["us"]) for row in layers}
    body = [[model, *(f"{times[model, 'gemmtune', count]:.1f} ({ratio(times[model, 'vLLM Marlin', count] / times[model, 'gemmtune', count])})" for count in tokens)]
            for model in dict.fromkeys(row["model"] for row in layers)]
    return table(["layer", *(f"{count} tokens" if count != "1" else "1 token" for count in tokens)], body)


def search_times():
    """Seconds of the first shapes of each operation."""
    return table(["operation", "shapes", "with a row", "seconds", "candidates"],
                 [[row["operation"], row["shapes"], row["tuned"], row["seconds"], row["candidates"]] for row in rows("h200/tune_operations.csv")])


def readme_tokens():
    """Tokens a second of Llama-3.1-8B on one H200."""
    lines = {(row["case"], row["variant"]): row for row in rows("h200/end_to_end.csv") if row["model"] == "llama-3.1-8b"}
    cases = [("decode 1", "1 sequence"), ("decode 8", "8 sequences"), ("decode 16", "16 sequences"), ("decode 64", "64 sequences"),
             ("prefill 512", "a prompt of 512"), ("prefill 2048", "a prompt of 2048")]
    body = []
    for case, label in cases:
        cells = [f"{float(lines[case, 'stock']['tokens_per_s']):,.0f}"]
        for variant in ("patched", "merged"):
            row = lines.get((case, variant))
            cells.append(f"{float(row['tokens_per_s']):,.0f} ({ratio(row['speed_up'])})" if row else "")
        body.append([label, *cells])
    return table(["Llama-3.1-8B, bf16", "PyTorch, tokens/s", "patched", "merged layers too"], body)


def readme_proof():
    """You have, you get, measured."""
    def speeds(file, variant, **only):
        return [float(row["speed_up"]) for row in rows(file) if row["variant"] == variant and row["case"].startswith("decode")
                and all(row[key] == value for key, value in only.items())]

    def between(values):
        return span(ratio(min(values)), ratio(max(values)))
    patched, merged = (speeds("h200/end_to_end.csv", variant) for variant in ("patched", "merged"))
    interposed = [float(row["plain_ms"]) / float(row[key]) for row in rows("h200/end_to_end_interposed.csv") if row["constant_weights"] == "0"
                  for key in ("interposed_ms", "interposed_ms_second_run") if row[key]]
    cpu = next(row["figure"].split(";")[0] for row in rows("single_figures.csv") if row["what"].startswith("60 bf16 shapes, M = 1 to 128, plain"))
    return table(["you have", "you get", "measured"], [
        ["an H100 or H200, PyTorch", "linear layers that run the fastest kernel of each size",
         f"one H200, Llama-3.1-8B and Qwen3-8B, 1 to 64 sequences: {between(patched)} times the tokens a second, {between(merged)} with merged layers"],
        ["a program that calls cuBLAS", "the same kernels, without a change to the program", f"the same Llama: {between(interposed)}"],
        ["an x86 server", "kernels beside oneDNN's and OpenBLAS's, from C++, C, Python and PyTorch",
         f"two cores of an EPYC, 60 bf16 shapes, M = 1 to 128: two runs, {cpu}"],
        ["AITER's tables, an AMD GPU", "audit, merge, coverage and report of the tables, on any machine", "tuning has **not run** on an AMD GPU yet"],
        ["vLLM", "a plug-in for its linear layers and mixtures of experts", f"one H200, vLLM 0.24, 1 to 64 sequences: Llama-3.1-8B bf16 {served_span('bf16')}, "
         f"fp8 per token {served_span('fp8 per token', run='30', engine='pdl')}, fp8 in blocks {served_span('fp8 in blocks', run='38', engine='pdl')}, int8 {served_span('int8', run='34', engine='pdl')}, int4 {served_span(INT4, run='37')}, NVFP4 {served_span('NVFP4', run='36')}, Qwen3-30B-A3B bf16 {served_span('bf16', run='5')}, "
         f"fp8 {served_span('fp8 blocks', run='6')}, int4 {served_span(INT4, run='7')}, NVFP4 {served_span('NVFP4', run='8')}, gpt-oss-20b {served_span('MXFP4', run='5')} times the tokens a second ([docs/vllm.md](docs/vllm.md))"],
        ["vLLM, batch-invariant", "the same bits in every batch, from tuned rows", f"the same GPU, Llama-3.1-8B bf16: {served_span(INVARIANT, run='16')} times vLLM's usual mode, "
         f"whose own batch-invariant mode is at {served_span(INVARIANT, run='16', engine='VLLM_BATCH_INVARIANT=1')} ([docs/vllm.md](docs/vllm.md#batch-invariant-serving))"],
    ])


def served_case(row):
    """What was served, as the first cell."""
    if row["output_tokens"] == "1":
        return f"a prompt of {row['prompt_tokens']}"
    return f"{row['sequences']} sequence{'' if row['sequences'] == '1' else 's'}"


def served_ratio(row):
    return f"{ratio(row['ratio'])} ({float(row['low']):.2f} to {float(row['high']):.2f})"


def served(*runs):
    """Real vLLM with and without the plug-in: median of paired ratios, 95 % interval."""
    runs = runs or ("3",)
    lines = {(row["weights"], row["sequences"], row["prompt_tokens"]): row for row in rows("h200/vllm.csv") if row["run"] in runs and row["engine"] == "tuned"}
    weights = list(dict.fromkeys(key[0] for key in lines))
    body = []
    for sequences, prompt in dict.fromkeys(key[1:] for key in lines):
        cells = []
        for kind in weights:
            row = lines[kind, sequences, prompt]
            cells += [f"{float(row['stock_tokens_per_second']):,.0f}", served_ratio(row)]
        body.append([served_case(lines[weights[0], sequences, prompt]), *cells])
    models = list(dict.fromkeys(row["model"] for row in lines.values()))
    names = weights if len(models) == 1 else [f"{model}, {kind}" for model, kind in zip(models, weights)]
    head = [text for name in names for text in (f"{name}: vLLM, tokens/s", "with the plug-in")]
    return table([models[0] if len(models) == 1 else "", *head], body)


def served_four_bit():
    return served("37", "36")


def served_mixtures():
    return served("5")


def served_quantized_mixtures():
    return served("6", "7", "8")


def served_early():
    """Real vLLM, decoding: kernels of PyTorch that let dependents start, without and with the plug-in."""
    cells = {(row["run"], row["sequences"], row["engine"]): row for row in rows("h200/vllm.csv") if row["run"] in ("20", "21") and row["output_tokens"] != "1"}
    body = []
    for sequences in dict.fromkeys(key[1] for key in cells):
        body.append([served_case(cells["20", sequences, "tuned"]),
                     *(served_ratio(cells[run, sequences, engine]) for run in ("21", "20") for engine in ("stockpdl", "tuned", "pdl"))])
    return table(["", *(f"{weights}: {engine}" for weights in ("bf16", "fp8 per token") for engine in ("vLLM, early", "plug-in", "plug-in, early"))], body)


def served_blocks():
    """Real vLLM: the plug-in with early kernels of PyTorch's and a table of one command, of four forms of weights, each engine beside stock's."""
    runs = {"33": "bf16", "30": "fp8 per token", "38": "fp8 in blocks", "34": "int8"}
    cells = {(row["run"], row["sequences"], row["prompt_tokens"]): row for row in rows("h200/vllm.csv") if row["run"] in runs and row["engine"] == "pdl"}
    body = [[served_case(cells["33", *case]), *(served_ratio(cells[run, *case]) for run in runs)] for case in dict.fromkeys(key[1:] for key in cells)]
    return table(["", *runs.values()], body)


def served_invariant():
    """Real vLLM in its usual mode, in its batch-invariant mode, and in that with the plug-in."""
    found = [row for row in rows("h200/vllm.csv") if row["run"] == "16"]
    cells = {(row["sequences"], row["prompt_tokens"], row["engine"]): row for row in found}
    body = []
    for sequences, prompt in dict.fromkeys(key[:2] for key in cells):
        mine, theirs = (cells[sequences, prompt, engine] for engine in ("tuned", "VLLM_BATCH_INVARIANT=1"))
        body.append([served_case(mine), f"{float(mine['stock_tokens_per_second']):,.0f}", served_ratio(theirs), served_ratio(mine)])
    return table(["", "usual mode, tokens/s", "`VLLM_BATCH_INVARIANT=1`", "the same with the plug-in"], body)


def served_span(weights, decodes=True, run="3", engine="tuned"):
    values = [float(row["ratio"]) for row in rows("h200/vllm.csv")
              if row["run"] == run and row["engine"] == engine and row["weights"] == weights and (row["output_tokens"] != "1") == decodes]
    return span(ratio(min(values)), ratio(max(values)))


PAGES = {
    "README.md": (readme_proof, readme_losses, readme_tokens),
    "docs/benchmarks.md": (dense, peers, moe_layers, models, cpu_kernels, cpu_moe, tuned_cpu, calls, single),
    "docs/benchmarks_h200.md": (batches, whole_models, python_calls),
    "docs/benchmarks_8bit.md": (eight_bit_h200, eight_bit_blocks, eight_bit_blocks_times, eight_bit_rows, eight_bit_untuned),
    "docs/benchmarks_mxfp4.md": (mxfp4_h200, mxfp4_marlin, four_bit_peers, four_bit_vllm),
    "docs/benchmarks_moe.md": (moe_untuned, moe_marlin, moe_peers, served_moe, search_times),
    "docs/invariant_measured.md": (served_invariant,),
    "docs/vllm_measured.md": (served, served_early, served_blocks, served_four_bit, served_mixtures, served_quantized_mixtures),
}


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    status = 0
    for name, makers in PAGES.items():
        tables = {make.__name__: make for make in makers}
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        there = {label for _, label, _ in TABLE.findall(text)}
        if there != set(tables):
            print(f"{name}: has the tables {', '.join(sorted(there)) or '(none)'}, expected {', '.join(sorted(tables))}")
            status = 1
            continue
        made = TABLE.sub(lambda match: match[1] + tables[match[2]]() + match[3], text)
        if made == text:
            continue
        if sys.argv[1:]:
            print(f"{name}: differs from bench/results; run tools/benchmark_tables.py")
            status = 1
        else:
            page.write_text(made, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
