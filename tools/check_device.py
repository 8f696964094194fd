#!/usr/bin/env python3
"""Checks the syntax of each device source in its configs (tools/device/configs.txt): with clang, which needs no toolkit, and with NVRTC.

  tools/check_device.py                      each config; a compiler that is missing is named and skipped
  tools/check_device.py --database FOLDER    writes FOLDER/compile_commands.json, which clangd reads (.clangd), of the first ones

GEMMTUNE_LIBRARY_DIR names a folder with libnvrtc.
"""
import ctypes
import ctypes.util
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
DEVICE = ROOT / "tools" / "device"
# Sources that call instructions which the host generates.
INSTRUCTIONS = {"wgmma", "mxfp4", "wgmma_moe"}
# A header that its includer defines macros for.
AFTER_PRODUCER = "backends/cuda/families/hopper_scales.cuh"


def configs():
    """Path below src/ -> the defines of each config."""
    rows = {}
    for line in (DEVICE / "configs.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            path, *defines = line.split()
            rows.setdefault(path, []).append(defines)
    return rows


def sources():
    return sorted(str(path.relative_to(SRC)) for path in (SRC / "backends").rglob("*.cu"))


def is_hip(path):
    return path.startswith("backends/hip/")


def clang_arguments(path, defines):
    """Of a source, and of the headers that it includes."""
    if is_hip(path):
        words = ["-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "--offload-arch=gfx90a", "-include",
                 str(ROOT / "tests" / "support" / "hip_compiler" / "hip_device.h")]
    else:
        words = ["-x", "c++", "--target=nvptx64-nvidia-cuda", "-include", str(DEVICE / "cuda_builtins.h")]
    if pathlib.Path(path).stem in INSTRUCTIONS:
        words += ["-include", str(DEVICE / "instructions.h")]
    return words + ["-std=c++17", "-fsyntax-only", "-Wno-pragma-once-outside-header", f"-I{SRC}",
                    *(f"-D{define}" for define in defines)]


def clang():
    for name in ("clang++-19", "clang++"):
        if shutil.which(name):
            return name
    return None


def check_with_clang(compiler, path, defines):
    done = subprocess.run([compiler, *clang_arguments(path, defines), str(SRC / path)], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr


def nvrtc():
    folders = [os.environ.get("GEMMTUNE_LIBRARY_DIR", ""), "/usr/local/cuda/lib64", "/usr/local/cuda*/lib"]
    for folder in filter(None, folders):
        for path in sorted(glob.glob(f"{folder}/libnvrtc.so*"), reverse=True):
            return ctypes.CDLL(path)
    name = ctypes.util.find_library("nvrtc")
    return ctypes.CDLL(name) if name else None


def check_with_nvrtc(library, path, defines):
    """To PTX only: no machine code is made."""
    stem = pathlib.Path(path).stem
    text = '#include "instructions.h"\n' if stem in INSTRUCTIONS else ""
    text += f'#include "{path}"\n'
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), f"{stem}.cu".encode(), 0, None, None)
    words = [f"-I{SRC}", f"-I{DEVICE}", "--std=c++17", "--gpu-architecture=compute_90a", "--diag-suppress=177",
             *(f"--define-macro={define}" for define in defines)]
    options = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    result = library.nvrtcCompileProgram(program, len(words), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return "" if result == 0 else log.value.decode()


def check():
    rows = configs()
    wrong = [f"{path}: no config in tools/device/configs.txt" for path in sources() if path not in rows]
    wrong += [f"tools/device/configs.txt: no source {path}" for path in rows if not (SRC / path).is_file()]
    compiler, library = clang(), nvrtc()
    if compiler is None:
        print("check_device: no clang++: skipped")
    if library is None:
        print("check_device: no NVRTC (GEMMTUNE_LIBRARY_DIR): skipped")
    for path, defines in ((path, defines) for path, each in rows.items() for defines in each):
        if compiler is not None:
            wrong += filter(None, [check_with_clang(compiler, path, defines)])
        if library is not None and not is_hip(path):
            wrong += filter(None, [check_with_nvrtc(library, path, defines)])
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


def included_by(path):
    """The files that a source includes, directly or not."""
    found, waiting = set(), [path]
    while waiting:
        for line in (SRC / waiting.pop()).read_text().splitlines():
            name = line[len('#include "'):-1] if line.startswith('#include "') else ""
            if name and name not in found:
                found.add(name)
                waiting.append(name)
    return found


def write_database(folder):
    rows = {path: each[0] for path, each in configs().items()}
    of_file = dict(rows)
    owner = {path: path for path in rows}
    for path, defines in rows.items():
        for name in included_by(path):
            # A header of a family has the config of its kernel, and one of all families that of some kernel.
            if name.endswith(".cuh") and (name not in owner or os.path.dirname(name) == os.path.dirname(path)):
                owner[name], of_file[name] = path, defines
    def words_of(name):
        words = clang_arguments(owner[name], of_file[name])
        if name == AFTER_PRODUCER:
            words += ["-include", str(SRC / owner[name].replace(".cu", "_producer.cuh"))]
        return [clang() or "clang++", *words, str(SRC / name)]

    entries = [{"directory": str(ROOT), "file": str(SRC / name),
                "arguments": words_of(name)} for name in sorted(of_file)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "compile_commands.json").write_text(json.dumps(entries, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--database":
        write_database(pathlib.Path(sys.argv[2]))
    elif len(sys.argv) == 1:
        sys.exit(check())
    else:
        sys.exit(__doc__)
