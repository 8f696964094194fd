#!/usr/bin/env python3
"""Times whole layers of fused_moe (tokens sorted, both GEMMs, activation, sum over experts) in one process: gemmtune, PyTorch's
_grouped_mm (bf16), a grouped Triton kernel (bf16, fp8 blocks) with the same steps around it, and vLLM's Marlin for mixtures (int4 and NVFP4 experts) with the
steps that vLLM has around it. Every layer is captured in a CUDA graph
that rotates over routings, so that weights come from memory; the graphs are replayed in turns, --rounds times. Prints medians in
microseconds with the share of the floor (bytes of the touched experts' weights over 4.3 TB/s, or operations over 790 TFLOP/s in bf16 and
1580 in fp8) and geometric means. What is not there is named.

Usage: fused_moe.py --library build/lib/libgemmtune.so [--tuned FILE] [--models NAME ...] [--tokens N ...] [--routing uniform|zipf]
                    [--rounds 9] [--csv FILE]

MXFP4 (gpt-oss-120b) has no peer here: triton_kernels and Marlin are not packaged. Beside bf16 activations without biases the same layer is timed
with the biases of its experts, and with fp8 activations of a scale for each token.
"""

import argparse
import concurrent.futures
import ctypes
import math
import os
import statistics
import sys

import torch
import triton
import triton.language as tl

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import vllm_ops  # noqa: E402
from dense_8bit import BF16, F8_E4M3FN, Library, Operands, Problem, geometric_mean, time_once, write_rows  # noqa: E402

# Experts, topk, model_dim, inter_dim of a GPU, format; of int4 the elements of a group.
MODELS = {
    "DeepSeek-V3-TP8-fp8": (256, 8, 7168, 256, "fp8"),
    "DeepSeek-V3-TP8-bf16": (256, 8, 7168, 256, "bf16"),
    "Qwen3-30B-A3B-bf16": (128, 8, 2048, 768, "bf16"),
    "Qwen3-30B-A3B-fp8": (128, 8, 2048, 768, "fp8"),
    "Mixtral-8x7B-TP2-bf16": (8, 2, 4096, 7168, "bf16"),
    "gpt-oss-120b-mxfp4": (128, 4, 2880, 2880, "mxfp4"),
    "Qwen3-30B-A3B-int4": (128, 8, 2048, 768, "int4 128"),
    "Qwen3-30B-A3B-nvfp4": (128, 8, 2048, 768, "nvfp4"),
    "Kimi-K2.5-TP8-int4": (384, 8, 7168, 256, "int4 32"),
}
TOKENS = [1, 4, 16, 64, 128, 256, 512, 1024, 4096]
ROUTINGS = 8
SPAN_MICROSECONDS = 4000
TERABYTES, BF16_TERAFLOPS, FP8_TERAFLOPS = 4.3, 790.0, 1580.0
FUSED_MOE, SILU, SWIGLU, F4_E2M1, I4 = 8, 1, 3, 7, 9
QUANTIZATION = {"bf16": 0, "mxfp4": 3, "fp8": 4, "nvfp4": 6, "int4": 7}  # none, 1 x 32, 1 x 128, 1 x 16, groups
PER_TOKEN = 2
PLAIN, BIASES, FP8_TOKENS = "", " with biases", " with fp8 tokens"  # of MXFP4: what is timed
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


class Moe(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("experts", ctypes.c_int32), ("topk", ctypes.c_int32), ("activation", ctypes.c_int),
                ("quant_type", ctypes.c_int), ("gated", ctypes.c_int32), ("doweight_stage1", ctypes.c_int32)]


class MoeOperands(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("w2", ctypes.c_void_p), ("w2_scale", ctypes.c_void_p), ("topk_ids", ctypes.c_void_p),
                ("topk_weights", ctypes.c_void_p), ("bias2", ctypes.c_void_p), ("w2_global_scale", ctypes.c_void_p), ("w2_zero_points", ctypes.c_void_p)]


class Weights:
    """Of one model, used by all its cases."""

    def __init__(self, model):
        self.experts, self.topk, self.k, self.n, form = MODELS[model]
        self.form, _, group = form.partition(" ")
        self.group = int(group or 0)
        self.w1_global = self.w2_global = None  # of nvfp4
        self.marlin = None  # made by the first case that has Marlin
        random = torch.Generator(device="cuda").manual_seed(1)

        def elements(rows, columns):
            if self.form in ("mxfp4", "nvfp4", "int4"):
                return torch.randint(0, 256, (self.experts, rows, columns // 2), generator=random, device="cuda", dtype=torch.uint8)
            all_of_them = torch.empty(self.experts, rows, columns, device="cuda", dtype=torch.bfloat16 if self.form == "bf16" else torch.float8_e4m3fn)
            for expert in all_of_them:
                values = torch.randn(rows, columns, generator=random, device="cuda")
                expert.copy_((values / math.sqrt(columns) if self.form == "bf16" else values).to(all_of_them.dtype))
            return all_of_them

        def scales(rows, columns):
            if self.form == "mxfp4":  # e8m0
                middle = 127 - round(math.log2(3 * math.sqrt(columns)))
                return torch.randint(middle - 1, middle + 2, (self.experts, rows, columns // 32), generator=random, device="cuda", dtype=torch.uint8)
            if self.form == "nvfp4":
                return (torch.rand(self.experts, rows, columns // 16, generator=random, device="cuda") + 0.5).to(torch.float8_e4m3fn)
            if self.form == "int4":
                size = self.experts, rows, columns // self.group
                return ((torch.rand(size, generator=random, device="cuda") + 0.5) / (4 * math.sqrt(columns))).to(torch.bfloat16)
            return (torch.rand(self.experts, math.ceil(rows / 128), math.ceil(columns / 128), generator=random, device="cuda") + 0.5) / math.sqrt(columns)

        self.w1, self.w2 = elements(2 * self.n, self.k), elements(self.k, self.n)
        self.w1_scale = scales(2 * self.n, self.k) if self.form != "bf16" else None
        self.w2_scale = scales(self.k, self.n) if self.form != "bf16" else None
        if self.form == "nvfp4":
            self.w1_global, self.w2_global = ((torch.rand(self.experts, generator=random, device="cuda") + 0.5) / (3 * math.sqrt(columns)) for columns in (self.k, self.n))
        if self.form == "mxfp4":
            self.bias1, self.bias2 = (torch.randn(self.experts, rows, generator=random, device="cuda") for rows in (2 * self.n, self.k))


    def element_bytes(self):
        """Of an element, with its share of a scale."""
        return {"bf16": 2.0, "fp8": 1.0, "mxfp4": 17.0 / 32, "nvfp4": 9.0 / 16, "int4": 0.5 + 2 / (self.group or 1)}[self.form]

    def matrix(self, name, expert):
        """w1 or w2 of an expert in float64."""
        values, scale, global_scale = getattr(self, name)[expert], getattr(self, f"{name}_scale"), getattr(self, f"{name}_global")
        if self.form in ("mxfp4", "nvfp4", "int4"):
            values = torch.stack((values & 15, values >> 4), 2).flatten(1).long()
            values = (values ^ 8) - 8 if self.form == "int4" else torch.tensor(E2M1, dtype=torch.float64, device="cuda")[values]
        values = values.double()
        if scale is None:
            return values
        if self.form == "mxfp4":
            return values * torch.exp2(scale[expert].double() - 127).repeat_interleave(32, 1)
        if self.form == "nvfp4":
            return values * scale[expert].double().repeat_interleave(16, 1) * global_scale[expert].double()
        if self.form == "int4":
            return values * scale[expert].double().repeat_interleave(self.group, 1)
        return values * scale[expert].repeat_interleave(128, 0)[: values.shape[0]].repeat_interleave(128, 1)[:, : values.shape[1]]


class Case:
    def __init__(self, weights, tokens, routing):
        self.weights, self.m = weights, tokens
        random = torch.Generator(device="cuda").manual_seed(tokens)
        x = torch.randn(tokens, weights.k, generator=random, device="cuda")
        self.x_scale = None
        if weights.form == "fp8":
            self.x_scale = torch.rand(tokens, math.ceil(weights.k / 128), generator=random, device="cuda") + 0.5
        self.x = x.to(torch.float8_e4m3fn if weights.form == "fp8" else torch.bfloat16)
        if weights.form == "mxfp4":
            self.fp8_x = x.to(torch.float8_e4m3fn)
            self.token_scale = torch.rand(tokens, generator=random, device="cuda") + 0.5
        share = torch.ones(weights.experts, device="cuda")
        if routing == "zipf":
            share = 1.0 / torch.arange(1, weights.experts + 1, device="cuda").float()
        self.ids, self.weight = [], []
        for _ in range(ROUTINGS):
            order = share[torch.randperm(weights.experts, generator=random, device="cuda")]
            self.ids.append(torch.multinomial(order.expand(tokens, -1), weights.topk, generator=random).int().contiguous())
            self.weight.append(torch.softmax(torch.randn(tokens, weights.topk, generator=random, device="cuda"), 1).contiguous())
        self.y = torch.empty(tokens, weights.k, device="cuda", dtype=torch.bfloat16)

    def floor(self):
        w = self.weights
        touched = sum(len(ids.unique()) for ids in self.ids) / ROUTINGS
        moved = touched * 3 * w.n * w.k * w.element_bytes() + self.m * w.k * (self.x.element_size() + 2)
        return max(moved / TERABYTES / 1e6, 6.0 * self.m * w.topk * w.n * w.k / (FP8_TERAFLOPS if w.form == "fp8" else BF16_TERAFLOPS) / 1e6)

    def expected(self, tokens, variant=PLAIN):
        """The first tokens in float64, with the first routing."""
        w = self.weights
        result = torch.zeros(tokens, w.k, dtype=torch.float64, device="cuda")
        for token in range(tokens):
            x = self.x[token].double()
            if self.x_scale is not None:
                x = x * self.x_scale[token].repeat_interleave(128)[: w.k]
            if variant == FP8_TOKENS:
                x = self.fp8_x[token].double() * self.token_scale[token]
            for expert, weight in zip(self.ids[0][token].tolist(), self.weight[0][token]):
                gate_up = w.matrix("w1", expert) @ x
                if variant == BIASES:
                    gate_up = gate_up + w.bias1[expert]
                gate, up = gate_up[: w.n], gate_up[w.n :]
                if w.form == "mxfp4":
                    gate = gate.clamp(max=7.0)
                    hidden = gate * torch.sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1)
                else:
                    hidden = torch.nn.functional.silu(gate) * up
                sums = w.matrix("w2", expert) @ hidden
                result[token] += weight * (sums + w.bias2[expert] if variant == BIASES else sums)
        return result


def problem_of(w, tokens, variant=PLAIN):
    x_type = F8_E4M3FN if w.form == "fp8" or variant == FP8_TOKENS else BF16
    w_type = {"mxfp4": F4_E2M1, "nvfp4": F4_E2M1, "int4": I4}.get(w.form, x_type)
    moe = Moe(size=ctypes.sizeof(Moe), experts=w.experts, topk=w.topk, activation=SWIGLU if w.form == "mxfp4" else SILU, gated=1,
              quant_type=PER_TOKEN if variant == FP8_TOKENS else QUANTIZATION[w.form])
    problem = Problem(size=ctypes.sizeof(Problem), operation=FUSED_MOE, x_type=x_type, w_type=w_type, y_type=BF16, m=tokens, n=w.n, k=w.k,
                      bias=int(variant == BIASES), w_group=w.group, moe=ctypes.cast(ctypes.pointer(moe), ctypes.c_void_p))
    return problem, moe


def variants(w):
    return [PLAIN, BIASES, FP8_TOKENS] if w.form == "mxfp4" else [PLAIN]


def make_plans(libraries, w, tokens):
    """All at once, so that they are compiled on several cores."""

    def make(library, count, variant):
        problem, _ = problem_of(w, count, variant)
        plan = ctypes.c_void_p()
        library.functions.gemmtune_plan_create(library.context, ctypes.byref(problem), ctypes.byref(plan))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for library in libraries.values():
            for count in tokens:
                for variant in variants(w):
                    pool.submit(make, library, count, variant)


def gemmtune_call(library, case, variant):
    w = case.weights
    problem, moe = problem_of(w, case.m, variant)
    pointer = lambda tensor: None if tensor is None else tensor.data_ptr()  # noqa: E731
    routed = [MoeOperands(size=ctypes.sizeof(MoeOperands), w2=w.w2.data_ptr(), w2_scale=pointer(w.w2_scale), topk_ids=ids.data_ptr(),
                          topk_weights=weight.data_ptr(), bias2=w.bias2.data_ptr() if variant == BIASES else None,
                          w2_global_scale=pointer(w.w2_global)) for ids, weight in zip(case.ids, case.weight)]
    x, x_scale = (case.fp8_x, case.token_scale) if variant == FP8_TOKENS else (case.x, case.x_scale)
    operands = [Operands(size=ctypes.sizeof(Operands), x=x.data_ptr(), w=w.w1.data_ptr(), y=case.y.data_ptr(), x_scale=pointer(x_scale),
                         bias=w.bias1.data_ptr() if variant == BIASES else None, w_scale=pointer(w.w1_scale), w_global_scale=pointer(w.w1_global),
                         moe=ctypes.cast(ctypes.pointer(each), ctypes.c_void_p)) for each in routed]

    def call(i):
        library.gemm(problem, operands[i])

    call.keep = (moe, routed)  # the structures point at them
    return call


# ---- peers: the steps around the GEMMs, and a grouped GEMM, in Triton


@triton.jit
def sort_kernel(ids, order, position, ends, pairs, BLOCK: tl.constexpr):
    expert = tl.program_id(0)
    before = 0
    for start in range(0, pairs, BLOCK):
        at = start + tl.arange(0, BLOCK)
        before += tl.sum((tl.load(ids + at, mask=at < pairs, other=1 << 30) < expert).to(tl.int32))
    for start in range(0, pairs, BLOCK):
        at = start + tl.arange(0, BLOCK)
        own = tl.load(ids + at, mask=at < pairs, other=-1) == expert
        to = before + tl.cumsum(own.to(tl.int32)) - 1
        tl.store(order + to, at, mask=own)
        tl.store(position + at, to, mask=own)
        before += tl.sum(own.to(tl.int32))
    tl.store(ends + expert, before)


@triton.jit
def tile_kernel(ends, tile_expert, tile_first, tile_end, tile_count, experts, BLOCK_M: tl.constexpr, EXPERTS: tl.constexpr):
    expert = tl.program_id(0)
    at = tl.arange(0, EXPERTS)
    end = tl.load(ends + at, mask=at < experts, other=0)
    begin = tl.load(ends + at - 1, mask=(at > 0) & (at < experts), other=0)
    tiles = tl.where(at < experts, (end - begin + BLOCK_M - 1) // BLOCK_M, 0)
    first = tl.sum(tl.where(at < expert, tiles, 0))
    own = tl.sum(tl.where(at == expert, tiles, 0))
    own_begin = tl.sum(tl.where(at == expert, begin, 0))
    own_end = tl.sum(tl.where(at == expert, end, 0))
    if expert == 0:
        tl.store(tile_count, tl.sum(tiles))
    for i in range(own):
        tl.store(tile_expert + first + i, expert)
        tl.store(tile_first + first + i, own_begin + i * BLOCK_M)
        tl.store(tile_end + first + i, own_end)


@triton.jit
def grouped_kernel(x, w, to, x_scale, w_scale, order, tile_expert, tile_first, tile_end, tile_count, topk, columns, k, column_tiles,
                   GATED: tl.constexpr, FP8: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    tile = tl.program_id(0) // column_tiles
    if tile >= tl.load(tile_count):
        return
    expert = tl.load(tile_expert + tile).to(tl.int64)
    position = tl.load(tile_first + tile) + tl.arange(0, BLOCK_M)
    there = position < tl.load(tile_end + tile)
    row = (tl.load(order + position, mask=there, other=0) // topk if GATED else position).to(tl.int64)
    column = tl.program_id(0) % column_tiles * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = column < columns
    halves: tl.constexpr = 2 if GATED else 1
    depth = tl.arange(0, BLOCK_K)
    x_at = x + row[:, None] * k + depth[None, :]
    w_at = w + (expert * halves * columns + column[None, :]) * k + depth[:, None]
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    blocks = tl.cdiv(k, 128)
    rows_of_blocks = tl.cdiv(halves * columns, 128)
    for start in range(0, k, BLOCK_K):
        ok = depth + start < k
        a = tl.load(x_at + start, mask=there[:, None] & ok[None, :], other=0.0)
        b = tl.load(w_at + start, mask=inside[None, :] & ok[:, None], other=0.0)
        one = tl.dot(a, b)
        if FP8:
            of_x = tl.load(x_scale + row * blocks + start // 128, mask=there, other=0.0)
            scales = w_scale + (expert * rows_of_blocks + column // 128) * blocks + start // 128
            gate += one * of_x[:, None] * tl.load(scales, mask=inside, other=0.0)[None, :]
        else:
            gate += one
        if GATED:
            c = tl.load(w_at + columns.to(tl.int64) * k + start, mask=inside[None, :] & ok[:, None], other=0.0)
            two = tl.dot(a, c)
            if FP8:
                scales = w_scale + (expert * rows_of_blocks + (columns + column) // 128) * blocks + start // 128
                up += two * of_x[:, None] * tl.load(scales, mask=inside, other=0.0)[None, :]
            else:
                up += two
    if GATED:
        gate = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(to + position.to(tl.int64)[:, None] * columns + column[None, :], gate.to(tl.bfloat16), mask=there[:, None] & inside[None, :])


@triton.jit
def quantize_kernel(hidden, to, scale, n, blocks):
    pair = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * 128 + tl.arange(0, 128)
    values = tl.load(hidden + pair * n + at, mask=at < n, other=0.0).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(values)), 1e-12)
    tl.store(scale + pair * blocks + tl.program_id(1), most / 448.0)
    tl.store(to + pair * n + at, (values * (448.0 / most)).to(tl.float8e4nv), mask=at < n)


@triton.jit
def gather_kernel(x, order, to, topk, k, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64)
    row = (tl.load(order + position) // topk).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to + position * k + at, tl.load(x + row * k + at, mask=at < k), mask=at < k)


@triton.jit
def activation_kernel(gate_up, to, n, BLOCK: tl.constexpr):
    pair = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_up + pair * 2 * n + at, mask=at < n, other=0.0).to(tl.float32)
    up = tl.load(gate_up + pair * 2 * n + n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(to + pair * n + at, (gate / (1.0 + tl.exp(-gate)) * up).to(tl.bfloat16), mask=at < n)


@triton.jit
def combine_kernel(partials, position, weight, y, topk, k, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for slot in range(topk):
        row = tl.load(position + token * topk + slot).to(tl.int64)
        total += tl.load(weight + token * topk + slot) * tl.load(partials + row * k + at, mask=at < k, other=0.0).to(tl.float32)
    tl.store(y + token * k + at, total.to(tl.bfloat16), mask=at < k)


class Buffers:
    def __init__(self, case):
        w, pairs = case.weights, case.m * case.weights.topk
        new = lambda *shape, dtype=torch.int32: torch.empty(*shape, dtype=dtype, device="cuda")  # noqa: E731
        self.order, self.position, self.ends = new(pairs), new(pairs), new(w.experts)
        self.hidden, self.partials = new(pairs, w.n, dtype=torch.bfloat16), new(pairs, w.k, dtype=torch.bfloat16)


def sort(case, buffers, i):
    pairs = case.m * case.weights.topk
    sort_kernel[(case.weights.experts,)](case.ids[i], buffers.order, buffers.position, buffers.ends, pairs,
                                         BLOCK=min(4096, triton.next_power_of_2(pairs)))


def combine(case, buffers, partials, i):
    w = case.weights
    combine_kernel[(case.m, triton.cdiv(w.k, 1024))](partials, buffers.position, case.weight[i], case.y, w.topk, w.k, BLOCK=1024)


def torch_grouped(case):
    w, buffers = case.weights, Buffers(case)
    pairs = case.m * w.topk
    rows = torch.empty(pairs, w.k, dtype=torch.bfloat16, device="cuda")
    w1, w2 = w.w1.transpose(1, 2), w.w2.transpose(1, 2)

    def call(i):
        sort(case, buffers, i)
        gather_kernel[(pairs, triton.cdiv(w.k, 1024))](case.x, buffers.order, rows, w.topk, w.k, BLOCK=1024)
        gate_up = torch._grouped_mm(rows, w1, offs=buffers.ends)
        activation_kernel[(pairs, triton.cdiv(w.n, 1024))](gate_up, buffers.hidden, w.n, BLOCK=1024)
        combine(case, buffers, torch._grouped_mm(buffers.hidden, w2, offs=buffers.ends), i)

    return call


def triton_grouped(case, block_m, block_n, warps, stages):
    w, buffers = case.weights, Buffers(case)
    pairs = case.m * w.topk
    fp8 = w.form == "fp8"
    most = min(pairs, pairs // block_m + min(pairs, w.experts))
    lists = [torch.empty(max(1, most), dtype=torch.int32, device="cuda") for _ in range(3)]
    count = torch.empty(1, dtype=torch.int32, device="cuda")
    quantized = torch.empty(pairs, w.n, dtype=torch.float8_e4m3fn, device="cuda") if fp8 else None
    blocks = triton.cdiv(w.n, 128)
    scale = torch.empty(pairs, blocks, device="cuda") if fp8 else None
    block_k = 128 if fp8 else 64

    def gemm(x, weight, to, x_scale, w_scale, columns, k, gated):
        tiles = triton.cdiv(columns, block_n)
        grouped_kernel[(most * tiles,)](x, weight, to, x_scale, w_scale, buffers.order, *lists, count, w.topk, columns, k, tiles, GATED=gated, FP8=fp8,
                                        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=stages)

    def call(i):
        sort(case, buffers, i)
        tile_kernel[(w.experts,)](buffers.ends, *lists, count, w.experts, BLOCK_M=block_m, EXPERTS=triton.next_power_of_2(w.experts))
        gemm(case.x, w.w1, buffers.hidden, case.x_scale, w.w1_scale, w.n, w.k, True)
        hidden = buffers.hidden
        if fp8:
            quantize_kernel[(pairs, blocks)](buffers.hidden, quantized, scale, w.n, blocks)
            hidden = quantized
        gemm(hidden, w.w2, buffers.partials, scale, w.w2_scale, w.k, w.n, False)
        combine(case, buffers, buffers.partials, i)

    return call


def triton_configs(case):
    each = case.m * case.weights.topk / case.weights.experts
    if each <= 16:
        return [(16, 64, 4, 4), (16, 128, 4, 3)]
    if each <= 48:
        return [(32, 128, 4, 3), (64, 128, 4, 3)]
    return [(64, 128, 4, 3), (128, 128, 8, 3)]


def calls_of(case, libraries, only, missing):
    """Name -> call(i): the layer with routing i, written to case.y. `missing` gets what is not there, and why."""
    calls = {name + variant: gemmtune_call(library, case, variant) for name, library in libraries.items() for variant in variants(case.weights)}
    if case.weights.form == "bf16":
        calls["torch._grouped_mm"] = torch_grouped(case)
    if case.weights.form in ("int4", "nvfp4"):
        try:
            calls["vLLM Marlin"] = vllm_ops.marlin_mixture(case)
        except Exception as error:  # not installed, or another version
            missing[f"vLLM Marlin at {case.m} tokens"] = f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")
    for config in triton_configs(case) if case.weights.form in ("bf16", "fp8") else []:
        calls[f"triton {config[0]}x{config[1]}"] = triton_grouped(case, *config)
    return {name: call for name, call in calls.items() if only is None or name.startswith(only)}


def measure(case, calls, rounds, missing, label):
    """Name -> (median us, relative error). `calls`: name -> call(i), which writes case.y with routing i, or returns another y."""
    some = min(case.m, 4)
    expected = {variant: case.expected(some, variant) for variant in variants(case.weights)}
    graphs, errors = {}, {}
    stream = torch.cuda.Stream()
    count = ROUTINGS * max(1, math.ceil(SPAN_MICROSECONDS / ROUTINGS / max(case.floor() * 1.5, 20)))
    for name, call in calls.items():
        try:
            case.y.fill_(float("nan"))
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                returned = call(0)
            torch.cuda.synchronize()
            y = case.y if returned is None else returned
            right = expected[next((variant for variant in expected if variant and name.endswith(variant)), PLAIN)]
            errors[name] = float((y[:some].double() - right).norm() / right.norm())
            if not errors[name] < 0.1:
                raise RuntimeError(f"wrong: relative error {errors[name]}")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for i in range(count):
                    call(i % ROUTINGS)
            graphs[name] = graph
        except Exception as error:  # a peer that does not take this case
            missing[f"{name} at {label}"] = f"{type(error).__name__}: {str(error)[:300]}".replace("\n", " ")
            torch.cuda.synchronize()
    times = {name: [] for name in graphs}
    for graph in graphs.values():
        time_once(graph, count)
    for _ in range(rounds):
        for name, graph in graphs.items():
            times[name].append(time_once(graph, count))
    return {name: (statistics.median(values), errors[name]) for name, values in times.items()}


def rows_of(case, model, routing, found):
    """Of a CSV: what measure() found."""
    return [{"model": model, "routing": routing, "tokens": case.m, "who": name, "us": round(median, 2), "share_of_floor": round(case.floor() / median, 3),
             "error": f"{error:.2e}"} for name, (median, error) in found.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libgemmtune.so; without it the peers alone")
    parser.add_argument("--tuned", nargs="*", default=["default"],
                        help="tuned files of fused_moe, each timed beside the others; default: without one")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--tokens", nargs="*", type=int, default=TOKENS)
    parser.add_argument("--routing", default="uniform", choices=["uniform", "zipf"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", help="those whose names begin so")
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("fused_moe: no GPU here")
    libraries = {}
    for file in options.tuned if options.library else []:
        name = "gemmtune" if len(options.tuned) == 1 else f"gemmtune {os.path.basename(file)}"
        libraries[name] = Library(options.library, {} if file == "default" else {FUSED_MOE: file})
    rows, missing = [], {}
    for model in options.models:
        weights = Weights(model)
        make_plans(libraries, weights, options.tokens)
        ratios = []
        for tokens in options.tokens:
            case = Case(weights, tokens, options.routing)
            found = measure(case, calls_of(case, libraries, options.only, missing), options.rounds, missing, f"{model}, {tokens} tokens")
            floor = case.floor()
            rows += rows_of(case, model, options.routing, found)
            ours = [median for name, (median, _) in found.items() if name.startswith("gemmtune")]
            peers = [median for name, (median, _) in found.items() if not name.startswith("gemmtune")]
            if peers and ours:
                ratios.append(min(peers) / ours[0])
            print(f"{model:24} {tokens:5} floor {floor:8.1f}  " + "  ".join(f"{name} {median:.1f} ({floor / median:.2f}, {error:.1e})"
                                                                            for name, (median, error) in found.items()), flush=True)
            del case
        if ratios:
            print(f"{model:24} best peer over gemmtune: geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}", flush=True)
        del weights
        torch.cuda.empty_cache()
    if options.csv and rows:
        write_rows(options.csv, rows)
    for name, why in missing.items():
        print(f"not there: {name}: {why}")


if __name__ == "__main__":
    main()
