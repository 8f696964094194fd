#!/usr/bin/env python3
"""Times whole mixtures of experts as servers call them, x in bf16 and a router's ids and weights: gemmtune through PyTorch's operator, vLLM's fused_experts
(Triton, with the tables that vLLM has) and SGLang's (bench/peers/sglang_ops.py). With fp8 blocks each quantizes x and the hidden layer itself; gemmtune's x is
quantized by vLLM's operator, and `gemmtune, x in fp8` leaves that out. One process, one routing for all, CUDA graphs in turns that rotate over routings, so
that weights come from memory. Errors are of the first tokens against float64, with x as it came. Prints medians in microseconds, the geometric mean of each
peer's time over gemmtune's, and what is not there.

Run it where vllm, sglang 0.5.14 (its wheel without its requirements) and gemmtune are installed. GEMMTUNE_CONFIG_FUSED_MOE names tuned files; without it
gemmtune's untuned kernels run. SGLang keeps tables of one expert more for models whose shared expert it fuses: `SGLang, table of E + 1` uses that one."""

import argparse
import sys

import torch

import sglang_ops
from dense_8bit import geometric_mean, write_rows
from fused_moe import MODELS, Case, Weights, measure, rows_of

SERVED = ["DeepSeek-V3-TP8-fp8", "Qwen3-30B-A3B-bf16", "Qwen3-30B-A3B-fp8"]
TOKENS = [64, 128, 256, 512, 1024, 2048, 4096]
OURS = "gemmtune"


class Served(Case):
    """x in bf16, without scales."""

    def __init__(self, weights, tokens, routing):
        super().__init__(weights, tokens, routing)
        random = torch.Generator(device="cuda").manual_seed(tokens)
        self.x, self.x_scale = torch.randn(tokens, weights.k, generator=random, device="cuda").bfloat16(), None


def gemmtune_call(case, quantize):
    """quantize(): x and its scales."""
    import gemmtune.torch as gemmtune

    w = case.weights

    def call(i):
        x, x_scale = quantize()
        gemmtune.fused_moe(x, w.w1, w.w2, case.ids[i], case.weight[i], out=case.y, quant_type="per_1x128" if w.form == "fp8" else "none", x_scale=x_scale,
                           w1_scale=w.w1_scale, w2_scale=w.w2_scale)

    return call


def gemmtune_of_bf16(case):
    if case.weights.form == "bf16":
        return gemmtune_call(case, lambda: (case.x, None))
    from vllm.model_executor.layers.quantization.utils.fp8_utils import per_token_group_quant_fp8

    return gemmtune_call(case, lambda: per_token_group_quant_fp8(case.x, 128))


def gemmtune_of_fp8(case):
    from vllm.model_executor.layers.quantization.utils.fp8_utils import per_token_group_quant_fp8

    quantized = per_token_group_quant_fp8(case.x, 128)
    return gemmtune_call(case, lambda: quantized)


def vllm_call(case):
    from vllm.model_executor.layers.fused_moe.config import fp8_w8a8_moe_quant_config
    from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts

    w = case.weights
    config = fp8_w8a8_moe_quant_config(w1_scale=w.w1_scale, w2_scale=w.w2_scale, block_shape=[128, 128]) if w.form == "fp8" else None
    return lambda i: fused_experts(case.x, w.w1, w.w2, case.weight[i], case.ids[i], quant_config=config)


def calls_of(case, missing, model):
    """Name -> call(i): the layer with routing i."""
    makers = {OURS: gemmtune_of_bf16, "vLLM": vllm_call, "SGLang": sglang_ops.fused_experts,
              "SGLang, table of E + 1": lambda case: sglang_ops.fused_experts(case, 1)}
    if case.weights.form == "fp8":
        makers["gemmtune, x in fp8"] = gemmtune_of_fp8
    calls = {}
    for name, make in makers.items():
        try:
            calls[name] = make(case)
        except Exception as error:  # a package that is missing, or does not import here
            missing[f"{name} of {model}"] = f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")
    return calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=SERVED, choices=[model for model, (*_, form) in MODELS.items() if form in ("bf16", "fp8")])
    parser.add_argument("--tokens", nargs="*", type=int, default=TOKENS)
    parser.add_argument("--routing", default="uniform", choices=["uniform", "zipf"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("served_moe: no GPU here")
    rows, missing = [], {}
    for model in options.models:
        weights, ratios = Weights(model), {}
        for tokens in options.tokens:
            case = Served(weights, tokens, options.routing)
            found = measure(case, calls_of(case, missing, model), options.rounds, missing, f"{model}, {tokens} tokens")
            rows += rows_of(case, model, options.routing, found)
            print(f"{model:20} {tokens:5}  " + "  ".join(f"{name} {median:.1f} ({error:.1e})" for name, (median, error) in found.items()), flush=True)
            for name, (median, _) in found.items():
                if OURS in found and name != OURS:
                    ratios.setdefault(name, []).append(median / found[OURS][0])
            del case
            if options.csv and rows:  # a run that is ended keeps what it has
                write_rows(options.csv, rows)
        for name, values in ratios.items():
            print(f"{model:20} {name} over {OURS}: geometric mean {geometric_mean(values):.3f}, least {min(values):.3f}", flush=True)
        del weights
        torch.cuda.empty_cache()
    for name, why in missing.items():
        print(f"not there: {name}: {why}")


if __name__ == "__main__":
    main()
