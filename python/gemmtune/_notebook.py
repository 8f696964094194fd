"""What a notebook shows: a run's progress in one place, and a report's page inside the notebook."""

import html
import os
import sys
import time


def is_here():
    """True in a notebook's kernel (Jupyter, Colab); false in a terminal's IPython and in plain Python."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ in ("ZMQInteractiveShell", "Shell")


class Progress:
    """A callback for tune() that keeps one text of the notebook up to date. It draws at most five times a second."""

    _pause = 0.2  # seconds

    def __init__(self):
        self._handle = None
        self._drawn = 0.0
        self._waiting = 0
        self._rows = {}  # the settled shapes' events, by index
        self._in_work = {}
        self._candidates = 0

    def __call__(self, event):
        kind = event["event"]
        index = event.get("index")
        if kind == "run_started":
            self._waiting = len(event["waiting"])
        elif kind == "problem_started":
            self._in_work[index] = event["problem"]
        elif kind == "candidate":
            self._candidates = event["candidates"]
        elif kind == "problem_paused":
            self._in_work.pop(index, None)
        elif kind in ("problem_settled", "problem_done", "problem_revised"):
            self._in_work.pop(index, None)
            self._rows[index] = event
        if kind == "run_ended" or time.monotonic() - self._drawn >= self._pause:
            self._draw(kind == "run_ended")

    def text(self):
        """The lines that are shown."""
        wins = sum(row.get("verdict") == "win" for row in self._rows.values())
        total = max(self._waiting, len(self._rows))
        lines = [f"{len(self._rows)} of {total} shapes settled, {wins} won; {self._candidates} candidates"]
        for _, row in sorted(self._rows.items()):
            size = "x".join(str(row[key]) for key in "mnk")
            if "kernelName" in row:
                speedup = "" if row.get("speedup") is None else f" {row['speedup']:.3f}x"
                lines.append(f"{size}: {row['verdict']}{speedup}  {row['us']:.2f} µs  {row['kernelName']}")
            else:
                lines.append(f"{size}: {row['state']}")
        lines += [f"in work: {problem}" for problem in self._in_work.values()]
        return "\n".join(lines)

    def _draw(self, last):
        from IPython.display import HTML, display

        self._drawn = time.monotonic()
        shown = HTML(f"<pre>{html.escape(self.text())}</pre>")
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)
        if last:
            self._handle = None


class Page:
    """A report: `path` of the page (None where none was asked for), `html` its text, `tables` its numbers: for each table's name a
    list of rows, each a dictionary. A notebook shows the page."""

    def __init__(self, path, text, document):
        self.path = path
        self.html = text
        self.tables = {table["id"]: _rows(table) for table in document["tables"]}

    def __repr__(self):
        rows = len(self.tables.get("rows", []))
        return f"<gemmtune report of {rows} row{'' if rows == 1 else 's'}{'' if self.path is None else f', {os.fspath(self.path)}'}>"

    def _repr_html_(self):
        # A frame of its own: the page's styles and scripts stay in it.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:800px;border:0" sandbox="allow-scripts"></iframe>'


def _rows(table):
    columns = []
    for column in table["columns"]:
        values = column["values"] if "values" in column else [column["words"][at] for at in column["at"]]
        columns.append((column["name"], values))
    return [{name: values[row] for name, values in columns} for row in range(table["rows"])]


def read_page(path, document):
    """The page that the program has written."""
    with open(path, encoding="utf-8") as file:
        return Page(path, file.read(), document)

