"""SGLang's fused MoE in Triton as a peer (0.5.14, PyPI's wheel, 12 MB), with the steps around it that SGLang runs: its tables of configs, and its kernels
for aligned lists of tokens, quantization and activation, which nvcc compiles at their first call (apache-tvm-ffi, ninja). Small modules stand for those that
import the server. Of sglang-kernel (615 MB) one kernel is missing: the sum over experts is SGLang's Triton kernel, which it runs on AMD's GPUs."""

import functools
import importlib
import importlib.util
import logging
import sys
import types

import torch


def _module(name, path=None, **values):
    module = types.ModuleType(name)
    module.__dict__.update(values)
    if path is not None:
        module.__path__ = path
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], last, module)
    return module


def _always(value):
    return lambda *_, **__: value


def _stand_ins(path):
    """Modules in the place of those of `path` that import the server, Hugging Face or sglang-kernel."""
    def package(name, **values):
        return _module(name, [f"{one}/{name.partition('.')[2].replace('.', '/')}" for one in path], **values)

    package("sglang")
    _module("sglang.utils", is_in_ci=_always(False))
    package("sglang.srt")
    _module("sglang.srt.batch_invariant_ops", is_batch_invariant_mode_enabled=_always(False))
    settings = types.SimpleNamespace(enable_deterministic_inference=False, enable_fused_moe_sum_all_reduce=False)
    _module("sglang.srt.server_args", get_global_server_args=_always(settings))
    major, _ = torch.cuda.get_device_capability()
    package("sglang.srt.utils", is_cuda=_always(True), is_sm90_supported=_always(major == 9), is_sm100_supported=_always(major == 10),
            is_sm120_supported=_always(major == 12), get_device_name=torch.cuda.get_device_name, ceil_align=lambda x, y: -(-x // y) * y,
            get_device_core_count=lambda: torch.cuda.get_device_properties(0).multi_processor_count, log_info_on_rank0=_always(None),
            **dict.fromkeys(("is_cpu", "is_hip", "is_musa", "is_xpu", "is_npu", "cpu_has_amx_support", "use_intel_xpu_backend", "get_bool_env_var"),
                            _always(False)))
    # Graphs are captured without torch.compile, which alone needs functions as operators of PyTorch.
    _module("sglang.srt.utils.custom_op", register_custom_op=lambda function=None, **_: function or (lambda function: function))
    _module("sglang.srt.utils.patch_torch", register_fake_if_exists=_always(lambda function: function))
    package("sglang.srt.layers")
    package("sglang.srt.layers.quantization")
    _module("sglang.srt.layers.deep_gemm_wrapper")
    package("sglang.srt.layers.moe")
    _module("sglang.srt.layers.moe.utils", get_moe_padding_size=_always(0))
    package("sglang.srt.layers.moe.moe_runner", MoeRunnerConfig=types.SimpleNamespace)
    kernels = _module("sgl_kernel", sgl_per_token_quant_fp8=None, sgl_per_token_group_quant_8bit=None, sgl_per_token_group_quant_int8=None,
                      moe_sum_reduce=lambda *operands: _triton().moe_sum_reduce_triton(*operands))
    kernels.moe_align_block_size = importlib.import_module("sglang.jit_kernel.moe_align").moe_align_block_size


def _triton():
    return importlib.import_module("sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_kernels")


@functools.cache
def fused_moe():
    """SGLang's module of the layer. Raises ImportError if sglang is not installed or does not import."""
    if not hasattr(logging.Logger, "warning_once"):  # which SGLang adds
        logging.Logger.warning_once = logging.Logger.warning
    spec = importlib.util.find_spec("sglang")
    if spec is None:
        raise ImportError("the package sglang is not installed")
    _stand_ins(list(spec.submodule_search_locations))
    return importlib.import_module("sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe")


def fused_experts(case, more=0):
    """call(i) of a case of served_moe.py, with routing i; it returns y. Configs are those of SGLang's table for `more` experts more than the case has.
    Raises ValueError if there is no such table for this GPU."""
    module, w = fused_moe(), case.weights
    block = [128, 128] if w.form == "fp8" else None
    tables = importlib.import_module(f"{module.__package__}.fused_moe_triton_config")
    if more and tables.get_moe_configs(w.experts + more, w.n, "fp8_w8a8" if block else None, *block or (0, 0)) is None:
        raise ValueError(f"SGLang has no table for {w.experts + more} experts of {w.n} on this GPU")
    choose = module.try_get_optimal_moe_config

    def of_table(w1, w2, *arguments, **options):
        return choose((w1[0] + more, *w1[1:]), (w2[0] + more, *w2[1:]), *arguments, **options)

    def call(i):
        module.try_get_optimal_moe_config = of_table
        try:
            return module.fused_experts_impl(case.x, w.w1, w.w2, case.weight[i], case.ids[i], w1_scale=w.w1_scale, w2_scale=w.w2_scale,
                                             use_fp8_w8a8=block is not None, block_shape=block, filter_expert=False)
        finally:
            module.try_get_optimal_moe_config = choose

    return call
