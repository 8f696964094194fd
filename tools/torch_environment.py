#!/usr/bin/env python3
"""Makes a virtual environment with PyTorch, JAX and transformers from PyPI for tests/python, once, in a cache folder, and prints its Python.

PyPI's PyTorch is built for CUDA. Of NVIDIA's packages (4 GB) nothing is installed: a library of stubs, generated from the symbols that
PyTorch's libraries leave undefined, stands in their place, so that PyTorch loads and finds no GPU.

Usage: torch_environment.py [--find]
  --find  only print the Python of an environment that was made before; nothing, and exit status 77, where there is none

The folder is $GEMMTUNE_TORCH_ENVIRONMENT, else torch-VERSION-pyVERSION in $XDG_CACHE_HOME/gemmtune or ~/.cache/gemmtune. CC: the C compiler
(cc). Exit status 77 with a line 'SKIPPED: why' where PyPI does not answer or the disk is short."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

TORCH = "2.15.0"
# What `import torch` needs of its own requirements, and what the tests import.
PACKAGES = ["filelock", "fsspec", "jinja2", "networkx", "setuptools<82", "sympy", "typing_extensions", "numpy", "jax==0.10.2", "transformers==5.24.0"]
# Whose requirements are not wanted (PyTorch's are NVIDIA's packages).
ALONE = [f"torch=={TORCH}", "torchao==0.18.0"]
NEEDED_BYTES = 5 << 30
SKIPPED = 77
STAND_INS = ("cu", "nccl", "nv")  # prefixes of the functions of CUDA's, NCCL's and NVIDIA's other libraries, behind underscores
TEXTS = re.compile(r"^(?!cuGet).*Get(Error|Status)(String|Name)$|^ncclGetLastError$")  # functions that return a text


def place_of(variable, name):
    """The folder of an environment: what the variable says, else one of this Python's version in the user's cache."""
    given = os.environ.get(variable)
    if given:
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gemmtune" / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"


def place():
    return place_of("GEMMTUNE_TORCH_ENVIRONMENT", f"torch-{TORCH}")


def python_of(folder):
    """The Python of a finished environment of these packages, or None."""
    marker, python = folder / "packages.txt", folder / "bin" / "python"
    finished = marker.is_file() and marker.read_text().split("\n") == ALONE + PACKAGES
    return python if finished and python.exists() else None


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def link(library, source, *arguments):
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", f"-Wl,-soname,{library.name}", "-o", str(library), str(source), *arguments], check=True)


def stub_libraries(folder):
    """Puts libraries into `folder` (of PyTorch's libraries) with the names and the symbols of NVIDIA's that those need. Returns the names.

    The machine's own, if it has some, are not looked for: tests behave alike everywhere."""
    libraries = sorted(folder.glob("*.so"))
    needed, undefined = set(), set()
    for library in libraries:
        needed.update(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", str(library))))
        for line in output("nm", "-D", "--undefined-only", str(library)).splitlines():
            symbol = line.split()[-1].split("@")[0]
            if symbol.lstrip("_").startswith(STAND_INS):
                undefined.add(symbol)
    missing = sorted(name for name in needed if name.removeprefix("lib").startswith(STAND_INS) and not (folder / name).exists())
    if not missing:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        source, empty = Path(scratch) / "stubs.c", Path(scratch) / "empty.c"
        # Any number but 0 is an error to all of these libraries, and PyTorch prints the text of an error.
        source.write_text("".join(f'const char* {symbol}(void) {{ return "a stub"; }}\n' if TEXTS.search(symbol) else f"int {symbol}(void) {{ return 999; }}\n"
                                  for symbol in sorted(undefined)))
        empty.touch()
        stubs = folder / "libstubs_of_missing_libraries.so"
        link(stubs, source)
        # A library of the right name would have to know the versions of its symbols; one of another name need not.
        for name in missing:
            link(folder / name, empty, "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", str(stubs))
    return missing


def install(python, *arguments):
    """The last line of what pip reports if it fails, or None."""
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-compile", "--retries", "1", "--timeout",
                           "15", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return (done.stdout.strip().splitlines() or ["no word of pip"])[-1] if done.returncode else None


def make(folder):
    """Why it could not be made, or None."""
    shutil.rmtree(folder, ignore_errors=True)
    free = shutil.disk_usage(folder.parent).free
    if free < NEEDED_BYTES:
        return f"{folder.parent} has {free / (1 << 30):.1f} GiB free, expected {NEEDED_BYTES >> 30}"
    if sys.version_info < (3, 11):
        return f"Python {sys.version.split()[0]} is older than 3.11, which JAX needs"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return f"Python.h is missing (python3-dev), which torch.compile needs: expected in {sysconfig.get_path('include')}"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    for arguments in (["--no-deps", *ALONE], PACKAGES):
        diagnostic = install(python, *arguments)
        if diagnostic:
            return f"pip install {' '.join(arguments)}: {diagnostic}"
    libraries = Path(output(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip()) / "torch" / "lib"
    names = stub_libraries(libraries)
    print(f"PyTorch {TORCH} in {folder}, stubs of {', '.join(names) or 'nothing'}", file=sys.stderr)
    subprocess.run([python, "-c", "import torch, jax, transformers; torch.ones(2, 2) @ torch.ones(2, 2)"], check=True, stdout=sys.stderr)
    (folder / "packages.txt").write_text("\n".join(ALONE + PACKAGES))
    return None


def made_once(folder, python_of, make):
    """The Python of an environment, which one process makes under a lock if it is not there; None, and a line that says why, if it cannot."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python = python_of(folder)  # another process may have made it meanwhile
        if python is not None:
            return python
        if why := make(folder):
            shutil.rmtree(folder, ignore_errors=True)
            print(f"SKIPPED: {why}")
            return None
        return python_of(folder)


def run(usage, folder, python_of, make):
    """The program of an environment: prints its Python; --find makes none. Returns the exit status."""
    if sys.argv[1:] not in ([], ["--find"]):
        print(usage, file=sys.stderr)
        return 2
    python = python_of(folder)
    if python is None and not sys.argv[1:]:
        python = made_once(folder, python_of, make)
    if python is None:
        return SKIPPED
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(run(__doc__, place(), python_of, make))
