"""The gemmtune program of this package: as a console script, and for the functions of commands.py."""

import functools
import importlib.util
import os
import sys

from .errors import NotFound
from ._folders import folder


@functools.lru_cache(maxsize=None)
def nvidia_folders():
    """Folders of NVIDIA's libraries that pip installed for this Python (nvidia-cublas, nvidia-cuda-nvrtc ...)."""
    found = importlib.util.find_spec("nvidia")
    places = list(found.submodule_search_locations) if found and found.submodule_search_locations else []
    folders = []
    for place in places:
        for root, _, files in os.walk(place):
            if any(name.startswith(("libnvrtc.so", "libcublasLt.so")) for name in files):
                folders.append(root)
    return folders


def path():
    """The program's file."""
    program = folder / "bin" / "gemmtune"
    if not program.is_file():
        raise NotFound(f"{program} is missing; was the package installed by pip?")
    return str(program)


def environment():
    """The environment that the program runs in: it finds NVIDIA's libraries of this Python after the system's."""
    known = dict(os.environ)
    places = [place for place in [known.get("LD_LIBRARY_PATH", ""), *nvidia_folders()] if place]
    if places:
        known["LD_LIBRARY_PATH"] = ":".join(places)
    return known


def main():
    """The console script: becomes the program."""
    try:
        os.execve(path(), ["gemmtune", *sys.argv[1:]], environment())
    except (NotFound, OSError) as error:
        print(f"gemmtune: {error}", file=sys.stderr)
        sys.exit(2)
