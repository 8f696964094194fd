#!/usr/bin/env python3
"""Refuses programs and libraries whose RPATH or RUNPATH makes the loader search the working folder.

An empty element and a relative one (".", "lib") are of the process's working folder: whoever can write there decides what code runs.
Elements that begin with / or with $ORIGIN are right. Files are read by readelf (binutils, as the compiler's linker is).

Usage: check_library_paths.py [--skip FOLDER]… FILE_OR_FOLDER…
"""

import argparse
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

LINKED = (2, 3)  # ET_EXEC, ET_DYN: an object file has no dynamic section
ELEMENTS = re.compile(r"\((RPATH|RUNPATH)\)\s+Library (?:rpath|runpath): \[(.*)\]$")
SAFE = re.compile(r"/|\$ORIGIN(/|$)|\$\{ORIGIN\}(/|$)")


def is_linked(path):
    """Whether the file is an ELF program or library."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return False
    with open(path, "rb") as file:
        head = file.read(18)
    return head[:4] == b"\x7fELF" and len(head) == 18 and int.from_bytes(head[16:18], "little") in LINKED


def linked_files(places, skipped):
    for place in places:
        if not place.is_dir():
            yield place
            continue
        for folder, folders, files in os.walk(place):
            folders[:] = [name for name in folders if Path(folder, name) not in skipped]
            for name in files:
                path = Path(folder, name)
                try:
                    if is_linked(path):
                        yield path
                except FileNotFoundError:
                    pass  # another test's temporary


def faults_of(path):
    """What is wrong with the library paths of a file, a line each."""
    text = subprocess.run(["readelf", "-dW", str(path)], check=True, capture_output=True, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    for line in text.splitlines():
        found = ELEMENTS.search(line)
        for element in found[2].split(":") if found else ():
            if not SAFE.match(element):
                yield f"{path}: {found[1]} '{found[2]}': the element '{element}' is the working folder's"
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skip", type=Path, action="append", default=[])
    parser.add_argument("places", type=Path, nargs="+")
    options = parser.parse_args()
    skipped = {path.resolve() for path in options.skip}
    files = list(linked_files([place.resolve() for place in options.places], skipped))
    if not files:
        print("no programs and no libraries in", *options.places)
        return 1
    faults = [fault for path in files for fault in faults_of(path)]
    print(*faults, sep="\n", end="\n" if faults else "")
    print(f"{len(files)} programs and libraries, {len(faults)} with a fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
