#!/usr/bin/env python3
"""Makes a virtual environment with compressed-tensors and ModelOpt from PyPI for tests/python/checkpoints_written_test.py, once, in a cache
folder, and prints its Python. PyTorch, transformers and safetensors are those of tools/torch_environment.py, which it makes first.

Usage: checkpoint_environment.py [--find]
  --find  only print the Python of an environment that was made before; nothing, and exit status 77, where there is none

The folder is $GEMMTUNE_CHECKPOINT_ENVIRONMENT, else checkpoints-pyVERSION in $XDG_CACHE_HOME/gemmtune or ~/.cache/gemmtune. Exit status 77 with
a line 'SKIPPED: why' where PyPI does not answer."""

import shutil
import subprocess
import sys
from pathlib import Path

import torch_environment

# Without their requirements, of which these are the ones that writing a checkpoint on a CPU imports.
PACKAGES = ["compressed-tensors==0.20.1", "nvidia-modelopt==0.47.0", "loguru", "psutil", "nvidia-ml-py", "omegaconf", "antlr4-python3-runtime==4.9.3",
            "pulp", "rich", "pygments", "markdown-it-py", "mdurl", "scipy", "requests", "urllib3", "idna", "certifi", "charset-normalizer"]
FINISHED = "packages.txt"


def place():
    return torch_environment.place_of("GEMMTUNE_CHECKPOINT_ENVIRONMENT", "checkpoints")


def python_of(folder):
    """The Python of a finished environment of these packages beside this PyTorch, or None."""
    marker, of_torch = folder / FINISHED, torch_environment.python_of(torch_environment.place())
    return folder / "bin" / "python" if of_torch and marker.is_file() and marker.read_text().split("\n") == [str(of_torch), *PACKAGES] else None


def packages_of(python):
    return torch_environment.output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()


def make(folder):
    """Why it could not be made, or None."""
    made = subprocess.run([sys.executable, torch_environment.__file__], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode == torch_environment.SKIPPED:
        return made.stdout.strip().removeprefix("SKIPPED: ")
    made.check_returncode()
    of_torch = made.stdout.strip()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    Path(packages_of(python), "torch.pth").write_text(packages_of(of_torch))
    if diagnostic := torch_environment.install(python, "--no-deps", *PACKAGES):
        return f"pip install {' '.join(PACKAGES)}: {diagnostic}"
    subprocess.run([python, "-c", "import compressed_tensors, modelopt.torch.export"], check=True, stdout=sys.stderr)
    (folder / FINISHED).write_text("\n".join([of_torch, *PACKAGES]))
    return None


if __name__ == "__main__":
    sys.exit(torch_environment.run(__doc__, place(), python_of, make))
