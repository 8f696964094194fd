#!/usr/bin/env python3
"""Hashes of the machine code of GPU kernels, to show that a change of device sources changes no instruction.

  tools/code_hashes.py make BUILD TABLE [--only FILTER] [--keep FOLDER]
      Compiles the corners of gpu_compile_test and hip_compile_test (GEMMTUNE_THOROUGH=1: all of them). FILTER, of
      gtest: of these the tests that it names ("GpuCompile.Skinny*"). FOLDER keeps the code and what it was made of.
  tools/code_hashes.py again FOLDER TABLE [--only WORDS]
      Compiles the CUDA sources of a kept folder once more, with this tree's device files and no build. WORDS: of the
      programs whose label contains them.
  tools/code_hashes.py compare OLD NEW [--by-code] [--only-new]
      Fails if a program is missing, is new or differs. --by-code: labels may differ; each kernel and architecture has the
      same set of codes. --only-new: programs that only OLD has are not looked at.

A row of a table: the hash of the code (.text*; of AMD GPUs the assembly listing), that of its resources (.nv.info*) and the program's label.
"""
import argparse
import collections
import concurrent.futures
import ctypes
import hashlib
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

import check_device

PROGRAMS = (("tests/backends_test", "GpuCompile*"), ("tests/emulation_test", "Architectures/HipCompile*"))


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


def write(table, rows):
    pathlib.Path(table).write_text("".join(row + "\n" for row in sorted(rows, key=lambda row: row.split(" ", 2)[2])))
    print(f"{table}: {len(rows)} programs")


def make(build, table, only, keep):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(keep or folder)
        folder.mkdir(parents=True, exist_ok=True)
        programs = [row for row in PROGRAMS if not only or only.startswith(row[1].rstrip("*."))]
        if not programs:
            sys.exit(f"code_hashes: --only {only}, expected tests of {' or '.join(suites.rstrip('*').rstrip('.') for _, suites in PROGRAMS)}")
        for program, suites in programs:
            subprocess.run([str(pathlib.Path(build, program)), f"--gtest_filter={only or suites}", "--gtest_brief=1"],
                           check=True, env={**os.environ, "GEMMTUNE_CODE_FOLDER": str(folder)})
        write(table, [" ".join(hashes(label.with_suffix(".code").read_bytes())) + " " + label.read_text()
                      for label in sorted(folder.glob("*.label"))])


def compiled(library, label):
    """What NVRTC makes of a kept program's source."""
    name, _, architecture = label.read_text().split()[:3]
    defines = label.with_suffix(".defines").read_text().splitlines()
    program = ctypes.c_void_p()
    text = label.with_suffix(".source").read_bytes()
    library.nvrtcCreateProgram(ctypes.byref(program), text, f"{name}.cu".encode(), 0, None, None)
    words = [f"-I{check_device.SRC}", f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v", "--diag-suppress=177",
             *(f"--define-macro={define}" for define in defines)]
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    result = library.nvrtcCompileProgram(program, len(words), options)
    size = ctypes.c_size_t()
    if result != 0:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        sys.exit(f"{label.read_text()}\n{log.value.decode()}")
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, code)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


def again(folder, table, only):
    library = check_device.nvrtc()
    if library is None:
        sys.exit("code_hashes: no NVRTC (GEMMTUNE_LIBRARY_DIR)")
    labels = [label for label in sorted(pathlib.Path(folder).glob("*.label"))
              if (only or "") in label.read_text() and " sm_" in label.read_text()]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        write(table, list(pool.map(lambda label: " ".join(hashes(compiled(library, label))) + " " + label.read_text(), labels)))


def read(table):
    return {line.split(" ", 2)[2]: line.split(" ", 2)[:2] for line in pathlib.Path(table).read_text().splitlines()}


def by_code(rows):
    """As many codes of each kernel and architecture, in place of labels."""
    found = collections.Counter((*label.split()[:3], *codes) for label, codes in rows.items())
    return {" ".join(words) + f" {i}": list(words[3:]) for words, count in found.items() for i in range(count)}


def compare(old, new, without_labels, only_new):
    before, after = read(old), read(new)
    if without_labels:
        before, after = by_code(before), by_code(after)
    wrong = [] if only_new else [f"only in {old}: {label}" for label in sorted(before.keys() - after.keys())]
    wrong += [f"only in {new}: {label}" for label in sorted(after.keys() - before.keys())]
    wrong += [f"{what} differs: {label}" for label in sorted(before.keys() & after.keys())
              for what, one, other in zip(("code", ".nv.info"), before[label], after[label]) if one != other]
    print("\n".join(wrong + [f"{len(before.keys() & after.keys())} programs of both, {len(wrong)} differences"]))
    return 1 if wrong or not before.keys() & after.keys() else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=("make", "again", "compare"))
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--only")
    parser.add_argument("--keep")
    parser.add_argument("--by-code", action="store_true")
    parser.add_argument("--only-new", action="store_true")
    words = parser.parse_args()
    if words.way == "make":
        return make(words.first, words.second, words.only, words.keep)
    if words.way == "again":
        return again(words.first, words.second, words.only)
    return compare(words.first, words.second, words.by_code, words.only_new)


if __name__ == "__main__":
    sys.exit(main())
