"""No program and no library of the build runs code of the working folder: neither by its RPATH nor by what it opens at run time.

Usage: planted_libraries_test.py PROGRAM USER COMPILER   (USER: a program that links libgemmtune)
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, USER = (str(Path(word).resolve()) for word in sys.argv[1:3])
COMPILER = sys.argv[3]
del sys.argv[1:]

# What is opened by name at run time, of every vendor, and our own modules.
OPENED = """
libcuda.so.1 libnvidia-ml.so.1 libnvrtc.so libnvrtc.so.12 libnvrtc.so.13 libcublasLt.so libcublasLt.so.12 libcublasLt.so.13
libamdhip64.so libamdhip64.so.5 libamdhip64.so.6 libamdhip64.so.7 libhiprtc.so libhiprtc.so.6 libhiprtc.so.7
libhipblaslt.so libhipblaslt.so.0 libhipblaslt.so.1 libamd_smi.so
libdnnl.so libdnnl.so.2 libdnnl.so.3 libopenblas.so libopenblas.so.0 libgomp.so.1
libgemmtune_onednn.so libgemmtune_onednn3.so libgemmtune.so.0 libgemmtune_tuning.so.0
""".split()
# Without these no program begins: the planted ones have no functions.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|gcc_s|stdc\+\+))\.so\.\d+")
# Leaves its own path in the file MARK.
PLANTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((constructor)) static void run(void) {
  Dl_info self = {0};
  FILE* mark = fopen(MARK, "a");
  if (mark == NULL) return;
  fprintf(mark, "%s\n", dladdr((void*)run, &self) != 0 ? self.dli_fname : "?");
  fclose(mark);
}
"""


def needed_by(path):
    """The names of the libraries that a file links."""
    text = subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", text)


class PlantedLibraries(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        place = Path(self.folder.name)
        self.mark = place / "mark"
        self.work = place / "work"
        source = place / "planted.c"
        source.write_text(PLANTED, encoding="utf-8")
        library = place / "planted.so"
        subprocess.run([COMPILER, "-shared", "-fPIC", f'-DMARK="{self.mark}"', "-o", library, source, "-ldl"], check=True)
        libraries = [line.split()[2] for line in self.listed(USER) if len(line.split()) > 2]  # name => path (address)
        names = {*OPENED, *needed_by(PROGRAM), *needed_by(USER), *(name for path in libraries for name in needed_by(path))}
        names = {name for name in names if not SYSTEM.fullmatch(name)}
        self.assertIn("libz.so.1", names)
        for below in (".", "lib", "lib/gemmtune", "gemmtune"):
            (self.work / below).mkdir(parents=True, exist_ok=True)
            for name in names:
                os.link(library, self.work / below / name)
        self.environment = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "GEMMTUNE_LIBRARY_DIR")}
        self.environment["GEMMTUNE_CONFIG_DIR"] = str(place / "config")
        self.alone = place / "alone"
        self.alone.mkdir()
        os.link(library, self.alone / "libz.so.1")

    def listed(self, program):
        done = subprocess.run(["ldd", program], check=True, capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "=> /" in line]

    def run_there(self, *words, **more):
        return subprocess.run(words, cwd=self.work, env={**self.environment, **more}, capture_output=True, text=True, check=False)

    def marks(self):
        return self.mark.read_text(encoding="utf-8") if self.mark.exists() else ""

    def test_a_planted_library_leaves_its_mark_where_the_loader_is_sent_there(self):
        self.run_there(PROGRAM, "devices", LD_LIBRARY_PATH=str(self.alone))
        self.assertEqual(self.marks(), f"{self.alone}/libz.so.1\n")

    def test_the_program_runs_none(self):
        done = self.run_there(PROGRAM, "devices")
        self.assertEqual((done.returncode, self.marks()), (0, ""), done.stdout + done.stderr)

    def test_a_user_of_the_library_runs_none(self):
        for backend in ("cpu", "cuda", "hip"):
            done = self.run_there(USER, backend)
            self.assertEqual((done.returncode in (0, 1), self.marks()), (True, ""), done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
