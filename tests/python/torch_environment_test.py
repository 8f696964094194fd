"""tools/torch_environment.py without a network: the stubs that stand in for missing libraries, and what --find answers."""

import ctypes
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import torch_environment


class Environment(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def tool(self, *arguments):
        return subprocess.run([sys.executable, str(TOOLS / "torch_environment.py"), *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "GEMMTUNE_TORCH_ENVIRONMENT": str(self.folder)})

    def compile(self, text, name, *arguments):
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", str(self.folder / name), *arguments], input=text, text=True,
                       check=True)

    def test_a_missing_library_becomes_stubs(self):
        versions = self.folder / "versions"  # of symbols, as NVIDIA's libraries have them
        versions.write_text("libcu_of_the_test.so.7 { global: *; };")
        self.compile("int __cuOfTheTest(int x) { return x; } int ncclOfTheTest(void) { return 1; } const char* cudaGetErrorString(int x) { return x ? 0 : 0; }",
                     "libcu_of_the_test.so", "-Wl,-soname,libcu_of_the_test.so.7",
                     f"-Wl,--version-script={versions}")
        self.compile("int __cuOfTheTest(int); int ncclOfTheTest(void); int both(void) { return __cuOfTheTest(1) == ncclOfTheTest() ? __cuOfTheTest(1) : 0; } "
                     "const char* cudaGetErrorString(int); const char* text(void) { return cudaGetErrorString(1); }",
                     "libuser.so", f"-L{self.folder}", "-l:libcu_of_the_test.so", "-Wl,-rpath,$ORIGIN")
        (self.folder / "libcu_of_the_test.so").unlink()
        with self.assertRaisesRegex(OSError, "libcu_of_the_test.so.7"):
            ctypes.CDLL(str(self.folder / "libuser.so"))
        self.assertEqual(torch_environment.stub_libraries(self.folder), ["libcu_of_the_test.so.7"])
        user = ctypes.CDLL(str(self.folder / "libuser.so"))
        self.assertEqual(user.both(), 999)
        user.text.restype = ctypes.c_char_p
        self.assertEqual(user.text(), b"a stub")
        self.assertEqual(torch_environment.stub_libraries(self.folder), [])

    def test_find(self):
        found = self.tool("--find")
        self.assertEqual((found.returncode, found.stdout), (77, ""))
        python = self.folder / "bin" / "python"
        python.parent.mkdir()
        python.touch()
        marker = self.folder / "packages.txt"
        for text, expected in (("torch==1.0", (77, "")), ("\n".join(torch_environment.ALONE + torch_environment.PACKAGES), (0, f"{python}\n"))):
            marker.write_text(text)
            found = self.tool("--find")
            self.assertEqual((found.returncode, found.stdout), expected)
        self.assertEqual(self.tool("--other").returncode, 2)


if __name__ == "__main__":
    unittest.main()
