"""What the walk-throughs share: a clean folder, the document's commands with the name of their program replaced and nothing else, and looks
at what they leave. The methods of a walk-through are its steps, in the order of the text; later steps find what earlier ones left.

Each program takes: PROGRAM SIMULATED_PROGRAM DOUBLES, the last a folder with doubles of AMD's libraries (tests/support/hip_double)."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM, SIMULATED, DOUBLES = (Path(place).resolve() for place in sys.argv[1:4])
NUMPY = importlib.util.find_spec("numpy") is not None
TORCH = importlib.util.find_spec("torch") is not None
needs_numpy = unittest.skipUnless(NUMPY, "this Python has no numpy")
needs_torch = unittest.skipUnless(TORCH, "this Python has no PyTorch (tools/torch_environment.py makes one)")

# Where a command runs. `simulated`: kernels and their checks are the CPU's, times are a model's, so that a step takes no time and is the same
# on a busy machine. `hip`: the program on doubles of AMD's libraries, whose kernels an emulation runs.
NO_GPU = {"HIP_VISIBLE_DEVICES": "-1"}
PLACES = {"cpu": NO_GPU, "simulated": NO_GPU, "hip": {"LD_LIBRARY_PATH": str(DOUBLES)}}

# Online tuning of a small problem takes half a second, of a busy machine more.
ONLINE_TIME = {"GEMMTUNE_ONLINE_BUDGET_MS": "20000"}


def items():
    """The table of items, items.csv."""
    with open(HERE / "items.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def table(path):
    """Rows of a CSV with header, as dictionaries."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def settled(shapes):
    """What a tuning's summary says of so many shapes, each of which has a row: its own kernel's, or the default's."""
    return "(" + "|".join(f"{tuned} tuned, {shapes - tuned} kept at default" for tuned in range(shapes + 1)) + ")"


def header(path):
    return Path(path).read_text(encoding="utf-8").splitlines()[0].split(",")


class Walk(unittest.TestCase):
    """A document's walk-through."""

    replaced = {}  # program of the document: what stands in its place
    variables = {}  # what the reader has exported, for all steps
    longMessage = True

    @classmethod
    def setUpClass(cls):
        cls.top = Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="gemmtune-seeds-")))
        cls.work = cls.top / "work"
        for folder in ("work", "home", "tmp", *PLACES):
            (cls.top / folder).mkdir()
        for place in PLACES:
            (cls.top / place / "gemmtune").symlink_to(SIMULATED if place == "simulated" else PROGRAM)
            for name in ("python", "python3"):
                file = cls.top / place / name
                file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
                file.chmod(0o755)

    def environment(self, place):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("GEMMTUNE_", "AITER_", "GTUNE_", "HIP_", "XDG_")) and name != "LD_LIBRARY_PATH"}
        return {**kept, "HOME": str(self.top / "home"), "TMPDIR": str(self.top / "tmp"), "XDG_RUNTIME_DIR": str(self.top / "tmp"),
                "PATH": f"{self.top / place}:{kept['PATH']}", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": "",
                **self.variables, **PLACES[place]}

    def here(self, command):
        """The command with the program's name replaced."""
        for program, instead in self.replaced.items():
            command = command.replace(program, instead)
        return command

    def step(self, command, more="", *, on="simulated", code=0, said="", err="", env=None):
        """Runs a command of the document, as a user's shell does. more: what the step adds to it; code: its exit code; said, err: patterns that
        its output and its standard error have. Other than that standard error has no warning and no error."""
        line = self.here(f"{command} {more}" if more else command)
        done = subprocess.run(["sh", "-ec", line], cwd=self.work, env={**self.environment(on), **(env or {})}, text=True, capture_output=True,
                              check=False, timeout=600)
        whole = f"{line}\nexit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.assertEqual(done.returncode, code, whole)
        if said:
            self.assertRegex(done.stdout, said, whole)
        if err:
            self.assertRegex(done.stderr, err, whole)
        else:
            self.assertNotRegex(done.stderr, r"(?im)traceback|\bwarning\b|\berror\b|^gemmtune \w+:", whole)
        return done

    def write(self, path, text):
        file = self.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def rows(self, path):
        return table(self.work / path)

    def expect_columns(self, path, columns):
        """The document's columns, in its order; others may stand between."""
        found = [name for name in header(self.work / path) if name in columns]
        self.assertEqual(found, columns)

    def expect_candidates(self, profile, winners, more_than):
        """A profile has all candidates, none of them wrong, and the winners' among those with a time."""
        candidates = self.rows(profile)
        self.assertGreater(len(candidates), more_than)
        self.assertLessEqual({row["outcome"] for row in candidates}, {"ok", "too_slow"})
        timed = [row for row in candidates if row["outcome"] == "ok"]
        for winner in self.rows(winners):
            self.assertTrue(any(all(row[name] == winner[name] for name in ("M", "N", "K", "kernelName")) for row in timed), winner)
        return candidates

    def expect_right(self, path, rows, on="cpu", op=""):
        """The kernels of a tuned file's rows run and are right."""
        self.step(f"gemmtune check {path}" + (f" --op {op}" if op else ""), on=on, said=rf"{rows} rows? of this device: {rows} right, 0 not")

    def answer(self, words, on="cpu", env=None):
        """What `lookup` answers, as JSON."""
        return json.loads(self.step(f"gemmtune lookup {words} --json", on=on, env=env).stdout)

    def expect_answer(self, words, level, kernel=None, on="cpu", env=None):
        found = self.answer(words, on=on, env=env)
        self.assertEqual(found["level"], level, found)
        self.assertTrue(found["runnable"], found)
        if kernel:
            self.assertEqual(found["kernelName"], kernel)
        return found

    def names(self):
        """Files of the working folder."""
        return sorted(str(file.relative_to(self.work)) for file in self.work.rglob("*") if file.is_file())

    def compiled(self, log):
        """How many kernels the double of hipRTC has compiled, by its log of calls."""
        file = self.top / log
        return len(re.findall("hiprtcCompileProgram", file.read_text(encoding="utf-8"))) if file.exists() else 0


def main(document, waiting):
    """Runs a document's steps. waiting: steps that fail until another part of the program has changed, by name, with what they wait for; one
    that succeeds is a failure, so that it is taken off the list."""
    walk, = (value for value in vars(sys.modules["__main__"]).values() if isinstance(value, type) and issubclass(value, Walk) and value is not Walk)
    for name, what in waiting.items():
        print(f"WAITING {document}: {name}: {what}")
        setattr(walk, name, unittest.expectedFailure(getattr(walk, name)))
    for item in items():
        if item["document"] == document and not item["shown_by"]:
            print(f"NOT HERE {document}: {item['item']}: {item['here']}")
    for name, step in vars(walk).items():
        if getattr(step, "__unittest_skip__", False):
            print(f"SKIPPED {document}: {name}: {step.__unittest_skip_why__}")
    sys.stdout.flush()
    unittest.main(argv=sys.argv[:1])
