"""Every `gemmtune` line of README.md and of the pages in docs/ runs in a folder that has the repository's files, or is listed with what it
needs and printed as skipped. Lines of a page run in their order, in one folder, because later ones read what earlier ones wrote. Lines that
measure take minutes. `tune` runs with --dry-run, on a CPU where a line names a GPU, and without what excludes --dry-run. Of `bench`, `hunt`
and `tune` on results of a run docs_test checks the options, and here the files that they read must exist. `tune` of README.md runs for some
seconds, so that its next lines read a file that was tuned here.

Usage: docs_commands_test.py PROGRAM
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.argv[1]).resolve()
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
MEASURES = {"tune", "bench", "hunt"}
# Options of `tune` and `bench` that name a file or folder to read.
READS = {"-i", "--input_file", "--model_dir", "--gemm_size_file", "--search-space"}
# `tune` that reads what a run has written; it has no --dry-run.
READS_A_RUN = {"--replay", "--compare_wo_tuning", "--benchmark", "--run_config"}
# What --dry-run excludes or needs a GPU for, with the number of its values.
LEFT_OUT = {"--buckets": 0, "--bucket-scheme": 1, "--compare": 0, "--update_improved": 0, "--min_improvement_pct": 1, "--energy": 0, "--objective": 1,
            "--backend": 1}
# Page, and how a line of it begins: what it needs. A page alone: all of its lines.
ELSEWHERE = {
    ("README.md", "gemmtune tune --model llama-3.1-8b --backend cuda"): "an NVIDIA GPU",
    ("coming_from_aiter.md", ""): "the files of a checkout of AITER, in AITER's own names",
    ("coming_from_tune_gemm.md", "gemmtune tune"): "files of a checkout of tune_gemm, in its own names",
    ("coming_from_tune_gemm.md", "gemmtune convert"): "the results of the line above it",
    ("capture.md", "gemmtune tune"): "an engine that records",
    ("cublas.md", "gemmtune tune"): "shapes that an engine recorded",
    ("checkpoints.md", "gemmtune shapes"): "a quantized checkpoint",
    ("checkpoints.md", "gemmtune tune"): "the shapes of the line above it",
    ("vllm.md", "gemmtune tune"): "that folder, or shapes that vLLM recorded",
    ("evaluators.md", "gemmtune explain"): "PyTorch and Triton",
    ("hip_families.md", "gemmtune coverage"): "tables of an AMD GPU",
    ("evaluators.md", "gemmtune tune"): "a program evaluate.py",
    ("invariant.md", "gemmtune check invariant.csv"): "the rows of the line above it",
    ("tensor_parallel.md", "gemmtune check tp.csv"): "the rows of the lines above it",
    ("vllm_cpu.md", "gemmtune shapes"): "the folder of the model that vLLM serves",
    ("vllm_cpu.md", "gemmtune tune"): "that folder, or its shapes",
    ("vllm_mixtures.md", "gemmtune tune"): "the folder of the model that vLLM serves",
    ("lookup.md", "gemmtune lookup --requests"): "a list of a program's requests",
    ("many_machines.md", "gemmtune merge"): "the outputs of shards",
    ("report.md", "gemmtune report bf16"): "AITER's tables",
    ("report.md", "gemmtune report tuned.csv"): "a tuned file of this machine with its profile",
    ("report.md", "gemmtune report --follow"): "a run that goes on",
    ("runs.md", "gemmtune journal"): "the journal of a run on this machine",
    ("tables.md", "gemmtune check tuned.csv"): "a tuned file of this machine",
    ("triton_configs.md", "gemmtune lookup"): "configs that the line above it tunes",
}


def lines_of(page):
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        yield from (line for line in block.splitlines() if line.startswith("gemmtune "))


class Commands(unittest.TestCase):
    def test_each_line_runs_or_says_what_it_needs(self):
        ran, used = 0, set()
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            with tempfile.TemporaryDirectory() as folder:
                for name in ("configs", "models", "shapes", "tests", "examples"):
                    (Path(folder) / name).symlink_to(ROOT / name)
                environment = {**os.environ, "GEMMTUNE_CONFIG_DIR": f"{folder}/config"}
                for line in lines_of(page):
                    key = next((key for key in ELSEWHERE if key[0] == page.name and line.startswith(key[1])), None)
                    if key:
                        used.add(key)
                        print(f"SKIPPED {page.name}: {line}: needs {ELSEWHERE[key]}")
                        continue
                    words = shlex.split(line, comments=True)[1:]
                    with self.subTest(page=page.name, line=line):
                        if words[0] == "tune" and page.name == "README.md":
                            self.tune_briefly(words, folder, environment)
                            ran += 1
                            continue
                        if words[0] == "tune" and not READS_A_RUN & set(words) and "--list" not in words:
                            words = self.dry(words)
                        elif words[0] in MEASURES and "--list" not in words:
                            for option, value in zip(words, words[1:]):
                                if option in READS:
                                    self.assertTrue((Path(folder) / value).exists() or value in self.written(page, line), value)
                            continue
                        done = subprocess.run([PROGRAM, *words], cwd=folder, env=environment, text=True, capture_output=True, check=False,
                                              timeout=120)
                        self.assertIn(done.returncode, (0, 1), done.stderr)  # 1: findings
                        ran += 1
        self.assertGreaterEqual(ran, 55)
        self.assertEqual(used, set(ELSEWHERE), "lines that are listed and are not there")

    def tune_briefly(self, words, folder, environment):
        """The line with a smaller budget; a larger one where a busy machine proves no row in it."""
        output = Path(folder) / words[words.index("-o") + 1]
        for budget in (10, 40, 160):
            words[words.index("--budget") + 1] = str(budget)
            done = subprocess.run([PROGRAM, *words], cwd=folder, env=environment, text=True, capture_output=True, check=False, timeout=600)
            self.assertIn(done.returncode, (0, 1), done.stderr)  # 1: no row, or not all
            if output.exists():
                return
        self.fail(f"no row: {done.stderr}")

    @staticmethod
    def dry(words):
        """The line as a plan of a run on this machine's CPU."""
        left, skip = [], 0
        for word in words:
            if skip or word in LEFT_OUT:
                skip = skip - 1 if skip else LEFT_OUT[word]
                continue
            left.append(word)
        if "--buckets" in words:  # without it the output is a file, and the shapes are no default
            left[left.index("-o") + 1] += ".csv"
            left += [] if "-i" in left else ["-i", "shapes/block_scale_seed.csv"]
        return [*left, "--backend", "cpu", *([] if "--dry-run" in left else ["--dry-run"])]

    @staticmethod
    def written(page, until):
        """The files that lines of the page before `until` write."""
        files = set()
        for line in lines_of(page):
            if line == until:
                break
            words = shlex.split(line, comments=True)
            files |= {value for option, value in zip(words, words[1:]) if option in ("-o", "--tuning_results_file", "--record")}
        return files


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
