"""gemmtune's commands as functions: they run the program of this package and return its JSON as plain dictionaries.

Options are those of the command line: budget=60 is --budget 60, m_range="1:512" is --m-range, all=True is --all,
pin=False is left out. Values that are lists are joined by commas."""

import csv
import json
import os
import signal
import subprocess
import tempfile
import threading

from . import program
from .errors import CommandFailed

_short = {"m", "n", "k", "b", "i", "o", "o2"}


def _arguments(options):
    words = []
    for key, value in options.items():
        if value is None or value is False:
            continue
        flag = f"-{key}" if key in _short else "--" + key.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [flag, ",".join(str(one) for one in value)]
        else:
            words += [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    return words


def _sentence(command, code, error_text):
    """The program's last line on stderr, which says what is wrong."""
    lines = [line for line in error_text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else f"gemmtune {command} ended with {code}"


class _Reader(threading.Thread):
    """Reads a pipe to its end, so that the program never waits for this process."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self._pipe = pipe
        self.text = ""
        self.start()

    def run(self):
        with self._pipe:
            self.text = self._pipe.read()


def _end(process):
    """Ends a running program as Ctrl-C does: it finishes what it writes. One signal, because a second one kills it."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=120)
    except BaseException:  # it hangs, or a second Ctrl-C
        process.kill()
        process.wait()
        raise


def _run(command, words, progress=None):
    """Runs the program. It has a session of its own: Ctrl-C reaches this process alone, which passes it on once."""
    read_end, write_end = os.pipe()
    arguments = [program.path(), command, *words, "--json"]
    if progress is not None:
        arguments += ["--events", f"/dev/fd/{write_end}"]
    with os.fdopen(read_end, errors="replace") as events:
        try:
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=program.environment(), pass_fds=(write_end,), start_new_session=True, text=True,
                                       errors="replace")
        finally:
            os.close(write_end)
        out, err = _Reader(process.stdout), _Reader(process.stderr)
        try:
            for line in events:  # none without a callback: the pipe's end is the program's
                progress(json.loads(line))
            process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            out.join()
            err.join()
    if process.returncode not in (0, 1):
        raise CommandFailed(_sentence(command, process.returncode, err.text))
    try:
        result = json.loads(out.text)
    except ValueError:
        raise CommandFailed(_sentence(command, process.returncode, err.text)) from None
    result["exit_code"] = process.returncode
    return result


def _write_shapes(shapes, file):
    """A list of sizes as an untuned CSV: (m, n, k), or dictionaries with the columns of the operation's table."""
    rows = [dict(zip("MNK", shape)) if isinstance(shape, (tuple, list)) else dict(shape) for shape in shapes]
    rows = [{("MNK"["mnk".index(key)] if key in ("m", "n", "k") else key): value for key, value in row.items()} for row in rows]
    if not rows:
        raise ValueError("shapes is empty, expected at least one")
    columns = list(rows[0])
    for number, row in enumerate(rows):
        if set(row) != set(columns):
            raise ValueError(f"shapes[{number}] has {sorted(row)}, expected {sorted(columns)} as shapes[0] has")
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def tune(shapes=None, output=None, progress=None, **options):
    """Finds the fastest verified kernel for each shape and writes a tuned file (`gemmtune tune`).

    shapes: a file (untuned CSV, YAML of sizes), a list of (m, n, k) or of dictionaries with the columns of an untuned
    CSV; None for a single size (m=, n=, k=), a model (model_dir=) or the captured shapes of the config folder.
    progress: called on this thread with a dictionary for each event (run_started, problem_started, candidate,
    problem_done, problem_revised). An exception of it, Ctrl-C too, ends the run: what was decided is in the file, and the
    same call goes on."""
    if isinstance(shapes, (list, tuple)):
        options.setdefault("op", "a16w16")
    words = _arguments({"o": output, **options})
    if shapes is None or isinstance(shapes, (str, os.PathLike)):
        return _run("tune", _arguments({"i": shapes}) + words, progress)
    with tempfile.TemporaryDirectory(prefix="gemmtune-") as place:
        listed = os.path.join(place, "untuned.csv")
        with open(listed, "w", newline="") as file:
            _write_shapes(shapes, file)
        return _run("tune", ["-i", listed, *words], progress)


def lookup(m=None, n=None, k=None, table=None, **options):
    """The row or rule that a size gets from tuned files, and why (`gemmtune lookup`)."""
    return _run("lookup", _arguments({"m": m, "n": n, "k": k, "table": table, **options}))


def audit(*files, **options):
    """Defects of tuned files, row by row (`gemmtune audit`); exit_code is 1 if there are any."""
    return _run("audit", [*(os.fspath(file) for file in files), *_arguments(options)])


def convert(file, output, *, to, **options):
    """A file of one format as one of another (`gemmtune convert`); left_out names what the format has no place for."""
    return _run("convert", [os.fspath(file), *_arguments({"to": to, "o": output, **options})])


def bench(file, **options):
    """Times what dispatch runs for the shapes of a file against the default kernels (`gemmtune bench`)."""
    return _run("bench", [os.fspath(file), *_arguments(options)])
