"""Real vLLM on a CPU with the plug-in: small models of random weights, recorded, tuned, served. Run by tools/test_vllm_cpu.sh.

Usage: vllm_real.py [KIND ...]              kinds of layers (all), one line each; exit status 1 if one is not as expected
       vllm_real.py make KIND FOLDER        writes a model
       vllm_real.py serve FOLDER eager|compiled   serves it and prints tokens and the plug-in's report as JSON

Both sides must give the same tokens, and calls must have been served by tuned rows. vLLM rounds the elements of int4 weights to bf16, and gemmtune
does not: there the log-probabilities of the first tokens must be near each other. vLLM's kernels for MXFP4 experts need AMX, and it has none for
NVFP4 layers: the stock engine serves the same weights in bf16."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = {"bf16": "a16w16", "fp8 per token": "a8w8", "int8": "a8w8", "AWQ": "a16w4_int4", "GPTQ": "a16w4_int4", "int4": "a16w4_int4",
         "NVFP4": "a16w4_nvfp4", "mixture": "fused_moe", "gpt-oss": "fused_moe", "gpt-oss MXFP4": "fused_moe"}
FILES = {"a16w16": "bf16_untuned_gemm.csv", "a8w8": "a8w8_untuned_gemm.csv", "a16w4_int4": "a16w4_int4_untuned_gemm.csv",
         "a16w4_nvfp4": "a16w4_nvfp4_untuned_gemm.csv", "fused_moe": "untuned_fmoe.csv"}
STOCK = {"gpt-oss MXFP4": "gpt-oss", "NVFP4": "NVFP4 as bf16"}  # kind -> the one that the stock engine serves
# vLLM rounds elements of the weight; products of int8's scales are rounded in another order, of 8,000 outputs one to the other neighbour.
ROUNDED = {"AWQ", "GPTQ", "int4", "NVFP4", "int8"}
MAX_DIFFERENCE = 0.1  # of their log-probabilities
CALLS = ((1, 8, 32), (4, 8, 32), (16, 8, 20), (1, 1, 200))  # sequences, tokens out, tokens in


def make(kind, folder):
    import torch
    if KINDS.get(kind) == "fused_moe":
        make_mixture(kind, folder)
        return
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1024,
                         max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    if kind == "bf16":
        model.save_pretrained(folder)
        return
    tensors = model.state_dict()
    if kind not in ("fp8 per token", "int8"):
        save(folder, *with_4_bits(tensors, kind), config, "LlamaForCausalLM")
        return
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weight = tensors[name].float()
        scale = weight.abs().amax(1, keepdim=True) / (127 if kind == "int8" else 448)
        tensors[name] = (weight / scale).round().to(torch.int8) if kind == "int8" else (weight / scale).to(torch.float8_e4m3fn)
        tensors[f"{name}_scale"] = scale
    operand = {"num_bits": 8, "type": "int" if kind == "int8" else "float", "symmetric": True, "block_structure": None, "group_size": None}
    model.config.quantization_config = {
        "quant_method": "compressed-tensors", "format": "int-quantized" if kind == "int8" else "float-quantized", "ignore": ["lm_head"], "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {**operand, "strategy": "channel", "dynamic": False},
                                      "input_activations": {**operand, "strategy": "token", "dynamic": True}}}}
    save(folder, tensors, model.config.quantization_config, config, "LlamaForCausalLM")


def with_4_bits(tensors, kind):
    """(tensors whose linear layers are in 4 bits, quantization_config)."""
    from quantized import Int4, values
    from gemmtune import checkpoints
    import torch

    def int4(weight, symmetric):
        made = Int4(*weight.shape, 128)
        groups = weight.float().unflatten(1, (-1, 128))
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        made.scales = (2 * groups.abs().amax(2) / 15 if symmetric else (high - low) / 15).to(torch.float16)
        made.zeros = torch.full(low.shape, 8) if symmetric else (-low / made.scales).round().long().clamp(0, 15)
        made.q = ((groups / made.scales[..., None]).round() + made.zeros[..., None]).clamp(0, 15).long().flatten(1)
        return made

    def nvfp4(weight):
        groups, global_scale = weight.float().unflatten(1, (-1, 16)), 6 * 448 / weight.float().abs().max()
        scale = (groups.abs().amax(2) / 6 * global_scale).to(torch.float8_e4m3fn)
        grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
        code = (groups / (scale.float() / global_scale)[..., None]).unsqueeze(-1).sub(grid).abs().argmin(-1).flatten(1).to(torch.uint8)
        return {"weight_packed": code[:, ::2] | code[:, 1::2] << 4, "weight_scale": scale, "weight_global_scale": global_scale.reshape(1),
                "input_global_scale": torch.tensor([1.0])}

    made = {}
    for name, tensor in tensors.items():
        if not name.endswith("_proj.weight"):
            made[name] = tensor
            continue
        layer = name.removesuffix("weight")
        if kind == "AWQ":
            new = int4(tensor, False).awq()
        elif kind == "GPTQ":
            new = int4(tensor, True).gptq()
        elif kind == "int4":
            new = int4(tensor, False).compressed()
            del new["weight_g_idx"]
        else:
            new = nvfp4(tensor)
            if kind == "NVFP4 as bf16":
                del new["input_global_scale"]
                new = {"weight": values(checkpoints.compressed_nvfp4(**new)).to(torch.bfloat16)}
        made.update({layer + key: value for key, value in new.items()})
    int4_weights = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 128}
    nvfp4_operand = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
    group = {"targets": ["Linear"], "weights": int4_weights} if kind == "int4" else {
        "targets": ["Linear"], "weights": nvfp4_operand, "input_activations": {**nvfp4_operand, "dynamic": "local"}}
    compressed = {"quant_method": "compressed-tensors", "format": "pack-quantized" if kind == "int4" else "nvfp4-pack-quantized", "ignore": ["lm_head"],
                  "quantization_status": "compressed", "config_groups": {"group_0": group}}
    configs = {"AWQ": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
               "GPTQ": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "checkpoint_format": "gptq"},
               "NVFP4 as bf16": None}
    return made, configs.get(kind, compressed)


def save(folder, tensors, quantization, config, architecture):
    from safetensors.torch import save_file
    Path(folder).mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, f"{folder}/model.safetensors", metadata={"format": "pt"})
    quantized = {"quantization_config": quantization} if quantization else {}
    (Path(folder) / "config.json").write_text(json.dumps({**config.to_dict(), "architectures": [architecture], "torch_dtype": "bfloat16", **quantized}))


def make_mixture(kind, folder):
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
    from vllm_mixtures_double import quantized
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024,
             "max_position_embeddings": 512, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}
    if kind == "mixture":
        config = Qwen3MoeConfig(**sizes, intermediate_size=512, moe_intermediate_size=128, num_experts=16, num_experts_per_tok=4, norm_topk_prob=True)
        Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
        return
    config = GptOssConfig(**sizes, intermediate_size=128, num_local_experts=8, num_experts_per_tok=2, sliding_window=128)
    model = GptOssForCausalLM(config).to(torch.bfloat16)
    tensors = model.state_dict()
    for name in list(tensors):
        if name.endswith(("gate_up_proj", "down_proj")):  # [E, columns, rows] of bf16, of MXFP4 [E, rows, groups, 16] bytes
            stored, scale, exact = quantized(tensors[name].float().transpose(1, 2).contiguous() * 4, "mxfp4")
            tensors[name] = exact.transpose(1, 2).to(torch.bfloat16)
            if kind == "gpt-oss MXFP4":
                tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = stored.unflatten(2, (-1, 16)), scale
                del tensors[name]
        elif name.endswith("bias"):
            tensors[name] = torch.randn(tensors[name].shape).to(torch.bfloat16) / 10
    if kind == "gpt-oss":
        model.load_state_dict(tensors)
        model.save_pretrained(folder)
    else:
        save(folder, tensors, {"quant_method": "mxfp4"}, config, "GptOssForCausalLM")


def serve(folder, eager):
    from vllm import LLM, SamplingParams, TokensPrompt
    engine = LLM(folder, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=eager, max_model_len=256, max_num_seqs=16, seed=0,
                 max_num_batched_tokens=256)
    tokens, first = [], []
    for sequences, out, inside in CALLS:
        prompts = [TokensPrompt(prompt_token_ids=[(i * 37 + j * 11) % 1000 + 5 for j in range(inside)]) for i in range(sequences)]
        done = engine.generate(prompts, SamplingParams(max_tokens=out, ignore_eos=True, temperature=0, logprobs=5, detokenize=False), use_tqdm=False)
        tokens.append([list(one.outputs[0].token_ids) for one in done])
        first += [{token: found.logprob for token, found in one.outputs[0].logprobs[0].items()} for one in done]
    report = engine.collective_rpc("report_of_gemmtune")[0] if os.environ.get("GEMMTUNE_VLLM") != "0" else None
    print("RESULT", json.dumps({"tokens": tokens, "first": first, "report": report}), flush=True)


def run(folder, mode, **variables):
    """What serve() printed."""
    environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": worker_cores(),
                   **os.environ, **variables}
    done = subprocess.run([sys.executable, __file__, "serve", folder, mode], env=environment, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines() + done.stderr.splitlines():
        if re.search(r"gemmtune( [\d.]+)?: ", line):
            print("   ", line.split("] ")[-1])
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not found:
        sys.exit(f"vLLM ended with exit status {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return json.loads(found[0][7:])


def worker_cores():
    """The cores of vLLM's worker, all but one: rows must have been measured on as many."""
    cores = sorted(os.sched_getaffinity(0))
    return ",".join(str(core) for core in cores[:max(1, len(cores) - 1)])


def check(kind, operation):
    """Why a kind of layers is not as expected, or None."""
    with tempfile.TemporaryDirectory() as scratch:
        model, shapes, table = f"{scratch}/model", f"{scratch}/shapes", f"{scratch}/tuned.csv"
        of_stock = f"{scratch}/stock" if kind in STOCK else model
        for made, place in {kind: model, STOCK.get(kind, kind): of_stock}.items():
            subprocess.run([sys.executable, __file__, "make", made, place], check=True, capture_output=True)
        stock = run(of_stock, "eager", GEMMTUNE_VLLM="0")
        recorded = run(model, "eager", GEMMTUNE_CAPTURE=shapes)
        if kind not in STOCK and recorded["tokens"] != stock["tokens"]:
            return "other tokens while shapes are recorded"
        subprocess.run([sys.executable, "-m", "gemmtune", "tune", "-i", f"{shapes}/{FILES[operation]}", "--op", operation, "--device", f"cpu:{worker_cores()}",
                        "--search", "random", "--iters", "2", "--confirmations", "1", "--budget", "60", "-o", table], check=True, capture_output=True)
        variable = {f"GEMMTUNE_CONFIG_{operation.upper()}": table}
        for mode in ("eager", "compiled"):
            served = run(model, mode, **variable)
            print(f"{kind}, {mode}: {served['report']['calls']}, {len(served['report']['ours'])} of "
                  f"{served['report']['linear_layers'] + served['report']['mixtures']} layers")
            if not served["report"]["calls"]["tuned"]:
                return f"{mode}: no call was served by a tuned row"
            if mode == "eager" and (why := difference(served, stock, kind in ROUNDED)):
                return why
    return None


def difference(served, stock, rounded):
    """Why the plug-in's outputs are not those of the stock engine, or None."""
    if not rounded:
        return "other tokens with tuned kernels" if served["tokens"] != stock["tokens"] else None
    largest = max(abs(a[token] - b[token]) for a, b in zip(served["first"], stock["first"]) for token in a.keys() & b.keys())
    pairs = [(a, b) for call, of_stock in zip(served["tokens"], stock["tokens"]) for a, b in zip(call, of_stock)]
    print(f"    equal tokens in {sum(a == b for a, b in pairs)} of {len(pairs)} sequences; first log-probabilities differ by at most {largest:.4f}")
    return f"log-probabilities differ by {largest}" if largest > MAX_DIFFERENCE else None


def main(kinds):
    failed = 0
    for kind, operation in [(kind, KINDS[kind]) for kind in kinds or KINDS]:
        why = check(kind, operation)
        print(f"{kind}: {why or 'as expected'}", flush=True)
        failed += why is not None
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(*sys.argv[2:])
    elif sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2], sys.argv[3] == "eager")
    else:
        sys.exit(main(sys.argv[1:]))
