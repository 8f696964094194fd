"""What the plug-in knows of vLLM, in one place: names, and the parameters of functions that it calls or replaces. find()
compares that with the vLLM that is installed."""

import importlib
import inspect

_kernels = "vllm.model_executor.kernels.linear"

_utils = "vllm.model_executor.layers.utils"

_fused_moe = "vllm.model_executor.layers.fused_moe"
_routed = f"{_fused_moe}.routed_experts"
_experts = f"{_fused_moe}.experts.cpu_moe"
_quantize_int8 = ("quantize_int8", "vllm._custom_ops", "onednn_scaled_int8_quant", ("input", "scale", "azp", "symmetric"))
_run_experts = ("output", "hidden_states", "w1", "w2", "topk_weights", "topk_ids", "expert_map", "apply_router_weight_on_input")

_quantization = "vllm.model_executor.layers.quantization"
_compressed = f"{_quantization}.compressed_tensors.compressed_tensors_moe.compressed_tensors_moe"
_gpu_experts = (
    ("routed_experts", _routed, "RoutedExperts", ("moe_config",)),
    ("apply_moe", f"{_fused_moe}.modular_kernel", "FusedMoEKernel.apply",
     ("hidden_states", "w1", "w2", "topk_weights", "topk_ids", "activation", "global_num_experts", "expert_map", "apply_router_weight_on_input",
      "shared_experts", "shared_experts_input")),
    ("no_dp_ep", f"{_fused_moe}.prepare_finalize.no_dp_ep", "MoEPrepareAndFinalizeNoDPEPModular", ()),
    ("prepare_x", f"{_fused_moe}.prepare_finalize.no_dp_ep", "MoEPrepareAndFinalizeNoDPEPModular.prepare",
     ("a1", "topk_weights", "topk_ids", "num_experts", "expert_map", "apply_router_weight_on_input", "quant_config")),
)
# Of layers of experts that are whole gemmtune's on a GPU.
_whole_experts = (
    *_gpu_experts,
    ("moe_kernel", f"{_fused_moe}.modular_kernel", "FusedMoEKernel", ("prepare_finalize", "fused_experts")),
    ("triton_experts", f"{_fused_moe}.experts.triton_moe", "TritonExperts", ("moe_config", "quant_config")),
    ("moe_quant_config", f"{_fused_moe}.config", "FusedMoEQuantConfig.make", ("quant_dtype",)),
)

# part -> (name here, module, attribute path, parameters that must be there or None)
_needed = {
    "loading": (
        ("envs", "vllm.envs", "", None),
        ("platform", "vllm.platforms", "current_platform._enum", None),
        ("loader", "vllm.model_executor.model_loader.base_loader", "BaseModelLoader", None),
        ("load_model", "vllm.model_executor.model_loader.base_loader", "BaseModelLoader.load_model",
         ("vllm_config", "model_config")),
    ),
    "bf16": (
        ("linear_method", "vllm.model_executor.layers.linear", "UnquantizedLinearMethod", None),
        ("linear_apply", "vllm.model_executor.layers.linear", "UnquantizedLinearMethod.apply", ("layer", "x", "bias")),
        ("embedding_method", "vllm.model_executor.layers.vocab_parallel_embedding", "UnquantizedEmbeddingMethod", None),
        ("embedding_apply", "vllm.model_executor.layers.vocab_parallel_embedding", "UnquantizedEmbeddingMethod.apply",
         ("layer", "x", "bias")),
        ("dispatch_unquantized_gemm", _utils, "dispatch_unquantized_gemm", ()),
        ("default_unquantized_gemm", _utils, "default_unquantized_gemm", ("layer", "x", "weight", "bias")),
    ),
    "bf16 of the CPU backend": (
        ("utils", _utils, "", None),
        ("dispatch_cpu_unquantized_gemm", _utils, "dispatch_cpu_unquantized_gemm", ("layer", "remove_weight")),
        ("cpu_unquantized_gemm", _utils, "cpu_unquantized_gemm", ("layer", "x", "weight", "bias")),
    ),
    "int8 of the CPU backend": (
        ("int8_kernel", f"{_kernels}.scaled_mm.cpu", "CPUInt8ScaledMMLinearKernel", ("c", "layer_param_names")),
        ("prepare_int8", f"{_kernels}.scaled_mm.cpu", "CPUInt8ScaledMMLinearKernel.process_weights_after_loading", ("layer",)),
        ("apply_int8", f"{_kernels}.scaled_mm.cpu", "CPUInt8ScaledMMLinearKernel.apply_weights", ("layer", "x", "bias")),
        _quantize_int8,
    ),
    "int4 of the CPU backend": (
        ("int4_kernel", f"{_kernels}.mixed_precision.cpu", "CPUWNA16LinearKernel", ("c", "w_q_param_name", "w_s_param_name", "w_zp_param_name")),
        ("prepare_int4", f"{_kernels}.mixed_precision.cpu", "CPUWNA16LinearKernel.process_weights_after_loading", ("layer",)),
        ("apply_int4", f"{_kernels}.mixed_precision.cpu", "CPUWNA16LinearKernel.apply_weights", ("layer", "x", "bias")),
        ("scalar_types", "vllm.scalar_type", "scalar_types", None),
    ),
    "int8 on GPUs": (
        ("cutlass_int8", f"{_kernels}.scaled_mm.cutlass", "CutlassInt8ScaledMMLinearKernel", ("c", "layer_param_names")),
        ("prepare_cutlass_int8", f"{_kernels}.scaled_mm.cutlass", "CutlassInt8ScaledMMLinearKernel.process_weights_after_loading", ("layer",)),
        ("apply_cutlass_int8", f"{_kernels}.scaled_mm.cutlass", "CutlassInt8ScaledMMLinearKernel.apply_weights", ("layer", "x", "bias")),
        ("scaled_int8_quant", "vllm._custom_ops", "scaled_int8_quant", ("input", "scale", "azp", "symmetric")),
    ),
    "int4 on GPUs": (
        ("scalar_types", "vllm.scalar_type", "scalar_types", None),
    ),
    "NVFP4 on GPUs": (),
    "MXFP4 on GPUs": (),
    "NVFP4 and MXFP4 of the CPU backend": (
        ("register_linear_kernel", _kernels, "register_linear_kernel", ("kernel_class", "platform", "kernel_type")),
        ("nvfp4_base", f"{_kernels}.nvfp4.base", "NvFp4LinearKernel", ("config",)),
        ("mxfp4_base", f"{_kernels}.mxfp4.base", "MxFp4LinearKernel", ("config",)),
        ("mxfp4_activations", "vllm.model_executor.layers.quantization.utils.quant_utils", "kMxfp4Dynamic", None),
    ),
    "mixtures of the CPU backend": (
        ("routed_experts", _routed, "RoutedExperts", ("moe_config",)),
        ("unquantized_experts", _experts, "CPUUnquantizedExperts", ("moe_config", "quant_config")),
        ("apply_experts", _experts, "CPUUnquantizedExperts.apply", _run_experts),
        ("prepare_experts", _experts, "CPUUnquantizedExperts.process_weights_after_loading", ("layer",)),
        _quantize_int8,
    ),
    "mixtures on GPUs": _gpu_experts,
    "MXFP4 mixtures on GPUs": _whole_experts,
    "int4 mixtures on GPUs": _whole_experts,
    "AWQ mixtures on GPUs": _whole_experts,
    "GPTQ mixtures on GPUs": _whole_experts,
    "NVFP4 mixtures on GPUs": _whole_experts,
    "ModelOpt NVFP4 mixtures on GPUs": _whole_experts,
    "quantized mixtures of the CPU backend": (
        ("cpu_experts", _experts, "", None),
        ("apply_fp8_experts", _experts, "CPUExpertsFp8.apply", _run_experts),
        ("apply_mxfp4_experts", _experts, "CPUExpertsMxfp4.apply", _run_experts),
        ("int8_experts", _experts, "CPUExpertsInt8", ("moe_config", "quant_config")),
        ("apply_int8_experts", _experts, "CPUExpertsInt8.apply", _run_experts),
        ("prepare_int8_experts", _experts, "CPUExpertsInt8.process_weights_after_loading", ("layer",)),
        ("prepare_fp8_experts", _experts, "prepare_fp8_moe_layer_for_cpu", ("w13", "w2")),
        ("prepare_mxfp4_experts", _experts, "prepare_mxfp4_moe_layer_for_cpu", ("w13", "w2", "w13_scale", "w2_scale")),
    ),
    "fp8": (
        ("register_linear_kernel", _kernels, "register_linear_kernel", ("kernel_class", "platform", "kernel_type")),
        ("fp8_kernels", _kernels, "_POSSIBLE_FP8_KERNELS", None),
        ("choose", _kernels, "choose_scaled_mm_linear_kernel", ("config", "possible_kernels")),
        ("fp8_base", _kernels, "FP8ScaledMMLinearKernel", None),
        ("apply_scaled_mm", _kernels, "FP8ScaledMMLinearKernel.apply_scaled_mm",
         ("A", "B", "out_dtype", "As", "Bs", "bias", "output_shape")),
    ),
    "fp8 block-scaled": (
        ("register_linear_kernel", _kernels, "register_linear_kernel", ("kernel_class", "platform", "kernel_type")),
        ("fp8_block_kernels", _kernels, "_POSSIBLE_FP8_BLOCK_KERNELS", None),
        ("choose", _kernels, "choose_scaled_mm_linear_kernel", ("config", "possible_kernels")),
        ("fp8_base", _kernels, "FP8ScaledMMLinearKernel", None),
        ("fp8_block_base", _kernels, "Fp8BlockScaledMMLinearKernel", None),
        ("apply_block_scaled_mm", _kernels, "Fp8BlockScaledMMLinearKernel.apply_block_scaled_mm", ("A", "B", "As", "Bs")),
    ),
}


_kernel_methods = (("process_weights_after_loading", ("layer",)), ("apply_weights", ("layer", "x", "bias")))
_experts_methods = (("process_weights_after_loading", ("layer",)), ("apply", ("layer", "x", "topk_weights", "topk_ids")))

# part -> (name here, methods that they must have, classes that prepare the layers and run them). A version of vLLM has some of them, of which it
# prefers one.
_any_of = {
    "int4 on GPUs": ("int4_kernels", _kernel_methods, (
        (f"{_kernels}.mixed_precision.marlin", "MarlinLinearKernel"), (f"{_kernels}.mixed_precision.machete", "MacheteLinearKernel"),
        (f"{_kernels}.mixed_precision.humming", "HummingLinearKernel"))),
    "NVFP4 on GPUs": ("nvfp4_kernels", _kernel_methods, (
        (f"{_kernels}.nvfp4.marlin", "MarlinNvFp4LinearKernel"), (f"{_kernels}.nvfp4.humming", "HummingNvFp4LinearKernel"))),
    "MXFP4 on GPUs": ("mxfp4_kernels", _kernel_methods, (
        (f"{_kernels}.mxfp4.marlin", "MarlinMxFp4LinearKernel"), (f"{_kernels}.mxfp4.humming", "HummingMxFp4LinearKernel"))),
    "MXFP4 mixtures on GPUs": ("mxfp4_experts", _experts_methods, ((f"{_quantization}.mxfp4", "GptOssMxfp4MoEMethod"),)),
    "int4 mixtures on GPUs": ("int4_experts", _experts_methods, (
        (f"{_compressed}_wna16_marlin", "CompressedTensorsWNA16MarlinMoEMethod"), (f"{_compressed}_wna16", "CompressedTensorsWNA16MoEMethod"))),
    "AWQ mixtures on GPUs": ("awq_experts", _experts_methods, ((f"{_quantization}.auto_awq", "AutoAWQMoEMethod"),)),
    "GPTQ mixtures on GPUs": ("gptq_experts", _experts_methods, ((f"{_quantization}.auto_gptq", "AutoGPTQMoEMethod"),)),
    "NVFP4 mixtures on GPUs": ("nvfp4_experts", _experts_methods, ((f"{_compressed}_w4a4_nvfp4", "CompressedTensorsW4A4Nvfp4MoEMethod"),)),
    "ModelOpt NVFP4 mixtures on GPUs": ("modelopt_nvfp4_experts", _experts_methods, ((f"{_quantization}.modelopt", "ModelOptNvFp4FusedMoE"),)),
}


class Interface:
    """The parts of vLLM that were found, as attributes. `parts`: those that are complete; `missing`: (part, sentences) of the
    others."""

    def __init__(self):
        self.parts, self.missing = [], []
        self.platform = None

    @property
    def on_cpu(self):
        return getattr(self.platform, "name", None) == "CPU"

    def differences(self):
        """What the missing parts lack, each once."""
        return "; ".join(dict.fromkeys(sentence for _, sentences in self.missing for sentence in sentences))


def _find(module, path, parameters):
    """(what lies there, None), or (None, what differs)."""
    name = f"{module}.{path}" if path else module
    try:
        found = importlib.import_module(module)
        for step in path.split(".") if path else ():
            found = getattr(found, step)
    except (ImportError, AttributeError) as error:
        return None, f"no {name} ({error})"
    if parameters is not None:
        try:
            known = list(inspect.signature(found).parameters)
        except (TypeError, ValueError):
            return None, f"{name} is a {type(found).__name__}, expected a function"
        absent = [one for one in parameters if one not in known]
        if absent:
            return None, f"{name}({', '.join(known)}) has no {', '.join(absent)}"
    return found, None


def _classes(methods, names):
    """(those of the classes that are as the plug-in knows them, what differs in the others)."""
    found, differences = [], []
    for module, name in names:
        kernel, difference = _find(module, name, None)
        for method, parameters in methods:
            difference = difference or _find(module, f"{name}.{method}", parameters)[1]
        if difference:
            differences.append(difference)
        else:
            found.append(kernel)
    return found, differences


def find():
    """The Interface of the installed vLLM."""
    interface = Interface()
    for part, names in _needed.items():
        # The CPU backend calls a function of the layer in place of UnquantizedLinearMethod's.
        of_gpus = part == "bf16" or part.endswith("on GPUs")
        if of_gpus if interface.on_cpu else part.endswith("of the CPU backend"):
            continue
        differences = []
        for name, module, path, parameters in names:
            found, difference = _find(module, path, parameters)
            setattr(interface, name, found)
            if difference:
                differences.append(difference)
        if part in _any_of:
            name, *classes = _any_of[part]
            found, others = _classes(*classes)
            setattr(interface, name, found)
            differences += [] if found else others
        if differences:
            interface.missing.append((part, differences))
        else:
            interface.parts.append(part)
    if "loading" not in interface.parts or len(interface.parts) == 1:
        interface.parts = []
    return interface
