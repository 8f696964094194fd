"""tools/run_tests.py counts what CTest and GoogleTest report."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN_TESTS = Path(__file__).resolve().parents[2] / "tools" / "run_tests.py"

# A stand-in for a GoogleTest program: writes the XML that it is asked for, where its environment says, and exits with a code. With
# "home" as XML it leaves a kernel in the user's cache and writes none, with "variables" it fails if it sees the user's tuned files.
PROGRAM = """
import os, pathlib, sys
if sys.argv[1] == "home":
    kernels = pathlib.Path.home() / ".cache" / "gemmtune" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "0.kernel").write_text("x")
    sys.exit(0)
if sys.argv[1] == "variables":
    sys.exit("GEMMTUNE_CONFIG_DIR" in os.environ or "GEMMTUNE_CACHE_DIR" in os.environ)
if sys.argv[1]:
    report = os.environ["GTEST_OUTPUT"].removeprefix("xml:")
    open(report, "w").write("<testsuites><testsuite>" + sys.argv[1] + "</testsuite></testsuites>")
sys.exit(int(sys.argv[2]))
"""
PASS = '<testcase name="a" status="run" result="completed"/>'
FAIL = '<testcase name="b" status="run" result="completed"><failure message="x"/></testcase>'
SKIP = '<testcase name="c" status="run" result="skipped"><skipped message="x"/></testcase>'
OFF = '<testcase name="d" status="notrun" result="suppressed"/>'


def run(entries):
    """(exit status, last line) for CTest entries name -> (cases in the XML, exit code), all of one program."""
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder)
        (build / "program.py").write_text(PROGRAM, encoding="utf-8")
        lines = []
        for name, (cases, code) in entries.items():
            lines.append(f'add_test({name} "{sys.executable}" "{build}/program.py" [==[{cases}]==] "{code}")')
            report = f"xml:{build.resolve()}/test-reports/{name}.xml"
            lines.append(f'set_tests_properties({name} PROPERTIES ENVIRONMENT "GTEST_OUTPUT={report}")')
        (build / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (build / "user").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        environment |= {"HOME": str(build / "user"), "GEMMTUNE_CONFIG_DIR": "/config", "GEMMTUNE_CACHE_DIR": "/cache"}
        done = subprocess.run([sys.executable, RUN_TESTS, build], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()[-1]


class RunTests(unittest.TestCase):
    def test_all_kinds_are_counted(self):
        entries = {"one": (PASS + SKIP + OFF, 0), "two": (PASS + PASS + FAIL, 1), "plain": ("", 0)}
        self.assertEqual(run(entries), (1, "4 passed, 1 failed, 1 skipped"))

    def test_all_right(self):
        self.assertEqual(run({"one": (PASS, 0), "plain": ("", 0)}), (0, "2 passed, 0 failed, 0 skipped"))

    def test_each_entry_of_a_program_counts_its_own_cases(self):
        entries = {"program": (PASS + PASS, 0), "part": (PASS + SKIP, 0)}
        self.assertEqual(run(entries), (0, "3 passed, 0 failed, 1 skipped"))

    def test_a_crash_before_the_report_is_a_failure(self):
        self.assertEqual(run({"one": (PASS, 0), "dead": ("", 7)}), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_crash_after_a_clean_report_is_a_failure(self):
        self.assertEqual(run({"dead": (PASS, 9)}), (1, "0 passed, 1 failed, 0 skipped"))

    def test_what_a_test_leaves_in_the_users_home_is_a_failure(self):
        self.assertEqual(run({"one": ("home", 0)}), (1, "1 passed, 1 failed, 0 skipped"))

    def test_the_users_tuned_files_and_kernels_are_not_the_tests(self):
        self.assertEqual(run({"one": ("variables", 0)}), (0, "1 passed, 0 failed, 0 skipped"))

    def test_options_are_no_build_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, code in ((["--help"], 0), (["-R", "one"], 2), ([], 2)):
                done = subprocess.run([sys.executable, RUN_TESTS, *words], cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, code, words)
                self.assertIn("Usage: run_tests.py BUILD_FOLDER", done.stdout + done.stderr)
                self.assertEqual(os.listdir(folder), [], words)


if __name__ == "__main__":
    unittest.main()
