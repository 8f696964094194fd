#!/usr/bin/env python3
"""Checks who includes whom against src/LAYERS. Prints one line per violation (file:line: what) and exits 1 on any.

Usage: check_layers.py [ROOT]   (ROOT: the repository, default: the folder above this script)
"""

import re
import sys
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CODE = {".h", ".cpp", ".c", ".inc", ".cu", ".cuh"}
MAX_FILE_LINES = 800  # lines
# Names that say nothing about what lies in them.
VAGUE_NAMES = {"util", "utils", "common", "core", "misc", "helper", "helpers"}
# Folders that may include the public headers: those that implement or use them.
PUBLIC_HEADER_USERS = {"capi", "cli", "interpose"}
# Headers of libraries that one file of src/ includes for all others.
INCLUDED_ONCE = {"nlohmann/json.hpp": "formats/json.h", "nlohmann/json_fwd.hpp": "formats/json_fwd.h"}
# Inside backends/: what a backend's folder may include besides itself.
BACKEND_MAY_SEE = {"cuda": {"gpu"}, "hip": {"gpu"}}


def read_layers(path):
    """Folder name -> index of its line among the lines that hold folders."""
    order = {}
    rank = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        names = line.split("#")[0].split()
        for name in names:
            order[name] = rank
        rank += 1 if names else 0
    return order


def includes_of(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1), match.group(2)


def code_files(folder):
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in CODE)


def backend_of(parts):
    """('backends', 'cpu', 'x.h') -> 'cpu'; a file directly in backends/ -> None."""
    return parts[1] if len(parts) > 2 else None


def backend_diagnostic(parts, target):
    """Why a file of backends/ may not include another file of backends/, or None."""
    own, other = backend_of(parts), backend_of(target)
    if other is None or own == other:
        return None
    if own is None:
        if parts[-1].endswith(".cpp"):  # the list of backends
            return None
        return f"backends/*.h may not include a backend's folder ('{'/'.join(target)}')"
    if other in BACKEND_MAY_SEE.get(own, set()):
        return None
    return f"backends/{own} may not include backends/{other} ('{'/'.join(target)}')"


def folder_diagnostic(parts, target, order):
    """Why src/<parts> may not include "<target>", or None."""
    own, other = parts[0], target[0]
    if own == other:
        return backend_diagnostic(parts, target) if own == "backends" else None
    if order[other] >= order[own]:
        return f"{own}/ may not include {other}/ (src/LAYERS: only folders on lines above its own)"
    if other == "backends" and backend_of(target) is not None:
        return f"outside backends/ only backends/*.h may be included ('{'/'.join(target)}')"
    return None


def check_source(root, path, order):
    parts = path.relative_to(root / "src").parts
    own = parts[0]
    if len(parts) > 1 and own not in order:
        yield 1, f"folder '{own}' is not named in src/LAYERS"
        return
    for number, bracket, text in includes_of(path):
        target = tuple(text.split("/"))
        if target[0] == "gemmtune":
            if own not in PUBLIC_HEADER_USERS:
                yield number, f"{own}/ may not include public headers ('{text}')"
        elif INCLUDED_ONCE.get(text, "/".join(parts)) != "/".join(parts):
            yield number, f"include \"{INCLUDED_ONCE[text]}\" instead of '{text}'"
        elif bracket == "<":
            if target[0] in order and (root / "src" / text).is_file():
                yield number, f"our own header in angle brackets ('{text}')"
        elif (root / "src" / text).is_file() and target[0] in order:
            diagnostic = folder_diagnostic(parts, target, order)
            if diagnostic:
                yield number, diagnostic
        elif ".." in target:
            yield number, f"include paths start at src/ ('{text}')"
        elif not (path.parent / text).is_file() and len(target) > 1 and target[0] in order:
            yield number, f"'{text}' does not exist"


def check_public_header(path):
    for number, bracket, text in includes_of(path):
        if text.split("/")[0] == "gemmtune":
            continue
        if bracket == '"' or "/" in text:
            yield number, f"a public header includes public headers and the standard library only ('{text}')"


def check_any(root, path):
    if path.stem in VAGUE_NAMES or VAGUE_NAMES & set(path.relative_to(root).parts):
        yield 1, "a name that says nothing (utils, common, helpers …)"
    lines = path.read_text(encoding="utf-8").count("\n")
    if lines > MAX_FILE_LINES:
        yield lines, f"{lines} lines, the limit is {MAX_FILE_LINES}"


def check(root):
    order = read_layers(root / "src" / "LAYERS")
    findings = []

    def add(path, diagnostics):
        findings.extend(f"{path.relative_to(root)}:{line}: {text}" for line, text in diagnostics)

    for path in code_files(root / "src"):
        add(path, check_source(root, path, order))
    for path in code_files(root / "include"):
        add(path, check_public_header(path))
    for folder in ("src", "include", "tests", "bench", "examples"):
        for path in code_files(root / folder):
            add(path, check_any(root, path))
    return findings


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    if not (root / "src" / "LAYERS").is_file():
        print(f"{root}/src/LAYERS: not found", file=sys.stderr)
        return 2
    findings = check(root)
    for line in findings:
        print(line)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
