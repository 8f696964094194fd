"""vLLM's compiled kernels as peers: CUTLASS's scaled_mm of fp8 and int8, and Marlin's MXFP4 weights. The wheel's library of operators is loaded
from where vllm is installed; the package itself is imported for Marlin's packing alone, because importing it needs all of its dependencies."""

import functools
import importlib.util
import pathlib

import torch

LIBRARY = "_C_stable_libtorch.abi3.so"


@functools.cache
def operators():
    """torch.ops._C with vLLM's kernels. Raises ImportError if vllm is not installed or its library does not load."""
    spec = importlib.util.find_spec("vllm")
    folders = [pathlib.Path(folder) for folder in (spec.submodule_search_locations if spec else None) or []]
    if not folders:
        raise ImportError("the package vllm is not installed")
    library = folders[0] / LIBRARY
    if not library.exists():
        raise ImportError(f"{library} does not exist: vllm 0.33 has it")
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise ImportError(str(error)) from error
    return torch.ops._C


def scaled_mm(case):
    """call(i) of CUTLASS's kernel for a case of dense_8bit.py, which writes case.y."""
    run = operators().cutlass_scaled_mm
    if case.form == "fp8block":  # scales of x are column-major, as vLLM's quantization writes them
        x_scale, w_scale = case.x_scale.T.contiguous().T, case.w_scale.T
    else:
        x_scale, w_scale = case.x_scale, case.w_scale.T
    return lambda i: run(case.y, case.x, case.w[i].T, x_scale, w_scale, None)


def marlin(case):
    """call(i) of Marlin for an a16w4 case of mxfp4.py, which writes case.y; its sums of blocks that divide k are float32."""
    run = operators().marlin_gemm
    from vllm.model_executor.layers.quantization.utils import marlin_utils, marlin_utils_fp4
    from vllm.scalar_type import scalar_types

    if marlin_utils.marlin_padded_nk(case.n, case.k, 32) != (case.n, case.k):
        raise ValueError(f"Marlin pads a weight of {case.n} x {case.k}")

    def packed(w, scale):
        layer = torch.nn.Module()
        layer.output_size_per_partition, layer.input_size_per_partition, layer.params_dtype = case.n, case.k, torch.bfloat16
        layer.weight = torch.nn.Parameter(w, requires_grad=False)
        layer.weight_scale = torch.nn.Parameter(scale, requires_grad=False)
        marlin_utils_fp4.prepare_fp4_layer_for_marlin(layer)
        return layer.weight.data, layer.weight_scale.data

    weights = [packed(w, scale) for w, scale in zip(case.w, case.scale)]
    workspace = marlin_utils.marlin_make_workspace_new(case.x.device)
    atomic = marlin_utils.should_use_atomic_add_reduce(case.m, case.n, case.k, case.x.device, case.x.dtype)
    kind = scalar_types.float4_e2m1f.id

    def call(i):
        w, scale = weights[i]
        run(case.x, case.y, w, None, scale, None, None, None, workspace, kind, case.m, case.n, case.k, atomic, True, False)

    return call
