"""What `gemmtune tune` draws on a terminal: frames that fit, and a clean screen in the end.

Usage: terminal_test.py SIMULATED_PROGRAM
"""

import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
import unittest

PROGRAM = sys.argv[1]
COLUMNS = 90


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


class Terminal(unittest.TestCase):
    def test_live_view(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(folder + "/shapes.csv", "w", encoding="utf-8") as file:
                file.write("M,N,K,dtype,calls\n" + "".join(f"{m},{n},256,torch.bfloat16,1\n" for n in (256, 512) for m in (1, 16, 64)))
            child, terminal = pty.fork()
            if child == 0:
                os.chdir(folder)
                os.environ.update(GEMMTUNE_CONFIG_DIR=folder + "/config", XDG_RUNTIME_DIR=folder)
                os.execv(PROGRAM, [PROGRAM, "tune", "-i", "shapes.csv", "--op", "a16w16", "-o", "tuned.csv", "--libtype", "tiled,skinny,onednn",
                                   "--budget", "8", "--iters", "5", "--confirmations", "1"])
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
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
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "\n".join(screen.lines))
        self.assertGreater(len(screen.frames), 0)
        frames = "\n".join(screen.frames)
        self.assertTrue(re.search(r"▕.*▏ +\d+ %  \d of 6 shapes", frames), screen.frames[-1])
        self.assertTrue(re.search(r"\ncpu:\S+  \d+x\d+x256 bf16  searches", frames), screen.frames[-1])
        for frame in screen.frames:
            for line in frame.splitlines():
                if "▕" in line or line.startswith("cpu:"):
                    self.assertLess(len(line), COLUMNS)
        left = "\n".join(screen.lines)
        self.assertNotIn("▕", left)
        self.assertNotIn("▶", left)
        for i in range(1, 7):
            self.assertIn(f"[{i}/6] ", left)
        self.assertIn("written: tuned.csv", left)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
