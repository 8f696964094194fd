#!/usr/bin/env python3
"""Writes a Llama of random 4-bit weights as a checkpoint of compressed-tensors, for servers that are measured. No weight is quantized: words and
scales are drawn, so that 8 billion weights take seconds on a GPU. The effective weights have a standard deviation of about 0.02.

Usage: quantized_model.py FOLDER int4|nvfp4|nvfp4_as_bf16 [LAYERS]
Sizes of Llama-3.1-8B (LAYERS: 32). int4: symmetric, groups of 128; nvfp4: x stays bf16; nvfp4_as_bf16: the weights of nvfp4, which bf16 holds exactly.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD, VOCABULARY = 4096, 14336, 32, 8, 128, 128256
INT4_SPREAD = 4.61  # standard deviation of equally likely elements from -8 to 7; of e2m1 it is 2.93
GLOBAL_DIVISOR = 2048.0
device = "cuda" if torch.cuda.is_available() else "cpu"


def linear(form, n, k):
    if form == "int4":
        scale = (0.5 + torch.rand(n, k // 128, device=device)) * (0.02 / INT4_SPREAD)
        return {"weight_packed": torch.randint(-2**31, 2**31, (n, k // 8), dtype=torch.int32, device=device), "weight_scale": scale.bfloat16(),
                "weight_shape": torch.tensor([n, k])}
    scale = (8 + 16 * torch.rand(n, k // 16, device=device)).to(torch.float8_e4m3fn)
    pairs = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device=device)
    if form == "nvfp4":
        return {"weight_packed": pairs, "weight_scale": scale, "weight_global_scale": torch.tensor([GLOBAL_DIVISOR])}
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device=device)
    elements = torch.stack([values[(pairs & 15).long()], values[(pairs >> 4).long()]], 2).flatten(1)
    return {"weight": (elements * (scale.float() / GLOBAL_DIVISOR).repeat_interleave(16, 1)).bfloat16()}


def main(folder, form, layers=32):
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(0)
    plain = {"model.norm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16)}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        plain[name] = (0.02 * torch.randn(VOCABULARY, HIDDEN, device=device)).bfloat16()
    save_file({name: tensor.cpu() for name, tensor in plain.items()}, f"{folder}/model-plain.safetensors", metadata={"format": "pt"})
    sizes = {"self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN), "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
             "self_attn.o_proj": (HIDDEN, HEADS * HEAD), "mlp.gate_proj": (INTERMEDIATE, HIDDEN), "mlp.up_proj": (INTERMEDIATE, HIDDEN),
             "mlp.down_proj": (HIDDEN, INTERMEDIATE)}
    for i in range(int(layers)):
        tensors = {f"model.layers.{i}.{name}.weight": torch.ones(HIDDEN, dtype=torch.bfloat16) for name in ("input_layernorm", "post_attention_layernorm")}
        for name, (n, k) in sizes.items():
            tensors.update({f"model.layers.{i}.{name}.{part}": tensor.cpu() for part, tensor in linear(form, n, k).items()})
        save_file(tensors, f"{folder}/model-{i:02}.safetensors", metadata={"format": "pt"})
    weights = {"num_bits": 4, "symmetric": True, "dynamic": False, **({"type": "int", "strategy": "group", "group_size": 128} if form == "int4" else
                                                                       {"type": "float", "strategy": "tensor_group", "group_size": 16})}
    quantization = {"quant_method": "compressed-tensors", "format": "pack-quantized" if form == "int4" else "nvfp4-pack-quantized", "ignore": ["lm_head"],
                    "quantization_status": "compressed",
                    "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}}}
    with open(f"{folder}/config.json", "w") as file:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
                   "num_hidden_layers": int(layers), "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
                   "vocab_size": VOCABULARY, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
                   "torch_dtype": "bfloat16", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "attention_bias": False,
                   "mlp_bias": False, **({} if form == "nvfp4_as_bf16" else {"quantization_config": quantization})}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
