"""tools/check_library_paths.py refuses the library paths by which the loader searches the working folder, and no others.

Usage: check_library_paths_test.py COMPILER"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMPILER = sys.argv.pop(1)
CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_library_paths.py"


class CheckLibraryPaths(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.place = Path(self.folder.name)
        (self.place / "empty.c").write_text("int f(void) { return 1; }\n", encoding="utf-8")

    def made(self, name, *options):
        subprocess.run([COMPILER, *options, "-o", self.place / name, self.place / "empty.c"], check=True)

    def check(self, *words):
        done = subprocess.run([sys.executable, CHECK, *words, self.place], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_elements_of_the_working_folder_are_refused(self):
        for tags in ("--enable-new-dtags", "--disable-new-dtags"):
            for path in (":", "$ORIGIN:", ":/usr/lib", "/usr/lib::/lib", ".", "lib", "$ORIGINAL"):
                self.made("one.so", "-shared", "-fPIC", f"-Wl,{tags},-rpath,{path}")
                code, text = self.check()
                self.assertEqual(code, 1, path)
                self.assertIn("one.so", text)

    def test_other_elements_are_right(self):
        for path in ("$ORIGIN", "$ORIGIN/../lib:/opt/lib", "${ORIGIN}/lib"):
            self.made("one.so", "-shared", "-fPIC", f"-Wl,-rpath,{path}")
            self.assertEqual(self.check(), (0, "1 programs and libraries, 0 with a fault\n"), path)
        self.made("none.so", "-shared", "-fPIC")
        self.assertEqual(self.check()[0], 0)

    def test_objects_and_skipped_folders_are_left_out(self):
        self.made("one.o", "-c")
        self.assertEqual(self.check()[0], 1, "nothing was checked")
        (self.place / "inner").mkdir()
        self.made("inner/bad.so", "-shared", "-fPIC", "-Wl,-rpath,:")
        self.made("good.so", "-shared", "-fPIC")
        self.assertEqual(self.check()[0], 1)
        self.assertEqual(self.check("--skip", self.place / "inner")[0], 0)


if __name__ == "__main__":
    unittest.main()
