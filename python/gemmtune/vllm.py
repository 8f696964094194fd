"""gemmtune.vllm.report(): what the plug-in of vLLM (the package gemmtune-vllm, docs/vllm.md) does in this process."""

from gemmtune_vllm import report

__all__ = ["report"]
