"""Mixtures of experts of vLLM's CPU backend. It packs the weights of a layer's experts when they were loaded. A layer for which a tuned row
answers keeps the checkpoint's weights in place of the packed ones, and gemmtune's fused_moe runs all of its sizes.

vLLM's kernels for fp8, int8 and MXFP4 experts need AMX. On a CPU without it vLLM refuses such a model; with the plug-in gemmtune's run it."""

import contextlib
import functools

from . import cpu, mixtures, operators

_kinds = {"CPUExpertsFp8": mixtures.fp8_blocks, "CPUExpertsInt8": mixtures.int8_rows, "CPUExpertsMxfp4": mixtures.mxfp4}

_plain = False  # vLLM's packing functions leave weights as they are
_without_kernel = set()  # names of vLLM's classes that cannot run on this CPU


def follow(vllm):
    """Stands behind the constructor of vLLM's layers of experts, and in front of the functions that pack weights."""
    _without_kernel.clear()
    _skip_packing(vllm.unquantized_experts)
    if "quantized mixtures of the CPU backend" in vllm.parts:
        _skip_packing(vllm.int8_experts)
        for name in ("prepare_fp8_moe_layer_for_cpu", "prepare_mxfp4_moe_layer_for_cpu"):
            setattr(vllm.cpu_experts, name, _unless_plain(getattr(vllm.cpu_experts, name)))
        for name in _kinds:
            _let_run(getattr(vllm.cpu_experts, name))
    mixtures.follow_layers(vllm, lambda loading, layer, prepare: _chosen(loading, layer, vllm, prepare))


def _unless_plain(pack):
    """A function that returns its operands packed."""
    @functools.wraps(pack)
    def packed(*operands):
        return operands if _plain else pack(*operands)
    return packed


def _skip_packing(experts):
    experts.process_weights_after_loading = _unless_plain(experts.process_weights_after_loading)


def _let_run(experts):
    """vLLM may choose a class whose kernels this CPU lacks: gemmtune's run in its layers."""
    if not experts._supports_current_device():
        _without_kernel.add(experts.__name__)
        experts._supports_current_device = staticmethod(lambda: True)


@contextlib.contextmanager
def _plain_weights():
    global _plain
    _plain = True
    try:
        yield
    finally:
        _plain = False


def _chosen(loading, layer, vllm, prepare):
    """The Mixture that has taken the layer; None: it is vLLM's, and prepared."""
    experts = getattr(layer.quant_method, "experts_cls", None)
    name = getattr(experts, "__name__", type(layer.quant_method).__name__)
    mixture, why = None, None
    try:
        is_plain = experts is not None and issubclass(experts, vllm.unquantized_experts)
        mixture = _CpuMixture(layer, mixtures.plain(layer.moe_config.in_dtype) if is_plain else _kinds.get(name), name, vllm, prepare)
        why = mixture.why_not()
        if why is None and name not in _without_kernel and not operators.recording():
            why = loading.why_left(cpu.device, mixture.key(), mixture.problem)
    except Exception as error:  # vLLM must load without us
        why = f"{type(error).__name__}: {error}"
    if name in _without_kernel:
        if why is not None:
            raise RuntimeError(f"vLLM's {name} do not run on this CPU, and gemmtune does not take them: {why}")
    elif operators.recording() and why is None:
        prepare(layer)
        mixtures.record(mixture, loading, layer.quant_method.moe_kernel)
        return None
    if why is not None:
        prepare(layer)
        loading.left.append((layer, why))
        return None
    loading.taken.append((layer, mixture.constants()))
    mixture.take()
    return mixture


class _CpuMixture(mixtures.Mixture):
    def __init__(self, layer, kind, name, vllm, prepare):
        super().__init__(layer, kind, name, cpu.device)
        self.vllm, self.prepare = vllm, prepare

    def take(self):
        """Prepares the layer with weights as they are. vLLM's object that runs its experts calls gemmtune from now on."""
        with _plain_weights():
            self.prepare(self.layer)
        experts = self.layer.quant_method.moe_kernel.fused_experts
        if self.alternates:
            for tensor in (self.layer.w13_weight, experts.w1_scale, experts.w1_bias):
                mixtures.gate_first(tensor)
        run = self.product(experts.w1_scale, experts.w2_scale, experts.w1_bias, experts.w2_bias)
        quantize = self.vllm.quantize_int8 if self.kind.x_type == "i8" else None

        def apply(*, output, hidden_states, w1, w2, topk_weights, topk_ids, expert_map, apply_router_weight_on_input, **others):
            x, x_scale = hidden_states, None
            if quantize is not None:
                x, x_scale, _ = quantize(x, None, None, True)
                x_scale = x_scale.reshape(-1)
            run(x, x_scale, w1, w2, mixtures.local(topk_ids, expert_map), None if apply_router_weight_on_input else topk_weights, output)

        experts.apply = apply
