"""Quantized checkpoints as they are: the tensors of a layer become the operands of gemmtune's operations. Needs PyTorch; reading files
needs safetensors. Manual: docs/checkpoints.md.

    from gemmtune import checkpoints
    checkpoint = checkpoints.Checkpoint("Qwen3-8B-AWQ", device="cuda:0")
    weight = checkpoint.read_layer("model.layers.0.self_attn.q_proj")
"""

from .checkpoint import Checkpoint
from .packings import (QuantizedExperts, QuantizedWeight, awq, compressed_int4, compressed_nvfp4, gate_first, gpt_oss_mxfp4, gptq, modelopt_nvfp4,
                       stack_experts, stack_weights)

__all__ = ["Checkpoint", "QuantizedExperts", "QuantizedWeight", "awq", "compressed_int4", "compressed_nvfp4", "gate_first", "gpt_oss_mxfp4", "gptq",
           "modelopt_nvfp4", "stack_experts", "stack_weights"]
