"""Every operation through each recipe for many machines, whose schedulers are doubles (tests/support/schedulers; the real ones are in
tests/machines): tools/slurm/tune.sh, tools/kubernetes/*.yaml, gemmtune.ray.

Usage: recipes_test.py SIMULATED_PROGRAM
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOUBLES = ROOT / "tests" / "support" / "schedulers"

sys.path.insert(0, str(ROOT / "tests" / "support"))
from operation_lists import LISTS, QUICK, OperationLists  # noqa: E402


class Recipes(OperationLists, unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gemmtune-recipes-")))
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "gemmtune").symlink_to(PROGRAM)
        for name in ("tmp", "numbers", "home"):
            (self.folder / name).mkdir()
        self.environment = {**os.environ, "PATH": f"{programs}:{DOUBLES}:{os.environ['PATH']}", "TMPDIR": str(self.folder / "tmp"),
                            "HOME": str(self.folder / "home"), "XDG_RUNTIME_DIR": str(self.folder / "tmp"),
                            "SBATCH_DOUBLE_NUMBERS": str(self.folder / "numbers"), "PYTHONDONTWRITEBYTECODE": "1",
                            "GEMMTUNE_CONFIG_DIR": str(self.folder / "home")}

    def run_in(self, folder, *words, **more):
        return subprocess.run([str(word) for word in words], cwd=folder, env=self.environment, text=True, capture_output=True, check=False,
                              **more)

    def test_slurm(self):
        for operation, folder in self.each_operation():
            with self.subTest(operation):
                done = self.run_in(folder, ROOT / "tools" / "slurm" / "tune.sh", "2", "sl.csv", "-i", "list.csv", "--op", operation, *QUICK)
                log = done.stderr + "".join(path.read_text() for path in sorted(folder.glob("*.log")))
                self.assertEqual(done.returncode, 0, log)
                self.assertEqual((folder / "sl.csv.merge.log.code").read_text(), "0", log)
                self.expect_both_rows(folder / "sl.csv", log)
                self.assertEqual(list((self.folder / "tmp").glob("gemmtune-1*")), [], "the journals' folders are removed")

    @unittest.skipIf(importlib.util.find_spec("yaml") is None, "needs yaml (python3-yaml)")
    def test_kubernetes(self):
        files = {}
        for name in ("tune.yaml", "merge.yaml"):
            text = (ROOT / "tools" / "kubernetes" / name).read_text()
            for given, small in (("completions: 16", "completions: 2"), ("auto/16", "auto/2"), ("*of16", "*of2"), ('"16"', '"2"'),
                                 (" --confirm,", "")):
                text = text.replace(given, small)
            self.assertNotIn("of16", text)
            files[name] = text
        for operation, folder in self.each_operation():
            with self.subTest(operation):
                (folder / "data").mkdir()
                (folder / "list.csv").rename(folder / "data" / "shapes.csv")
                options = f"--shard auto/2 --op {operation} {' '.join(QUICK)}"
                (folder / "tune.yaml").write_text(files["tune.yaml"].replace("--shard auto/2", options))
                (folder / "merge.yaml").write_text(files["merge.yaml"])
                self.environment["KUBECTL_DOUBLE_FOLDER"] = str(folder)
                done = self.run_in(folder, "sh", "-c", "kubectl apply -f tune.yaml && kubectl wait --for=condition=complete --timeout=-1s "
                                   "job/gemmtune && kubectl apply -f merge.yaml")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_both_rows(folder / "data" / "tuned.csv", done.stderr)

    def ray(self, folder, *more):
        package = self.folder / "package" / "gemmtune"
        package.mkdir(parents=True, exist_ok=True)
        (package / "ray.py").write_bytes((ROOT / "python" / "gemmtune" / "ray.py").read_bytes())
        self.environment["PYTHONPATH"] = f"{package.parent}:{DOUBLES / 'python'}"
        return self.run_in(folder, sys.executable, "-m", "gemmtune.ray", "-i", "list.csv", "-o", "tuned.csv", "--shards", "2", "--workers", "1",
                           "--merge-seconds", "0", "--gemmtune", PROGRAM, *more, *QUICK)

    def test_ray(self):
        for operation, folder in self.each_operation():
            with self.subTest(operation):
                done = self.ray(folder, "--op", operation)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_both_rows(folder / "tuned.csv", done.stderr)

    def test_ray_sets_bad_shard_files_aside(self):
        folder = self.folder / "bad"
        folder.mkdir()
        (folder / "list.csv").write_text(LISTS["a8w8"])
        self.assertEqual(self.ray(folder, "--op", "a8w8").returncode, 0)
        file = folder / "tuned.csv.shards" / "tuned.1of2.csv.shard.json"
        whole = json.loads(file.read_text())
        for bad in ("[1]", "{}", '{"state": "finished"}', "not JSON", "", json.dumps({**whole, "list": "another"})):
            with self.subTest(bad):
                file.write_text(bad)
                done = self.ray(folder, "--op", "a8w8")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("Traceback", done.stderr)
                self.assertIn("it is tuned again, its files are kept as *.old", done.stderr)
                self.assertIn("1 shards are there already", done.stderr)
                self.assertEqual(file.with_name(file.name + ".old").read_text(), bad)
                self.expect_both_rows(folder / "tuned.csv", done.stderr)

    def test_journals_of_tables_of_one_name_stay_apart(self):
        for name in ("one", "two"):
            (self.folder / name).mkdir()
        local = self.folder / "local"
        local.mkdir()
        seen = []
        for name, shape in (("one", "3"), ("two", "5")):
            words = [PROGRAM, "tune", "-m", shape, "-n", "64", "-k", "64", "-o", self.folder / name / "tuned.csv", "--journal", local, *QUICK]
            done = self.run_in(self.folder, *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            exported = self.run_in(self.folder, PROGRAM, "journal", "export", self.folder / name / "tuned.csv", "--json")
            seen.append({json.loads(line)["problem"] for line in exported.stdout.splitlines()})
        self.assertEqual(len(seen[0] | seen[1]), 2)
        self.assertEqual(len(seen[1]), 1, "a journal holds what its own table was tuned from")
        self.assertEqual(list(local.iterdir()), [], "copied beside the output, then removed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
