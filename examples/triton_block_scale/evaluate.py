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

# The eight parameters of AITER's block-scale tuner, with values for NVIDIA GPUs: 5,832 points.
PARAMETERS = [
    ("BLOCK_SIZE_M", "bm", [16, 64, 128], "rows of y of a thread block"),
    ("BLOCK_SIZE_N", "bn", [32, 64, 128], "columns of y of a thread block"),
    ("BLOCK_SIZE_K", "bk", [32, 64, 128], "elements of K of a pipeline stage"),
    ("GROUP_SIZE_M", "gm", [1, 8, 16], "rows of tiles that share columns in the L2 cache"),
    ("NUM_KSPLIT", "sk", [1, 2, 4], "split-K: slices of K, added by a second kernel"),
    ("num_warps", "nw", [2, 4, 8], "warps of a thread block"),
    ("num_stages", "ns", [1, 2, 3, 4], "pipeline stages"),
    ("cache_modifier", "cm", ["", ".cg"], "caches of the loads of w: all, or the L2 cache alone"),
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
DEFAULTS = [
    dict(BLOCK_SIZE_M=64, BLOCK_SIZE_N=128, BLOCK_SIZE_K=128, GROUP_SIZE_M=8, NUM_KSPLIT=1, num_warps=4, num_stages=3,
         cache_modifier=""),
]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
Y_TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
if INTERPRETED:
    del Y_TYPES["bf16"]  # Triton's interpreter truncates where it should round: verification refuses that


def compile_config(config):
    """Compiles a configuration into Triton's cache on disk, from which the evaluator loads it."""
    kernel = block_scale.block_scale_kernel
    kernel.warmup(torch.float8_e4m3fn, torch.float8_e4m3fn, torch.float32, torch.float32, config["target"],
                  *config["sizes"], BLOCK_M=config["BLOCK_SIZE_M"],
                  BLOCK_N=config["BLOCK_SIZE_N"], BLOCK_K=config["BLOCK_SIZE_K"], CACHE=config["cache_modifier"], num_warps=config["num_warps"], num_stages=config["num_stages"],
                  grid=(1,))


class BlockScale(evaluator_protocol.Evaluator):

    def __init__(self):
        self.device = "cpu" if INTERPRETED else "cuda"
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
                "x_types": ["fp8"],
                "y_types": list(Y_TYPES),
                "requires": "k % 128 == 0"
            }],
            "parameters": [dict(zip(("name", "key", "values", "meaning"), one)) for one in PARAMETERS],
            "rules": RULES,
            "defaults": DEFAULTS,
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
            "gfx": f"sm_{device.major}{device.minor}",
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
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages", "cache_modifier")
        return (classes, self.target(problem, config), *(config[name] for name in names))

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
            arguments = {"sizes": self.sizes(problem, config["NUM_KSPLIT"]), "target": self.target(problem, config)}
            self.compiling[key] = self.pool.submit(compile_config, {**config, **arguments})

    def build(self, problem, config):
        if future := self.compiling.get(self.compiled_once(problem, config)):
            future.result()
        M, N, K = problem.m, problem.n, problem.k
        splits, y_type = config["NUM_KSPLIT"], Y_TYPES[problem.y_type]
        partial = torch.empty((splits, M, N), dtype=torch.float32, device=self.device) if splits > 1 else None

        def call(operands):
            block_scale.launch(operands.x.view(torch.float8_e4m3fn), operands.w.view(torch.float8_e4m3fn),
                               operands.x_scale.view(torch.float32), operands.w_scale.view(torch.float32),
                               operands.y.view(y_type), M, N, K, operands.ldx, operands.ldy, config, partial)

        return call


if __name__ == "__main__":
    evaluator_protocol.serve(BlockScale())
