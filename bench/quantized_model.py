#!/usr/bin/env python3
"""Writes a model of random weights as a checkpoint of safetensors with a config.json, for servers that are measured. No weight is quantized: elements and
scales are drawn, so that 30 billion weights take a minute on a GPU. Weights have a standard deviation of about 0.02, and activations stay finite.

vLLM's own `--load-format dummy` does for the speed of bf16 models: bench/vllm_engines.py uses it for a folder that has a config.json alone
(--without-weights). It does not do for the others. It leaves packed integers as the memory was, which as scales of MXFP4 may be NaNs, and its fp8
elements are nearly all zero. All layers get the same weights, so that equal tokens say little there."""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import save_file

MODELS = Path(__file__).resolve().parent.parent / "models"  # the sizes
# What a server needs besides the sizes, as the published models have it. No more positions than a run needs.
CONFIGS = {
    "llama-3.1-8b": {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "mlp_bias": False,
                     "bos_token_id": 1, "eos_token_id": 2},
    "qwen3-30b-a3b": {"architectures": ["Qwen3MoeForCausalLM"], "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
                      "norm_topk_prob": True, "use_sliding_window": False, "bos_token_id": 151643, "eos_token_id": 151645},
    "gpt-oss-20b": {"architectures": ["GptOssForCausalLM"], "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 150000,
                    "initial_context_length": 4096, "sliding_window": 128, "swiglu_limit": 7.0, "eos_token_id": 200002, "pad_token_id": 199999,
                    "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096,
                                     "truncate": False}},
}
FORMS = {  # of a model
    "llama-3.1-8b": ["bf16", "fp8", "fp8_per_token", "int8", "int4", "awq", "nvfp4", "nvfp4_as_bf16"],
    "qwen3-30b-a3b": ["bf16", "fp8", "int4", "awq", "nvfp4"],
    "gpt-oss-20b": ["mxfp4"],
}
SPREAD = 0.02  # standard deviation of a weight
INT4_SPREAD = 4.61  # standard deviation of equally likely elements from -8 to 7; of e2m1 it is 2.93
FP8_SPREAD = 64.0
INT8_SPREAD = 73.6  # of equally likely elements from -127 to 127
GLOBAL_DIVISOR = 2048.0  # of NVFP4
E8M0_EXPONENT = 120  # 2^-7
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
GROUP, BLOCK = 128, 128
device = "cuda" if torch.cuda.is_available() else "cpu"


# ---- weights ----------------------------------------------------------------------------------------------------------------------------

def normal(*shape, spread=SPREAD):
    return torch.randn(*shape, dtype=torch.bfloat16, device=device) * spread


def between(low, high, *shape):
    return low + (high - low) * torch.rand(*shape, device=device)


def words(*shape):
    return torch.randint(-2**31, 2**31, shape, dtype=torch.int32, device=device)


def octets(*shape):
    return torch.randint(0, 256, shape, dtype=torch.uint8, device=device)


def matrices(form, count, n, k):
    """`count` weights [n, k] in the checkpoint's form: the part's name -> a tensor [count, ...]. int4: symmetric in groups of 128 along k, words of eight
    along k; awq: words of eight along n, with zero points of 8; fp8: scales of blocks of 128 x 128; fp8_per_token, int8: a scale for each of n; nvfp4:
    scales of 16 along k."""
    if form == "bf16":
        return {"weight": normal(count, n, k)}
    if form in ("fp8", "fp8_per_token"):
        elements = torch.empty(count, n, k, dtype=torch.float8_e4m3fn, device=device)
        for element in elements:  # float32 and bf16 of all would not fit beside them
            element.copy_(normal(n, k, spread=FP8_SPREAD).clamp_(-448, 448))
        blocks = (-(-n // BLOCK), -(-k // BLOCK)) if form == "fp8" else (n, 1)
        scale = between(0.5, 1.5, count, *blocks) * (SPREAD / FP8_SPREAD)
        return {"weight": elements, "weight_scale_inv" if form == "fp8" else "weight_scale": scale.bfloat16()}
    if form == "int8":
        scale = between(0.5, 1.5, count, n, 1) * (SPREAD / INT8_SPREAD)
        return {"weight": torch.randint(-127, 128, (count, n, k), dtype=torch.int8, device=device), "weight_scale": scale.bfloat16()}
    if form == "int4":
        scale = between(0.5, 1.5, count, n, k // GROUP) * (SPREAD / INT4_SPREAD)
        return {"weight_packed": words(count, n, k // 8), "weight_scale": scale.bfloat16(), "weight_shape": torch.tensor([[n, k]] * count)}
    if form == "awq":
        scale = between(0.5, 1.5, count, k // GROUP, n) * (SPREAD / INT4_SPREAD)
        zeros = torch.full((count, k // GROUP, n // 8), 0x88888888 - 2**32, dtype=torch.int32)
        return {"qweight": words(count, k, n // 8), "qzeros": zeros, "scales": scale.half()}
    scale, pairs = between(8, 24, count, n, k // 16).to(torch.float8_e4m3fn), octets(count, n, k // 2)
    if form == "nvfp4":
        return {"weight_packed": pairs, "weight_scale": scale, "weight_global_scale": torch.full((count, 1), GLOBAL_DIVISOR)}
    values = torch.tensor(E2M1, device=device)  # nvfp4_as_bf16: bf16 holds them exactly
    elements = torch.stack([values[(pairs & 15).long()], values[(pairs >> 4).long()]], 3).flatten(2)
    return {"weight": (elements * (scale.float() / GLOBAL_DIVISOR).repeat_interleave(16, 2)).bfloat16()}


def linear(form, name, n, k, bias=False):
    tensors = {f"{name}.{part}": tensor[0] for part, tensor in matrices(form, 1, n, k).items()}
    return {**tensors, f"{name}.bias": normal(n, spread=0.1)} if bias else tensors


def attention(form, config, layer):
    hidden, heads, kv_heads, head = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    bias = config.get("attention_bias", False)
    tensors = {}
    for name, n, k in (("q", heads * head, hidden), ("k", kv_heads * head, hidden), ("v", kv_heads * head, hidden), ("o", hidden, heads * head)):
        tensors |= linear(form, f"{layer}.self_attn.{name}_proj", n, k, bias)
    if config["model_type"] == "qwen3_moe":
        tensors |= {f"{layer}.self_attn.{name}_norm.weight": torch.ones(head, dtype=torch.bfloat16) for name in "qk"}
    if config["model_type"] == "gpt_oss":
        tensors[f"{layer}.self_attn.sinks"] = normal(heads, spread=1.0)
    return tensors


def dense_mlp(form, config, layer):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    return (linear(form, f"{layer}.mlp.gate_proj", inner, hidden) | linear(form, f"{layer}.mlp.up_proj", inner, hidden) |
            linear(form, f"{layer}.mlp.down_proj", hidden, inner))


def separate_experts(form, config, layer):
    """Three weights for each expert, and the router in bf16."""
    hidden, inner, experts = config["hidden_size"], config["moe_intermediate_size"], config["num_experts"]
    tensors = linear("bf16", f"{layer}.mlp.gate", experts, hidden)
    for name, n, k in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
        for part, stack in matrices(form, experts, n, k).items():
            tensors |= {f"{layer}.mlp.experts.{expert}.{name}_proj.{part}": tensor for expert, tensor in enumerate(stack)}
    return tensors


def stacked_mxfp4_experts(config, layer):
    """gpt-oss: rows of gate and up alternate; [experts, rows, groups of 32, 16 bytes], scales in e8m0, biases."""
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    tensors = linear("bf16", f"{layer}.mlp.router", experts, hidden, bias=True)
    for name, n, k in (("gate_up_proj", 2 * inner, hidden), ("down_proj", hidden, inner)):
        scale = torch.randint(E8M0_EXPONENT - 1, E8M0_EXPONENT + 1, (experts, n, k // 32), dtype=torch.uint8, device=device)
        tensors |= {f"{layer}.mlp.experts.{name}_blocks": octets(experts, n, k // 32, 16), f"{layer}.mlp.experts.{name}_scales": scale,
                    f"{layer}.mlp.experts.{name}_bias": normal(experts, n, spread=0.1)}
    return tensors


def layer_of(form, config, index):
    layer, hidden = f"model.layers.{index}", config["hidden_size"]
    tensors = {f"{layer}.{name}.weight": torch.ones(hidden, dtype=torch.bfloat16) for name in ("input_layernorm", "post_attention_layernorm")}
    if config["model_type"] == "gpt_oss":
        return tensors | attention("bf16", config, layer) | stacked_mxfp4_experts(config, layer)
    mlp = separate_experts if "num_experts" in config else dense_mlp
    return tensors | attention(form, config, layer) | mlp(form, config, layer)


def outside_layers(config):
    tensors = {"model.norm.weight": torch.ones(config["hidden_size"], dtype=torch.bfloat16)}
    for name in ("model.embed_tokens", "lm_head"):
        tensors |= linear("bf16", name, config["vocab_size"], config["hidden_size"])
    return tensors


# ---- files ------------------------------------------------------------------------------------------------------------------------------

def compressed(layout, routers, group):
    """What compressed-tensors writes of one group of layers."""
    return {"quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head", *routers], "quantization_status": "compressed",
            "config_groups": {"group_0": {**group, "output_activations": None}}}


def quantization_of(form, config):
    """What config.json says of the form, or None."""
    layers = range(config["num_hidden_layers"])
    routers = [f"model.layers.{i}.mlp.gate" for i in layers] if "num_experts" in config else []
    if form == "fp8":
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [BLOCK, BLOCK],
                "modules_to_not_convert": ["lm_head", *routers]}
    if form == "awq":
        return {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm", "modules_to_not_convert": routers or None}
    if form == "mxfp4":
        return config["quantization_config"]
    if form in ("fp8_per_token", "int8"):
        kind = {"num_bits": 8, "type": "int" if form == "int8" else "float", "symmetric": True}
        group = {"targets": ["Linear"], "weights": {**kind, "strategy": "channel", "dynamic": False},
                 "input_activations": {**kind, "strategy": "token", "dynamic": True}}
        return compressed("int-quantized" if form == "int8" else "float-quantized", routers, group)
    if form in ("int4", "nvfp4"):
        kind = {"type": "int", "strategy": "group", "group_size": GROUP} if form == "int4" else {"type": "float", "strategy": "tensor_group", "group_size": 16}
        group = {"targets": ["Linear"], "weights": {"num_bits": 4, "symmetric": True, "dynamic": False, **kind}, "input_activations": None}
        return compressed("pack-quantized" if form == "int4" else "nvfp4-pack-quantized", routers, group)
    return None


def config_of(asked):
    config = {"attention_bias": False, "hidden_act": "silu", "tie_word_embeddings": False, **json.loads((MODELS / asked.model / "config.json").read_text()),
              **CONFIGS[asked.model]}
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    config["num_hidden_layers"] = asked.layers or config["num_hidden_layers"]
    config["vocab_size"] = asked.vocabulary or config["vocab_size"]
    experts = next((name for name in ("num_experts", "num_local_experts") if name in config), None)
    if asked.experts and experts is None:
        sys.exit(f"quantized_model: {asked.model} has no experts")
    if asked.experts:
        if asked.experts < config["num_experts_per_tok"]:
            sys.exit(f"quantized_model: --experts {asked.experts}: expected at least {config['num_experts_per_tok']}, which a token has")
        config[experts] = asked.experts
    if config["model_type"] == "gpt_oss":
        config["layer_types"] = [("sliding_attention", "full_attention")[i % 2] for i in range(config["num_hidden_layers"])]
    quantization = quantization_of(asked.form, config)
    return {**config, "quantization_config": quantization} if quantization else config


def write(tensors, path):
    """Bytes written."""
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    return path.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="is made; must be empty")
    parser.add_argument("model", choices=list(CONFIGS))
    parser.add_argument("form", help="; ".join(f"{model}: {', '.join(forms)}" for model, forms in FORMS.items()) +
                        ". fp8: blocks of 128 x 128; fp8_per_token: compressed-tensors, a scale for each row of the weight; int8: the same of int8; int4: compressed-tensors, groups of "
                        "128; awq: groups of 128 with zero points; nvfp4: bf16 x; nvfp4_as_bf16: the weights of nvfp4, which bf16 holds exactly")
    parser.add_argument("--layers", type=int, help="fewer than the model has, where memory or disk needs it")
    parser.add_argument("--experts", type=int, help="fewer experts, for a try on a CPU")
    parser.add_argument("--vocabulary", type=int, help="fewer tokens, for a try on a CPU")
    parser.add_argument("--without-weights", action="store_true", help="config.json alone, of bf16: vLLM draws the weights")
    asked = parser.parse_args()
    if asked.without_weights and asked.form != "bf16":
        sys.exit(f"quantized_model: --without-weights with {asked.form}: expected bf16")
    if asked.form not in FORMS[asked.model]:
        sys.exit(f"quantized_model: {asked.model} has no form '{asked.form}', expected one of {', '.join(FORMS[asked.model])}")
    asked.folder.mkdir(parents=True, exist_ok=True)
    if any(asked.folder.iterdir()):
        sys.exit(f"quantized_model: {asked.folder} has files, expected an empty folder")
    torch.manual_seed(0)
    config = config_of(asked)
    (asked.folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if asked.without_weights:
        return
    with ThreadPoolExecutor(4) as pool:  # layers are drawn in order, and written beside that
        writes = [pool.submit(write, outside_layers(config), asked.folder / "model-plain.safetensors")]
        for index in range(config["num_hidden_layers"]):
            if len(writes) >= 4:
                writes[-4].result()  # no more than four wait in memory
            writes.append(pool.submit(write, layer_of(asked.form, config, index), asked.folder / f"model-{index:02}.safetensors"))
        size = sum(one.result() for one in writes)
    print(f"{asked.folder}: {config['num_hidden_layers']} layers, {size / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
