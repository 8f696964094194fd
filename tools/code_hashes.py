#!/usr/bin/env python3
"""Hashes of the machine code of GPU kernels, to show that a change of device sources changes no instruction.

  tools/code_hashes.py make BUILD TABLE     compiles the corners of gpu_compile_test and hip_compile_test (GEMMTUNE_THOROUGH=1: all of them)
  tools/code_hashes.py compare OLD NEW      fails if a program is missing, is new or differs

A row of a table: the hash of the code (.text*; of AMD GPUs the assembly listing), that of its resources (.nv.info*) and the program's label.
"""
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

PROGRAMS = (("tests/backends_test", "GpuCompile.*"), ("tests/emulation_test", "Architectures/HipCompile*"))


def sections(code):
    """The sections of an ELF file of 64 bits by name."""
    table, = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", code, table + i * size) for i in range(count)]
    text = headers[names][4]
    for name, kind, _, _, offset, length in headers:
        end = code.index(b"\0", text + name)
        yield code[text + name:end].decode(), b"" if kind == 8 else code[offset:offset + length]  # 8: no bytes in the file


def hash_of(parts):
    digest = hashlib.sha256()
    for name, content in sorted(parts):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def hashes(code):
    if code.startswith(b"\x7fELF"):
        found = list(sections(code))
        return (hash_of(one for one in found if one[0].startswith(".text")),
                hash_of(one for one in found if one[0].startswith(".nv.info")))
    # Comments, the compiler's name, and the source's name and path (of which clang makes a symbol) are no code.
    text = re.sub("__hip_cuid_[0-9a-f]+", "__hip_cuid", code.decode())
    lines = [line.split(";")[0].rstrip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.lstrip().startswith((".file", ".ident"))]
    return hash_of([("listing", "\n".join(kept).encode())]), "-"


def make(build, table):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for program, suites in PROGRAMS:
            path = pathlib.Path(build, program)
            subprocess.run([str(path), f"--gtest_filter={suites}", "--gtest_brief=1"], check=True,
                           env={**os.environ, "GEMMTUNE_CODE_FOLDER": folder})
        for label in sorted(pathlib.Path(folder).glob("*.label")):
            rows.append(" ".join(hashes(label.with_suffix(".code").read_bytes())) + " " + label.read_text())
    pathlib.Path(table).write_text("".join(row + "\n" for row in sorted(rows, key=lambda row: row.split(" ", 2)[2])))
    print(f"{table}: {len(rows)} programs")


def read(table):
    return {line.split(" ", 2)[2]: line.split(" ", 2)[:2] for line in pathlib.Path(table).read_text().splitlines()}


def compare(old, new):
    before, after = read(old), read(new)
    wrong = [f"only in {table}: {label}" for table, label in
             [(old, label) for label in sorted(before.keys() - after.keys())] +
             [(new, label) for label in sorted(after.keys() - before.keys())]]
    wrong += [f"{what} differs: {label}" for label in sorted(before.keys() & after.keys())
              for what, one, other in zip(("code", ".nv.info"), before[label], after[label]) if one != other]
    print("\n".join(wrong + [f"{len(before.keys() & after.keys())} programs of both, {len(wrong)} differences"]))
    return 1 if wrong or not before else 0


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("make", "compare"):
        sys.exit(__doc__)
    sys.exit(make(*sys.argv[2:]) if sys.argv[1] == "make" else compare(*sys.argv[2:]))
