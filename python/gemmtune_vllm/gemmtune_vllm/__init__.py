"""vLLM plug-in: linear layers run the kernels of gemmtune's tuned files. Manual: docs/vllm.md.

vLLM calls register() in each of its processes (entry point group vllm.general_plugins). Importing this module needs neither
vLLM nor PyTorch."""

import logging
import os

__version__ = "0.2.0"
__all__ = ["register", "report"]

# A child of vLLM's logger: its handler, format and level.
logger = logging.getLogger("vllm.gemmtune")
_registered = False


def report():
    """What the plug-in does in this process; docs/vllm.md has the fields. vLLM's engine is another process: llm.collective_rpc("report_of_gemmtune")
    asks its workers."""
    from . import plugin
    return plugin.report()


def register():
    """Puts gemmtune's kernels before vLLM's. Does nothing, with one log line, where GEMMTUNE_VLLM=0 says so or something
    needed is missing. A second call does nothing."""
    global _registered
    if _registered:
        return
    _registered = True
    switch = os.environ.get("GEMMTUNE_VLLM", "1")
    if switch == "0":
        logger.info("gemmtune: off (GEMMTUNE_VLLM=0)")
        return
    if switch != "1":
        logger.warning("gemmtune: off: GEMMTUNE_VLLM is '%s', expected 0 or 1", switch)
        return
    try:
        from . import plugin
        plugin.install()
    except Exception as error:  # vLLM must start without us
        logger.warning("gemmtune: off: %s: %s", type(error).__name__, error)
