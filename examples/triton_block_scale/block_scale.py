"""Block-scaled fp8 product in Triton: y[M, N] = x · wᵀ, accumulated in float32.

x is fp8 e4m3 [M, K] with a float32 scale for each 128 elements of a row [M, K/128]; w is fp8 e4m3 [N, K] with one
for each block of 128 x 128 [⌈N/128⌉, K/128]; y is bf16 or fp16 [M, N]. K is a multiple of 128.
"""

import json

import triton
import triton.language as tl

BLOCK = 128  # elements that share a scale


@triton.jit(do_not_specialize=["split_stride", "group_m", "k_splits"])
def block_scale_kernel(x_ptr, w_ptr, x_scale_ptr, w_scale_ptr, y_ptr, M, N, K, ldx, ldy, split_stride, group_m, k_splits,
                       BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, CACHE: tl.constexpr):
    """One tile of one split of K, in y's type; split s at y_ptr + s · split_stride, where there are several.

    Blocks of group_m rows of tiles go through all columns before the next rows: they share w in the L2 cache.
    """
    tile = tl.program_id(0)
    split = tl.program_id(1)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (group_m * tiles_n)
    rows = tl.minimum(tiles_m - group * group_m, group_m)
    tile_m = group * group_m + (tile % (group_m * tiles_n)) % rows
    tile_n = (tile % (group_m * tiles_n)) // rows

    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    in_m = m < M
    in_n = n < N
    scales_k = K // 128
    split_k = K // k_splits
    begin = split * split_k
    k = begin + tl.arange(0, BLOCK_K)
    x_at = x_ptr + m[:, None].to(tl.int64) * ldx + k[None, :]
    w_at = w_ptr + n[None, :].to(tl.int64) * K + k[:, None]
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, split_k, BLOCK_K):
        x = tl.load(x_at, mask=in_m[:, None], other=0.0)
        w = tl.load(w_at, mask=in_n[None, :], other=0.0, cache_modifier=CACHE)
        block = (begin + step) // 128
        x_scale = tl.load(x_scale_ptr + m * scales_k + block, mask=in_m, other=0.0)
        w_scale = tl.load(w_scale_ptr + (n // 128) * scales_k + block, mask=in_n, other=0.0)
        sums += tl.dot(x, w) * x_scale[:, None] * w_scale[None, :]
        x_at += BLOCK_K
        w_at += BLOCK_K
    at = y_ptr + split * split_stride + m[:, None].to(tl.int64) * ldy + n[None, :]
    tl.store(at, sums.to(y_ptr.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


@triton.jit
def add_splits_kernel(partial_ptr, y_ptr, N, ldy, split_stride, k_splits, BLOCK_N: tl.constexpr):
    """y[m, n] = the sum of the splits' float32 partial sums [split, m, n], always in the same order."""
    m = tl.program_id(0)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = n < N
    sums = tl.zeros((BLOCK_N,), dtype=tl.float32)
    at = partial_ptr + m.to(tl.int64) * N + n
    for _ in range(k_splits):
        sums += tl.load(at, mask=inside, other=0.0)
        at += split_stride
    tl.store(y_ptr + m.to(tl.int64) * ldy + n, sums.to(y_ptr.dtype.element_ty), mask=inside)


# Parameters of the compiler: of every GPU, and of AMD's alone.
COMPILER_OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "kpack", "matrix_instr_nonkdim")


def compiler_options(config):
    """Those of the config's parameters that are the compiler's."""
    return {name: config[name] for name in COMPILER_OPTIONS if name in config}


def launch(x, w, x_scale, w_scale, y, M, N, K, ldx, ldy, config, partial=None):
    """Enqueues the product. `config` has the keys of AITER's block-scale files; `partial` is float32
    [NUM_KSPLIT, M, N], needed for more than one split."""
    splits = config["NUM_KSPLIT"]
    grid = (triton.cdiv(M, config["BLOCK_SIZE_M"]) * triton.cdiv(N, config["BLOCK_SIZE_N"]), splits)
    target = y if splits == 1 else partial
    block_scale_kernel[grid](x, w, x_scale, w_scale, target, M, N, K, ldx, ldy if splits == 1 else N,
                             0 if splits == 1 else M * N, config["GROUP_SIZE_M"], splits,
                             BLOCK_M=config["BLOCK_SIZE_M"], BLOCK_N=config["BLOCK_SIZE_N"],
                             BLOCK_K=config["BLOCK_SIZE_K"], CACHE=config["cache_modifier"],
                             **compiler_options(config))
    if splits > 1:
        add_splits_kernel[(M, triton.cdiv(N, 1024))](partial, y, N, ldy, M * N, splits, BLOCK_N=1024)


def read_configs(path):
    """[(largest M, config), …] of a file that `gemmtune tune --buckets` wrote, ascending; the last one has no limit.
    Files of vLLM and SGLang, with M alone as keys, are read too: a key serves the M that are nearest to it."""
    with open(path, encoding="utf-8") as file:
        buckets = {key: config for key, config in json.load(file).items() if not key.startswith("_")}  # notes
    limits = []
    numbers = sorted(int(key) for key in buckets if key.isdigit())
    for key, config in buckets.items():
        if key in ("any", "large_M"):
            limits.append((float("inf"), config))
        elif key == "small_M":
            limits.append((256, config))
        elif key == "medium_M":
            limits.append((2048, config))
        elif key.startswith("M_LEQ_"):
            limits.append((int(key[len("M_LEQ_"):]), config))
        elif key.isdigit():
            above = [number for number in numbers if number > int(key)]
            limits.append(((int(key) + above[0]) // 2 if above else float("inf"), config))
        else:
            raise ValueError(f"{path}: '{key}' is no bucket of M")
    if not limits:
        raise ValueError(f"{path}: no bucket of M")
    return sorted(limits, key=lambda limit: limit[0])


def config_for(configs, M):
    """The config whose bucket holds M; of a file without a last bucket the largest one."""
    config = next((config for limit, config in configs if M <= limit), configs[-1][1])
    return {"NUM_KSPLIT": 1, "cache_modifier": "", **config}


def gemm(x, w, x_scale, w_scale, configs):
    """y = x · wᵀ with the config of x's M; `configs` are read_configs()."""
    import torch  # the kernel itself needs none
    M, K = x.shape
    N = w.shape[0]
    config = config_for(configs, M)
    y = torch.empty((M, N), dtype=torch.bfloat16, device=x.device)
    partial = None
    if config["NUM_KSPLIT"] > 1:
        partial = torch.empty((config["NUM_KSPLIT"], M, N), dtype=torch.float32, device=x.device)
    launch(x, w, x_scale, w_scale, y, M, N, K, x.stride(0), N, config, partial)
    return y
