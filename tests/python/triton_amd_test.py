"""The Triton example's space for AMD GPUs: its corners compile for gfx942, which needs no GPU.

Part of `make soak` (GEMMTUNE_SOAK=1), which installs PyPI's Triton into build/triton; elsewhere it is skipped. Run by that Python as
`triton_amd_test.py --compile` it does the work."""

import ast
import itertools
import os
import subprocess
import sys
import unittest
from pathlib import Path

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "triton_block_scale"
ARCHITECTURES = {"gfx942": "fp8e4b8"}  # with Triton's word for its fp8 e4m3
LDS_BYTES = {"gfx942": 64 << 10}


def constants_of(path):
    """AMD_PARAMETERS and AMD_DEFAULTS of evaluate.py, which imports PyTorch: read, not run."""
    scope = {}
    for statement in ast.parse(path.read_text()).body:
        names = [target.id for target in getattr(statement, "targets", []) if isinstance(target, ast.Name)]
        if any(name in ("AMD_PARAMETERS", "DEFAULT", "AMD_DEFAULTS") for name in names):
            exec(compile(ast.Module([statement], []), str(path), "exec"), {"dict": dict, **scope}, scope)
    return scope


def corners(parameters):
    """Each combination of the first and the last value of every parameter that reaches the compiler."""
    kernels = [one for one in parameters if one[0] not in ("GROUP_SIZE_M", "NUM_KSPLIT")]  # arguments of a launch
    names = [name for name, *_ in kernels]
    for values in itertools.product(*[dict.fromkeys([values[0], values[-1]]) for _, _, values, _ in kernels]):
        yield dict(zip(names, values))


def compile_corners():
    sys.path.insert(0, str(EXAMPLE))
    import triton
    from triton.backends.compiler import GPUTarget

    import block_scale

    parameters = constants_of(EXAMPLE / "evaluate.py")["AMD_PARAMETERS"]
    kernel = block_scale.block_scale_kernel
    constants = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "CACHE")
    for architecture, fp8 in ARCHITECTURES.items():
        types = dict(x_ptr=f"*{fp8}", w_ptr=f"*{fp8}", x_scale_ptr="*fp32", w_scale_ptr="*fp32", y_ptr="*bf16")
        count = too_large = 0
        for config in corners(parameters):
            signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
            values = dict(BLOCK_M=config["BLOCK_SIZE_M"], BLOCK_N=config["BLOCK_SIZE_N"], BLOCK_K=config["BLOCK_SIZE_K"],
                          CACHE=config["cache_modifier"])
            source = triton.compiler.ASTSource(kernel, signature=signature, constexprs=values)
            options = block_scale.compiler_options(config)
            made = triton.compile(source, target=GPUTarget("hip", architecture, 64), options=options)
            assert "s_endpgm" in made.asm["amdgcn"], config
            # A space may hold what a device refuses; most of it must run.
            too_large += made.metadata.shared > LDS_BYTES[architecture]
            count += 1
        print(f"{architecture}: {count} corners compiled, {too_large} need more LDS than a block may have")
        assert count >= 32 and too_large * 2 <= count, (architecture, count, too_large)


class TritonAmd(unittest.TestCase):

    def test_the_space_is_that_of_aiters_tuner(self):
        scope = constants_of(EXAMPLE / "evaluate.py")
        space = {name: values for name, _, values, _ in scope["AMD_PARAMETERS"]}
        self.assertEqual(space["num_stages"], [1, 2, 3, 4])
        self.assertEqual(space["BLOCK_SIZE_M"], [32, 64, 128])
        self.assertEqual(space["BLOCK_SIZE_N"], [32, 64, 128])
        self.assertEqual(space["BLOCK_SIZE_K"], [128])
        self.assertEqual(space["GROUP_SIZE_M"], [1, 8, 16])
        self.assertEqual(space["num_warps"], [2, 4, 8])
        self.assertEqual(space["NUM_KSPLIT"], [1, 2, 4])
        self.assertEqual(space["waves_per_eu"], [2, 4, 8])
        self.assertEqual(space["kpack"], [2])
        self.assertEqual(space["matrix_instr_nonkdim"], [16])
        self.assertEqual(space["cache_modifier"], ["", ".cg"])
        points = 1
        for values in space.values():
            points *= len(values)
        self.assertIn(f"{points:,} points", (EXAMPLE / "evaluate.py").read_text())
        for default in scope["AMD_DEFAULTS"]:
            self.assertEqual(set(default), set(space))
            for name, value in default.items():
                self.assertIn(value, space[name], name)

    def test_corners_compile(self):
        python = ROOT / "build" / "triton" / "bin" / "python"
        if os.environ.get("GEMMTUNE_SOAK") != "1" or not python.exists():
            self.skipTest(f"corners of the space: part of make soak, with PyPI's Triton in {python.parent.parent}")
        done = subprocess.run([str(python), __file__, "--compile"], capture_output=True, text=True, check=False)
        print(done.stdout, end="")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    if "--compile" in sys.argv:
        compile_corners()
        sys.exit()
    result = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result
    for test, why in result.skipped:
        print(f"SKIPPED: {why}")
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
