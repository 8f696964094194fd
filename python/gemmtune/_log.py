"""The log of the library as logging.getLogger("gemmtune"). With GEMMTUNE_LOG_CONFIG or AITER_LOG_TUNED_CONFIG it prints without
set-up."""

import atexit
import logging
import os

from . import _library as c

logger = logging.getLogger("gemmtune")
_levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
_prints = False
_printer = logging.StreamHandler()
_printer.setFormatter(logging.Formatter("[gemmtune] %(message)s"))


def print_information():
    """Information lines are printed to stderr, unless the program gives the logger a level or handlers."""
    global _prints
    _prints = True
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)


def _asked_for():
    value = os.environ.get("GEMMTUNE_LOG_CONFIG") or os.environ.get("AITER_LOG_TUNED_CONFIG") or "0"
    try:
        return int(value) != 0
    except ValueError:
        return value.lower() in ("true", "on", "yes")


@c.Log
def _write(_, level, line):
    level = _levels[level]
    if not logger.isEnabledFor(level):
        return
    text = line.decode(errors="replace")
    if _prints and not logger.hasHandlers():
        _printer.handle(logger.makeRecord(logger.name, level, "gemmtune", 0, text, (), None))
    else:
        logger.log(level, "%s", text)


if _asked_for():
    print_information()
c.lib.gemmtune_set_log(_write, None)
# Threads of the library may write a line when Python has ended.
atexit.register(lambda: c.lib.gemmtune_set_log(c.Log(), None))
