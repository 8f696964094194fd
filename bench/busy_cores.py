"""Other programs' work beside a measurement on a CPU."""

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys


def commands(load):
    """`load`: a number of busy processes for each core of this process (stress-ng, or without it loops of this Python), or a command."""
    try:
        count = round(float(load) * len(os.sched_getaffinity(0)))
    except ValueError:
        return [shlex.split(load)]
    if shutil.which("stress-ng"):
        return [["stress-ng", "--cpu", str(count)]] if count else []
    return [[sys.executable, "-S", "-c", "while True: pass"]] * count


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: a program that is killed leaves no busy process


@contextlib.contextmanager
def busy_cores(load):
    """`commands(load)` run inside; nothing for None."""
    started = []
    try:
        for command in commands(load) if load else []:
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=end_with_parent))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
