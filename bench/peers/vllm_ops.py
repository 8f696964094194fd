"""vLLM's compiled kernels as peers: CUTLASS's scaled_mm of fp8 and int8, and Marlin's and Machete's weights of 4 bits. The wheel's library of operators is loaded
from where vllm is installed. The package itself is not imported, because that needs all of its dependencies."""

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


def by_name(operator, **values):
    """A call of an operator whose arguments differ between versions of vLLM: those that are not given are None."""
    names = [argument.name.removesuffix("_or_none") for argument in operator.default._schema.arguments]
    return operator(*[values.get(name) for name in names])


def scalar_type(name):
    """The number of one of vLLM's scalar types, which marlin_gemm takes: vllm/scalar_type.py needs no other module."""
    file = next(folder for folder in importlib.util.find_spec("vllm").submodule_search_locations if (pathlib.Path(folder) / "scalar_type.py").exists())
    spec = importlib.util.spec_from_file_location("vllm_scalar_type", pathlib.Path(file) / "scalar_type.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module.scalar_types, name).id


def marlin_scales(scale, form):
    """Scales [N, K / group] as Marlin reads them: [K / group, N] in blocks of 64 columns, of which an 8 x 8 square is transposed; those of a byte
    have the middle two of four exchanged besides. e4m3 becomes five bits of exponent and three of mantissa without a sign. Returns them and what
    the tensor's own scale is divided by. The layouts are those of vLLM's marlin_utils.py and marlin_utils_fp4.py."""
    if form == "a16w4":
        scale = scale.view(torch.float8_e8m0fnu)
    scale = scale.T.contiguous().to(torch.bfloat16)
    shape = scale.shape
    scale = scale.reshape(-1, 8, 8).transpose(1, 2).reshape(shape).contiguous()
    if form == "a16w4_int4":
        return scale, 1.0
    scale = scale.reshape(-1, 4)[:, [0, 2, 1, 3]].reshape(shape)
    if form == "a16w4":
        return scale.to(torch.float8_e8m0fnu), 1.0
    factor = float((448 / scale.float().max()).log2().floor().clamp(min=0).exp2())
    half = (scale.float() * factor).to(torch.float16) * 128
    half[half < 2] = 0
    return (half.view(torch.int16) << 1).view(torch.float8_e4m3fn)[:, 1::2].contiguous(), factor


def marlin(case):
    """call(i) of Marlin for a case of mxfp4.py with bf16 x and a weight of 4 bits, which writes case.y; its sums of blocks that divide k are float32."""
    run = operators().marlin_gemm
    if case.n % 64 != 0 or case.k % 128 != 0:
        raise ValueError(f"Marlin pads a weight of {case.n} x {case.k}")
    none = torch.empty(0, dtype=torch.int32, device="cuda")

    def packed(w, scale):
        if case.form == "a16w4_int4":
            w = w ^ 0x88  # 0 to 15, of which 8 is zero
        words = w.view(torch.int32).T.contiguous()
        w = by_name(operators().gptq_marlin_repack, b_q_weight=words, perm=none, size_k=case.k, size_n=case.n, num_bits=4, is_a_8bit=False)
        return w, *marlin_scales(scale, case.form)

    weights = [packed(w, scale) for w, scale in zip(case.w, case.scale)]
    # The kernel's elements and scales of NVFP4 are 2^-126 and 2^7 times what they mean.
    globals_ = [case.global_scale * 2.0 ** (126 - 7) / factor if case.form == "a16w4_nvfp4" else None for _, _, factor in weights]
    workspace = torch.zeros(torch.cuda.get_device_properties(0).multi_processor_count, dtype=torch.int32, device="cuda")
    kind = scalar_type("uint4b8" if case.form == "a16w4_int4" else "float4_e2m1f")

    def call(i):
        w, scale, _ = weights[i]
        by_name(run, a=case.x, c=case.y, b_q_weight=w, b_scales=scale, global_scale=globals_[i], workspace=workspace, b_type_id=kind, size_m=case.m,
                size_n=case.n, size_k=case.k, is_k_full=True, use_atomic_add=False, use_fp32_reduce=True, is_zp_float=False)

    return call


def machete(case):
    """call(i) of Machete, which vLLM prefers to Marlin on Hopper, for a case of mxfp4.py with bf16 x and int4 weights. It returns y."""
    if case.n % 128 != 0 or case.k % 64 != 0:
        raise ValueError(f"Machete does not take a weight of {case.n} x {case.k}")
    kind, group = scalar_type("uint4b8"), case.k // case.scale[0].shape[1]
    # Words of eight elements along k, 0 to 15, of which 8 is zero: [K / 8, N] in columns. Scales are [K / group, N].
    weights = [(operators().machete_prepack_B((w ^ 0x88).view(torch.int32).T, torch.bfloat16, kind, torch.bfloat16), scale.T.contiguous())
               for w, scale in zip(case.w, case.scale)]

    def call(i):
        w, scale = weights[i % len(weights)]
        return operators().machete_mm(case.x, w, kind, None, scale, None, group, None, None, None)

    return call
