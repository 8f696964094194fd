#!/usr/bin/env python3
"""The Triton kernel of block_scale.py as an evaluator of gemmtune:

  gemmtune tune --evaluator "python3 evaluate.py" --op a8w8_blockscale --buckets -o configs
"""

import concurrent.futures
import hashlib
import multiprocessing
import os
import pathlib

import torch
import triton

import block_scale
import evaluator_protocol

# The parameters of AITER's block-scale tuner, with values for NVIDIA GPUs: 5,832 points.
NVIDIA_PARAMETERS = [
    ("BLOCK_SIZE_M", "bm", [16, 64, 128], "rows of y of a thread block"),
    ("BLOCK_SIZE_N", "bn", [32, 64, 128], "columns of y of a thread block"),
    ("BLOCK_SIZE_K", "bk", [32, 64, 128], "elements of K of a pipeline stage"),
    ("GROUP_SIZE_M", "gm", [1, 8, 16], "rows of tiles that share columns in the L2 cache"),
    ("NUM_KSPLIT", "sk", [1, 2, 4], "split-K: slices of K, added by a second kernel"),
    ("num_warps", "nw", [2, 4, 8], "warps of a thread block"),
    ("num_stages", "ns", [1, 2, 3, 4], "pipeline stages"),
    ("cache_modifier", "cm", ["", ".cg"], "caches of the loads of w: all, or the L2 cache alone"),
]
# With its values for AMD GPUs, whose compiler has three more: 5,832 points. A wave has 64 lanes, and an LDS of 64 KiB holds no larger stage.
AMD_PARAMETERS = [
    ("BLOCK_SIZE_M", "bm", [32, 64, 128], "rows of y of a block"),
    ("BLOCK_SIZE_N", "bn", [32, 64, 128], "columns of y of a block"),
    ("BLOCK_SIZE_K", "bk", [128], "elements of K of a pipeline stage"),
    ("GROUP_SIZE_M", "gm", [1, 8, 16], "rows of tiles that share columns in the L2 cache"),
    ("NUM_KSPLIT", "sk", [1, 2, 4], "split-K: slices of K, added by a second kernel"),
    ("num_warps", "nw", [2, 4, 8], "waves of a block"),
    ("num_stages", "ns", [1, 2, 3, 4], "pipeline stages"),
    ("waves_per_eu", "eu", [2, 4, 8], "waves that the compiler leaves a SIMD's registers for"),
    ("kpack", "kp", [2], "matrix instructions that a read of LDS feeds"),
    ("matrix_instr_nonkdim", "mi", [16], "rows of the matrix instruction"),
    ("cache_modifier", "cm", ["", ".cg"], "caches of the loads of w: all, or past the first"),
]
RULES = [
    {
        "name": "split_k",
        "refuses": "(k / 128) % NUM_KSPLIT != 0",
        "reason": "slices of split-K are not whole blocks of 128"
    },
    {
        "name": "split_k_needed",
        "refuses": "NUM_KSPLIT != 1 and m > 512 and n > 512",
        "reason": "M and N are large enough without split-K",
        "kind": "search",
        "on": False
    },
]
# What the kernel is without tuning.
DEFAULT = dict(BLOCK_SIZE_M=64, BLOCK_SIZE_N=128, BLOCK_SIZE_K=128, GROUP_SIZE_M=8, NUM_KSPLIT=1, num_warps=4, cache_modifier="")
NVIDIA_DEFAULTS = [dict(**DEFAULT, num_stages=3)]
AMD_DEFAULTS = [dict(**DEFAULT, num_stages=2, waves_per_eu=2, kpack=2, matrix_instr_nonkdim=16)]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Y_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
if INTERPRETED:
    del Y_TYPES["bf16"]  # Triton's interpreter truncates where it should round: verification refuses that


def compile_config(config):
    """Compiles a configuration into Triton's cache on disk, from which the evaluator loads it."""
    kernel = block_scale.block_scale_kernel
    kernel.warmup(config["x_type"], config["x_type"], torch.float32, torch.float32, config["target"],
                  *config["sizes"], BLOCK_M=config["BLOCK_SIZE_M"],
                  BLOCK_N=config["BLOCK_SIZE_N"], BLOCK_K=config["BLOCK_SIZE_K"], CACHE=config["cache_modifier"],
                  **block_scale.compiler_options(config), grid=(1,))


class BlockScale(evaluator_protocol.Evaluator):

    def __init__(self):
        self.device = "cpu" if INTERPRETED else "cuda"
        self.is_amd = torch.version.hip is not None and not INTERPRETED
        self.x_type = torch.float8_e4m3fn
        if self.is_amd and torch.cuda.get_device_properties(0).gcnArchName.startswith("gfx94"):
            self.x_type = torch.float8_e4m3fnuz  # the form of fp8 that its matrix instructions have
        self.pool = None
        self.compiling = {}  # of a compile, by what it depends on

    def hello(self):
        source = pathlib.Path(block_scale.__file__).read_bytes()
        return {
            "family": "triton_block_scale",
            "revision": 1,
            "identity": hashlib.sha256(source).hexdigest()[:16],
            "device": self.describe_device(),
            "libraries": [{"name": "triton", "version": triton.__version__}],
            "problems": [{
                "operation": "a8w8_blockscale",
                "x_types": ["fp8" if self.x_type == torch.float8_e4m3fn else "fp8_e4m3fnuz"],
                "y_types": list(Y_TYPES),
                "requires": "k % 128 == 0"
            }],
            "parameters": [dict(zip(("name", "key", "values", "meaning"), one))
                           for one in (AMD_PARAMETERS if self.is_amd else NVIDIA_PARAMETERS)],
            "rules": RULES,
            "defaults": AMD_DEFAULTS if self.is_amd else NVIDIA_DEFAULTS,
            "compiles_ahead": not INTERPRETED,
        }

    def describe_device(self):
        if INTERPRETED:
            return {"gfx": "triton-interpreter", "cu_num": os.cpu_count(), "memory_bytes": 1 << 30}
        device = torch.cuda.get_device_properties(0)
        place = [getattr(device, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
        # It names the lock that is held while this GPU is timed.
        bus = {} if None in place else {"bus_id": "{:04x}:{:02x}:{:02x}.0".format(*place)}
        return {
            **bus,
            "gfx": device.gcnArchName.split(":")[0] if self.is_amd else f"sm_{device.major}{device.minor}",
            "cu_num": device.multi_processor_count,
            "model": device.name,
            # Of a cache of this size some lines survive a pool of twice its size: see docs/measuring.md.
            "cache_bytes": device.L2_cache_size * 5 // 2,
            "memory_bytes": torch.cuda.mem_get_info()[0],
        }

    def sizes(self, problem, splits):
        """The arguments of the kernel that are numbers, for dense operands."""
        stride = 0 if splits == 1 else problem.m * problem.n
        return (problem.m, problem.n, problem.k, problem.k, problem.n, stride, 1, splits)

    def target(self, problem, config):
        """The type that the kernel stores."""
        return Y_TYPES[problem.y_type] if config["NUM_KSPLIT"] == 1 else torch.float32

    def compiled_once(self, problem, config):
        """What a compile depends on: not on the sizes, but on which of them are 1 or multiples of 16."""
        classes = tuple((size == 1, size % 16 == 0) for size in (problem.m, problem.n, problem.k))
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "cache_modifier")
        options = block_scale.compiler_options(config)
        return (classes, self.target(problem, config), *(config[name] for name in names), *options.values())

    def compile_ahead(self, problem, configs):
        if self.pool is None:
            # A process each: the compiler holds the interpreter's lock.
            self.pool = concurrent.futures.ProcessPoolExecutor(max(1, (os.cpu_count() or 2) - 2),
                                                               multiprocessing.get_context("spawn"),
                                                               evaluator_protocol.die_with_parent)
        for config in configs:
            key = self.compiled_once(problem, config)
            if key in self.compiling:
                continue
            arguments = {
                "sizes": self.sizes(problem, config["NUM_KSPLIT"]),
                "target": self.target(problem, config),
                "x_type": self.x_type
            }
            self.compiling[key] = self.pool.submit(compile_config, {**config, **arguments})

    def build(self, problem, config):
        if future := self.compiling.get(self.compiled_once(problem, config)):
            future.result()
        M, N, K = problem.m, problem.n, problem.k
        splits, y_type = config["NUM_KSPLIT"], Y_TYPES[problem.y_type]
        partial = torch.empty((splits, M, N), dtype=torch.float32, device=self.device) if splits > 1 else None

        def call(operands):
            block_scale.launch(operands.x.view(self.x_type), operands.w.view(self.x_type),
                               operands.x_scale.view(torch.float32), operands.w_scale.view(torch.float32),
                               operands.y.view(y_type), M, N, K, operands.ldx, operands.ldy, config, partial)

        return call


if __name__ == "__main__":
    evaluator_protocol.serve(BlockScale())
