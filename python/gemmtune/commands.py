"""gemmtune's commands as functions: they run the program of this package and return its JSON as plain dictionaries.

Options are those of the command line: budget=60 is --budget 60, m_range="1:512" is --m-range, all=True is --all,
pin=False is left out. Values that are lists are joined by commas."""

import csv
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

from . import _notebook, program
from .errors import CommandFailed

_patience = 1  # seconds for callbacks after the end of a run
_types = {"indtype", "q_dtype_a", "dtype_a"}  # options that name the type of x
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


def _sentence(command, code, error_text, shapes):
    """The program's last line on stderr, which says what is wrong."""
    if shapes is not None:
        error_text = error_text.replace(shapes, "shapes")
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


class _Events(threading.Thread):
    """Reads the events of a run to their end: a slow callback does not hold the run up."""

    def __init__(self, pipe):
        super().__init__(daemon=True)
        self._pipe = pipe
        self._queue = queue.SimpleQueue()
        self.start()

    def run(self):
        with self._pipe:
            for line in self._pipe:
                self._queue.put(line)
        self._queue.put(None)

    def deliver(self, process, progress):
        """Calls `progress` with each event. Once the run has ended, candidates that wait are left out after a second, and the next
        event says how many: its `missed_candidates`."""
        ended = None
        missed = 0
        while (line := self._queue.get()) is not None:
            event = json.loads(line)
            if ended is None and process.poll() is not None:
                ended = time.monotonic()
            if event["event"] == "candidate" and ended is not None and time.monotonic() - ended > _patience:
                missed += 1
                continue
            if missed:
                event["missed_candidates"] = missed
                missed = 0
            progress(event)


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


def _start(command, words, progress, shapes, life):
    """(process, thread that reads its events). The process ends with this one: `life` is a pipe that this process keeps open."""
    read_end, write_end = os.pipe()
    arguments = [program.path(), "--parent-pipe", str(life), command, *words, "--json"]
    passed = [life, write_end]
    if progress is not None:
        arguments += ["--events", f"/dev/fd/{write_end}"]
    if shapes is not None:
        passed.append(shapes)
    try:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=program.environment(), pass_fds=passed, start_new_session=True, text=True,
                                   errors="replace")
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return process, _Events(os.fdopen(read_end, errors="replace"))


def _run(command, words, progress=None, shapes=None):
    """Runs the program. It has a session of its own: Ctrl-C reaches this process alone, which passes it on once. `shapes`: the
    descriptor of a list of shapes that the words name."""
    life, alive = os.pipe()
    try:
        try:
            process, events = _start(command, words, progress, shapes, life)
        finally:
            os.close(life)
        out, err = _Reader(process.stdout), _Reader(process.stderr)
        try:
            events.deliver(process, progress)  # none without a callback: the pipe's end is the program's
            process.wait()
        except BaseException:
            _end(process)
            raise
        finally:
            out.join()
            err.join()
    finally:
        os.close(alive)
    name = None if shapes is None else f"/dev/fd/{shapes}"
    if process.returncode not in (0, 1):
        raise CommandFailed(_sentence(command, process.returncode, err.text, name))
    try:
        result = json.loads(out.text)
    except ValueError:
        raise CommandFailed(_sentence(command, process.returncode, err.text, name)) from None
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


def _with_python(options):
    """baseline="torch" is the PyTorch of this Python."""
    return {"python": sys.executable, **options} if options.get("baseline") == "torch" else options


def tune(shapes=None, output=None, progress=None, **options):
    """Finds the fastest verified kernel for each shape and writes a tuned file (`gemmtune tune`).

    shapes: a file (untuned CSV, YAML of sizes), a list of (m, n, k) or of dictionaries with the columns of an untuned
    CSV; None for a single size (m=, n=, k=), a model (model_dir=) or the captured shapes of the config folder.
    baseline: what speed-ups are against: "default" (what an untuned call runs), "library" (the vendor's), or "torch"
    (torch.nn.functional.linear of this Python, on a CPU).
    progress: called on this thread with a dictionary for each event (docs/report.md: run_started, candidate,
    problem_settled, problem_done …), while the run goes on beside it. None: a notebook shows the rows as they are settled. An exception of it, Ctrl-C too, ends the run: what was
    decided is in the file, and the same call goes on. The end of this process, however it comes, ends the run too."""
    if progress is None and _notebook.is_here():
        progress = _notebook.Progress()
    if isinstance(shapes, (list, tuple)):
        options.setdefault("op", "a16w16")
        has_type = any("dtype" in shape for shape in shapes if isinstance(shape, dict)) or not _types.isdisjoint(options)
        if options["op"] == "a16w16" and not has_type:
            options["indtype"] = "bf16"  # as of a single size
    words = _arguments({"o": output, **_with_python(options)})
    if shapes is None or isinstance(shapes, (str, os.PathLike)):
        return _run("tune", _arguments({"i": shapes}) + words, progress)
    # In memory: a process that is killed leaves no file.
    with os.fdopen(os.memfd_create("shapes.csv"), "w", newline="") as file:
        _write_shapes(shapes, file)
        file.flush()
        return _run("tune", ["-i", f"/dev/fd/{file.fileno()}", *words], progress, file.fileno())


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
    return _run("bench", [os.fspath(file), *_arguments(_with_python(options))])


def report(*files, output=None, **options):
    """Tuned files as a page (`gemmtune report`): a _notebook.Page, which a notebook shows where the call stands.

    output: the page's file; None: it is in memory alone. Options are those of the command: base=, capture=, title= …"""
    words = [*(os.fspath(file) for file in files), *_arguments(options)]
    if output is not None:
        return _notebook.read_page(output, _run("report", [*words, "-o", os.fspath(output)]))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.html")
        page = _notebook.read_page(path, _run("report", [*words, "-o", path]))
    page.path = None
    return page
