"""install(): hooks into vLLM. Layers are chosen when a model was loaded: those for which a tuned row answers one of the sizes
that vLLM will run. The others stay exactly as they were."""

import functools
import hashlib
import time

import torch

import gemmtune

from . import interface, kernels, logger, operators

_vllm = None


def install():
    """Registers the kernels and follows the loading of models."""
    global _vllm
    _vllm = interface.find()
    if not _vllm.parts:
        logger.warning("gemmtune: off: this vLLM differs from what the plug-in knows: %s",
                       "; ".join(sentence for _, sentence in _vllm.missing))
        return
    if getattr(_vllm.envs, "VLLM_BATCH_INVARIANT", False):
        logger.info("gemmtune: off: VLLM_BATCH_INVARIANT is set, and a tuned file names different kernels for different M")
        _vllm.parts = []
        return
    if _vllm.missing:
        logger.warning("gemmtune: no %s layers: this vLLM differs from what the plug-in knows: %s",
                       ", ".join(part for part, _ in _vllm.missing), "; ".join(sentence for _, sentence in _vllm.missing))
    kernels.register(_vllm)
    _vllm.loader.load_model = _following(_vllm.load_model)


def _following(load_model):
    @functools.wraps(load_model)
    def load(self, *arguments, **options):
        model = load_model(self, *arguments, **options)
        config = options.get("vllm_config", arguments[0] if arguments else None)
        try:
            _choose_layers(model, config)
        except Exception as error:  # layers that are not ours run as before
            logger.warning("gemmtune: %s: %s; vLLM's kernels run in the layers that are left", type(error).__name__, error)
        return model
    return load


def _sizes(config):
    """(M of the CUDA graphs, M to ask the look-up for)."""
    graphs = getattr(getattr(config, "compilation_config", None), "cudagraph_capture_sizes", None) or []
    longest = getattr(getattr(config, "scheduler_config", None), "max_num_batched_tokens", None) or 8192
    powers = [1 << exponent for exponent in range(longest.bit_length())]
    return sorted(set(graphs)), sorted({*graphs, *powers, longest})


class _Unquantized:
    """A linear layer of bf16 or fp16."""

    def __init__(self, name, layer, method):
        self.name, self.layer, self.method = name, layer, method
        self.weight = layer.weight

    @staticmethod
    def fits(layer):
        weight = getattr(layer, "weight", None)
        return (isinstance(weight, torch.Tensor) and weight.dim() == 2 and weight.dtype in (torch.bfloat16, torch.float16) and
                weight.is_contiguous() and weight.numel() > 0)

    def biases(self):
        bias = getattr(self.layer, "bias", None)
        return [None] if bias is None else [None, bias]

    def size(self, m, bias):
        n, k = self.weight.shape
        return operators.device_of(self.weight), "plain", m, n, k, self.weight.dtype, self.weight.dtype, bias is not None

    def run(self, m, bias):
        operators.ops.linear(torch.zeros(m, self.weight.shape[1], dtype=self.weight.dtype, device=self.weight.device),
                             self.weight, bias)

    def keep_fallback(self):
        layer, dispatch = self.layer, _vllm.dispatch_unquantized_gemm
        operators.unquantized[tuple(self.weight.shape)] = lambda x, weight, bias: dispatch()(layer, x, weight, bias)

    def take(self):
        self.method.apply = _apply_unquantized


def _apply_unquantized(layer, x, bias=None):
    return operators.ops.linear(x, layer.weight, bias)


def _layers(model):
    """The layers that gemmtune could run, and how many linear layers there are."""
    found, total = [], 0
    methods = (_vllm.linear_method, _vllm.embedding_method) if "bf16" in _vllm.parts else ()
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if type(method) not in methods or type(module).__name__ == "VocabParallelEmbedding":
            continue  # a tied embedding is no linear layer either: its product runs once a step
        total += 1
        if _Unquantized.fits(module):
            found.append(_Unquantized(name, module, method))
    loaded, kernels.loaded[:] = list(kernels.loaded), []
    total += len(loaded)
    found += [layer for layer in loaded if layer.fits()]
    return found, total


def _choose_layers(model, config):
    start = time.monotonic()
    graphs, asked = _sizes(config)
    layers, total = _layers(model)
    recording = operators.recording()
    answered, taken, plans = {}, [], set()

    def is_answered(size):
        if size not in answered:
            answered[size] = operators.answered(size)
        return answered[size]

    for layer in layers:
        layer.keep_fallback()  # of all: a compiled graph of an earlier run may have more of our operators
        if not recording and not any(is_answered(layer.size(m, bias)) for bias in layer.biases() for m in asked):
            continue
        layer.take()
        taken.append(layer)
        if recording:  # sizes that the model does not run must not get into the file
            continue
        with torch.inference_mode():
            for bias in layer.biases():
                for m in graphs:
                    size = layer.size(m, bias)
                    if size not in plans and is_answered(size):
                        plans.add(size)
                        layer.run(m, bias)
    _tell_compile_cache(config, taken)
    if recording:
        logger.info("gemmtune %s: records the sizes of %d of %d linear layers", gemmtune.__version__, len(taken), total)
        return
    logger.info("gemmtune %s: %d of %d linear layers have tuned kernels; %d plans for %d CUDA-graph sizes made ahead in %.1f s "
                "(GEMMTUNE_VLLM=0 turns this off)", gemmtune.__version__, len(taken), total, len(plans), len(graphs),
                time.monotonic() - start)


def _tell_compile_cache(config, taken):
    """vLLM finds compiled graphs of an earlier run by a hash of its configuration, additional_config included."""
    additional = getattr(config, "additional_config", None)
    if taken and isinstance(additional, dict):
        names = "\n".join(sorted(layer.name for layer in taken))
        additional["gemmtune"] = hashlib.sha256(names.encode()).hexdigest()[:16]
