"""vLLM's compiled kernels as peers: CUTLASS's scaled_mm of fp8 and int8, and Marlin's and Machete's weights of 4 bits, of mixtures Marlin's. The wheel's libraries of
operators are loaded from where vllm is installed. The package itself is not imported, because that needs all of its dependencies."""

import functools
import importlib.util
import pathlib

import torch

LIBRARY = "_C_stable_libtorch.abi3.so"


def folder():
    """Where vllm is installed. Raises ImportError if it is not."""
    spec = importlib.util.find_spec("vllm")
    folders = [pathlib.Path(folder) for folder in (spec.submodule_search_locations if spec else None) or []]
    if not folders:
        raise ImportError("the package vllm is not installed")
    return folders[0]


def load(library):
    """Raises ImportError if it does not load."""
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise ImportError(str(error)) from error


@functools.cache
def operators():
    """torch.ops._C with vLLM's kernels. Raises ImportError if vllm is not installed or its library does not load."""
    library = folder() / LIBRARY
    if not library.exists():
        raise ImportError(f"{library} does not exist: vllm 0.33 has it")
    load(library)
    return torch.ops._C


@functools.cache
def mixture_operators():
    """torch.ops._C with silu_and_mul, and torch.ops._moe_C. Raises ImportError as operators()."""
    run = operators()
    libraries = sorted(folder().glob("_moe_C*.so"))
    if not libraries:
        raise ImportError(f"{folder()} has no _moe_C*.so")
    for library in libraries:
        load(library)
    if not hasattr(run, "silu_and_mul"):
        load(folder() / "_C.abi3.so")
    return run, torch.ops._moe_C


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
    if form in ("a16w4_int4", "int4"):
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


def marlin_experts(w, scale, form, global_scale):
    """w [E, N, K / 2], its scales [E, N, K / group] and of nvfp4 a float for each expert as Marlin's kernel for mixtures reads them."""
    none = torch.empty(0, dtype=torch.int32, device="cuda")
    experts, n, half_k = w.shape
    if n % 64 != 0 or half_k % 64 != 0:
        raise ValueError(f"Marlin pads a weight of {n} x {half_k * 2}")
    packed, scales, factors = [], [], []
    for own, own_scale in zip(w, scale):
        words = (own ^ 0x88 if form == "int4" else own).view(torch.int32).T.contiguous()  # int4: 0 to 15, of which 8 is zero
        packed.append(by_name(operators().gptq_marlin_repack, b_q_weight=words, perm=none, size_k=half_k * 2, size_n=n, num_bits=4, is_a_8bit=False))
        own_scale, factor = marlin_scales(own_scale, form)
        scales.append(own_scale)
        factors.append(factor)
    # Elements and scales of NVFP4 are 2^-126 and 2^7 times what they mean.
    globals_ = None if form == "int4" else global_scale * 2.0 ** (126 - 7) / torch.tensor(factors, device="cuda")
    return torch.stack(packed), torch.stack(scales), globals_


def marlin_mixture(case):
    """call(i) of the steps of vLLM 0.24's fused_marlin_moe for a case of fused_moe.py with bf16 tokens and experts of int4 (symmetric) or NVFP4, which writes
    case.y: pairs sorted into blocks of an expert, Marlin for w1, silu(gate) * up, Marlin for w2, which applies the routing weights, the sum over experts."""
    run, mixtures = mixture_operators()
    w, tokens = case.weights, case.m
    if w.marlin is None:
        w.marlin = [marlin_experts(w.w1, w.w1_scale, w.form, w.w1_global), marlin_experts(w.w2, w.w2_scale, w.form, w.w2_global)]
    (w1, scale1, global1), (w2, scale2, global2) = w.marlin
    kind = scalar_type("uint4b8" if w.form == "int4" else "float4_e2m1f")
    pairs = tokens * w.topk
    block = next((size for size in (8, 16, 32, 48) if pairs / w.experts / size < 0.9), 64)
    padded = min(pairs + w.experts * (block - 1), pairs * block if pairs < w.experts else 1 << 60)
    new = lambda *shape, dtype=torch.bfloat16: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
    order, experts, count = new(padded, dtype=torch.int32), new(-(-padded // block), dtype=torch.int32), new(1, dtype=torch.int32)
    gate_up, hidden, partials = new(pairs, 2 * w.n), new(pairs, w.n), new(pairs, w.k)
    workspace = torch.zeros(4 * torch.cuda.get_device_properties(0).multi_processor_count, dtype=torch.int32, device="cuda")

    def gemm(x, y, weight, scale, global_scale, i, topk, weighted, m, n, k):
        mixtures.moe_wna16_marlin_gemm(x, y, weight, None, scale, None, global_scale, None, None, None, workspace, order, experts, count, case.weight[i],
                                       block, topk, weighted, kind, m, n, k, True, False, True, False, -1, -1, -1)

    def call(i):
        mixtures.moe_align_block_size(case.ids[i], w.experts, block, order, experts, count, None)
        gemm(case.x, gate_up, w1, scale1, global1, i, w.topk, False, tokens, 2 * w.n, w.k)
        run.silu_and_mul(hidden, gate_up)
        gemm(hidden, partials, w2, scale2, global2, i, 1, True, pairs, w.k, w.n)
        mixtures.moe_sum(partials.view(tokens, w.topk, w.k), case.y)

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
