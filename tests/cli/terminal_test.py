"""What `gemmtune tune` draws on a terminal: frames that fit, and a clean screen in the end.

Usage: terminal_test.py SIMULATED_PROGRAM
"""

import csv
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

PROGRAM = sys.argv[1]
EVALUATOR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support", "evaluator.py")
COLUMNS = 90
SEEN = (r"▕.*▏ +\d+ %  \d of 6 shapes", r"\n\./measure  \d+x\d+x16 bf16  searches")  # of a frame


class Screen:
    """As much of a terminal as the program uses: new lines, a return, a cursor up, an erased rest of a line."""

    def __init__(self):
        self.lines, self.row, self.column = [""], 0, 0
        self.frames = []

    def feed(self, text):
        while text:
            code = re.match(r"\x1b\[(\d*)([A-Z])", text)
            if code:
                if code[2] == "A":
                    self.row -= int(code[1] or 1)
                    assert self.row >= 0, "above the screen"
                elif code[2] == "K":
                    if self.column == 0 and "▶" in self.lines[max(0, self.row - 1)]:
                        self.frames.append("\n".join(self.lines))  # whole, before the next one
                    self.lines[self.row] = self.lines[self.row][: self.column]
                else:
                    raise AssertionError(repr(code[0]))
                text = text[code.end():]
                continue
            assert text[0] != "\x1b", repr(text[:20])
            if text[0] == "\r":
                self.column = 0
            elif text[0] == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            else:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + text[0] + line[self.column + 1:]
                self.column += 1
            text = text[1:]


TIMES = {"us", "us1", "us2", "tflops", "bw", "spread", "default_us", "speedup"}


def output_of_terminal(folder, arguments, columns=COLUMNS):
    """What `gemmtune ARGUMENTS` writes in the folder on a terminal; it must end well."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execve(PROGRAM, [PROGRAM, *arguments], environment(folder))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    output = b""
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the program has ended
            break
        if not read:
            break
        output += read
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, output.decode("utf-8", errors="replace")
    return output.decode("utf-8", errors="ignore")


def environment(folder):
    return {**os.environ, "GEMMTUNE_CONFIG_DIR": folder + "/config", "XDG_RUNTIME_DIR": folder, "GEMMTUNE_POWERCAP_DIR": folder + "/powercap"}


def decision(path):
    """A row but for its times, and what the file beside it says was measured."""
    with open(path, encoding="utf-8") as file:
        row = {name: value for name, value in next(csv.DictReader(file)).items() if name not in TIMES}
    with open(path + ".env.json", encoding="utf-8") as file:
        (measured,) = json.load(file).values()
    observations = measured["observations"]
    routings = {problem: (one["kernelName"], one["best"], sorted(one["loss"])) for problem, one in observations.get("routings", {}).items()}
    joules = {problem: (one["kernelName"], sorted(one)) for problem, one in observations.get("joules", {}).items()}
    return row, measured["policy"], sorted(observations), routings, joules


class Terminal(unittest.TestCase):
    def expect_the_same_choice(self, arguments, observation):
        decisions = []
        for terminal in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                os.makedirs(folder + "/powercap/intel-rapl:0")
                for name, value in (("name", "package-0"), ("energy_uj", "1000"), ("max_energy_range_uj", "1000000")):
                    with open(f"{folder}/powercap/intel-rapl:0/{name}", "w", encoding="utf-8") as file:
                        file.write(value + "\n")
                words = ["tune", *arguments, "-o", "tuned.csv"]
                if terminal:
                    output = output_of_terminal(folder, words)
                    self.assertIn("▕", output)  # the live view was there
                else:
                    subprocess.run([PROGRAM, *words], cwd=folder, env=environment(folder), check=True, capture_output=True)
                decisions.append(decision(folder + "/tuned.csv"))
        self.assertEqual(decisions[0], decisions[1])
        self.assertIn(observation, decisions[1][2])

    def test_a_mixture_meets_its_other_routings_on_a_terminal_too(self):
        self.expect_the_same_choice(["--op", "fused_moe", "-m", "2", "-n", "64", "-k", "64", "--expert", "8", "--topk", "2", "--libtype", "moe,reference"],
                                    "routings")

    def test_joules_decide_on_a_terminal_too(self):
        self.expect_the_same_choice(["-m", "4", "-n", "64", "-k", "64", "--objective", "energy", "--libtype", "skinny,onednn"], "joules")

    def test_the_ending_breaks_at_words_and_leaves_commands_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["tune", "-m", "4", "-n", "64", "-k", "64", "--libtype", "skinny,onednn", "-o", "tuned.csv", "--quiet"]
            lines = output_of_terminal(folder, words, 64).replace("\r", "").splitlines()
        self.assertTrue(any(line.startswith("1 shape in ") for line in lines), lines)
        for line in lines:
            if not re.search("gemmtune |^written: |^next: ", line):
                self.assertLessEqual(len(line), 64)
        self.assertRegex("\n".join(lines), r"next: export GEMMTUNE_CONFIG_A16W16=/\S+ ")

    def test_live_view(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/shapes.csv", "w", encoding="utf-8") as file:
                file.write("M,N,K,dtype,calls\n" + "".join(f"{m},{n},16,torch.bfloat16,1\n" for n in (16, 24) for m in (1, 2, 4)))
            # It measures nothing before a frame has shown that.
            with open(folder + "/measure", "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\nexec {sys.executable} {EVALUATOR} --hold {folder}/seen\n")
            os.chmod(folder + "/measure", 0o755)
            child, terminal = pty.fork()
            if child == 0:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
                os.chdir(folder)
                os.environ.update(GEMMTUNE_CONFIG_DIR=folder + "/config", XDG_RUNTIME_DIR=folder)
                os.execv(PROGRAM, [PROGRAM, "tune", "-i", "shapes.csv", "--op", "a16w16", "-o", "tuned.csv", "--evaluator", "./measure",
                                   "--timeout", "600", "--search", "random", "--iters", "2", "--confirmations", "1"])
            screen, pending = Screen(), b""
            while True:
                try:
                    read = os.read(terminal, 65536)
                except OSError:  # the program has ended
                    break
                if not read:
                    break
                pending += read
                text = pending.decode("utf-8", errors="ignore")
                pending = pending[len(text.encode()):]
                screen.feed(text)
                if all(re.search(expected, "\n".join(screen.frames)) for expected in SEEN):
                    open(folder + "/seen", "w", encoding="utf-8").close()
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "\n".join(screen.lines))
        for frame in screen.frames:
            for line in frame.splitlines():
                if "▕" in line or line.startswith("./measure"):
                    self.assertLess(len(line), COLUMNS)
        left = "\n".join(screen.lines)
        self.assertNotIn("▕", left)
        self.assertNotIn("▶", left)
        for i in range(1, 7):
            self.assertIn(f"[{i}/6] ", left)
        self.assertRegex(left, r"written: /.*/tuned\.csv")
        self.assertRegex(left, r"\d of 6 shapes won")
        self.assertIn("gemmtune report /", left)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
