"""Contexts: a device and the tuned files of this process. Functions of the package use one for each device, which the
first call opens; use() replaces it."""

import csv
import ctypes
import os
import threading

from . import _library as c
from .errors import NoGpu, NotFound, OtherDevice, Unsupported, error_of
from .program import nvidia_folders

_lock = threading.RLock()
_current = {}  # ("cpu", 0) -> Context
_kept = []  # contexts that were replaced: a call of another thread may still be in one
_listeners = []  # called with (device, context) when a device's context changes; context None: forget it


def _text(value):
    return None if value is None else os.fsencode(value)


class Context:
    """A device and tuned files.

    device: "cpu", "cpu:0-15", "cuda:0". tuned_files: paths of a16w16, colon-separated, or a dictionary from operations to
    such lists; they replace the default of the operation. Other options are those of gemmtune_context_options."""

    def __init__(self, device="cpu", tuned_files=None, *, config_folder=None, threads=0, strict_environment=False,
                 log_config=False, capture=None, verify_untuned=False):
        lists = tuned_files if isinstance(tuned_files, dict) else {"a16w16": tuned_files} if tuned_files else {}
        lists = {operation: os.fspath(paths) for operation, paths in lists.items()}
        for operation in lists:
            if operation not in c.operations:
                raise ValueError(f"tuned_files of '{operation}', expected one of {', '.join(c.operations)}")
        on_gpu = device.startswith("cuda")
        if on_gpu:
            _load_toolkit()
        files = (c.TunedFiles * max(1, len(lists)))(
            *[c.TunedFiles(c.operations.index(operation), _text(paths)) for operation, paths in lists.items()])
        options = c.ContextOptions(
            config_folder=_text(config_folder), tuned_files=files, tuned_file_count=len(lists),
            backend=b"cuda" if on_gpu else b"cpu", device=None if device in ("cpu", "cuda") else _text(device), threads=threads,
            strict_environment=strict_environment, log_config=log_config, verify_untuned=verify_untuned,
            capture=capture is not None, capture_folder=_text(capture))
        self.handle = ctypes.c_void_p()
        self._process = os.getpid()
        status = c.lib.gemmtune_context_create(ctypes.byref(options), ctypes.byref(self.handle))
        if status:
            sentence = c.lib.gemmtune_last_error().decode(errors="replace")
            if on_gpu and status in (Unsupported.status, NotFound.status):
                raise NoGpu(sentence)
            raise error_of(status, sentence)
        for paths in lists.values():
            for path in paths.split(":"):
                _check_rows(path, self.device())

    def device(self):
        """backend, name, model, gfx and cu_num of the device."""
        info = c.DeviceInfo()
        c.check(c.lib.gemmtune_context_device(self.handle, ctypes.byref(info)))
        return {"backend": info.backend.decode(), "name": info.name.decode(), "model": info.model.decode(),
                "gfx": info.gfx.decode(), "cu_num": info.cu_num}

    def sources(self):
        """The tuned files, one line each: path, and rows read or why there are none."""
        needed = ctypes.c_size_t()
        c.check(c.lib.gemmtune_context_sources(self.handle, None, 0, ctypes.byref(needed)))
        text = ctypes.create_string_buffer(needed.value + 256)
        c.check(c.lib.gemmtune_context_sources(self.handle, text, len(text), ctypes.byref(needed)))
        return text.value.decode(errors="replace").splitlines()

    def counters(self):
        """How plan requests were served: exact, range, fine, coarse, bucket, untuned ... and plans_made."""
        values = c.Counters()
        c.check(c.lib.gemmtune_context_counters(self.handle, ctypes.byref(values)))
        return {name: getattr(values, name) for name, _ in c.Counters._fields_[1:]}

    def plan(self, problem):
        """How a problem (of operations.problem()) is answered: kernel, family, match, rule, file, line, workspace_bytes."""
        plan = ctypes.c_void_p()
        c.check(c.lib.gemmtune_plan_create(self.handle, ctypes.byref(problem), ctypes.byref(plan)))
        try:
            info = c.PlanInfo()
            c.check(c.lib.gemmtune_plan_get_info(plan, ctypes.byref(info)))
            return {"kernelName": info.kernel_name.decode(), "libtype": info.family.decode(), "match": c.matches[info.match],
                    "hit_m": info.hit_m, "rule": info.rule.decode(), "file": info.file.decode(), "line": info.line,
                    "other_environment": bool(info.other_environment), "workspace_bytes": info.workspace_bytes,
                    "weight_layout": info.weight_layout}
        finally:
            c.lib.gemmtune_plan_release(plan)

    def reload(self):
        """Reads the tuned files again."""
        c.check(c.lib.gemmtune_context_reload(self.handle))

    def flush_capture(self):
        """Writes what capture has not written yet."""
        c.check(c.lib.gemmtune_capture_flush(self.handle))


def _load_toolkit():
    """NVIDIA's libraries of this Python, so that libgemmtune finds them by name."""
    for place in nvidia_folders():
        for name in os.listdir(place):
            if name.startswith(("libnvrtc.so", "libcublasLt.so")):
                try:
                    ctypes.CDLL(os.path.join(place, name))
                except OSError:
                    pass  # libgemmtune says what it could not open


def _check_rows(path, device):
    """A tuned file that was named must be there and have a row of this device."""
    if not os.path.exists(path):
        raise NotFound(f"{path} does not exist, expected a tuned file")
    if os.path.isdir(path) or not path.endswith(".csv"):
        return
    with open(path, newline="", errors="replace") as file:
        rows = [row for row in csv.DictReader(file, skipinitialspace=True) if row.get("gfx") and row.get("cu_num")]
    devices = {(row["gfx"].strip(), row["cu_num"].strip()) for row in rows}
    if devices and (device["gfx"], str(device["cu_num"])) not in devices:
        known = ", ".join(f"{gfx} with {units} compute units" for gfx, units in sorted(devices))
        raise OtherDevice(f"{path}: {len(rows)} rows of {known}; this device is {device['gfx']} with {device['cu_num']} compute "
                          "units, so none of them answers")


def _key(device):
    """"cuda:1" -> ("cuda", 1), "cpu:0-15" -> ("cpu", 0)."""
    kind, _, index = device.partition(":")
    return (kind, int(index) if kind == "cuda" and index else 0)


def current(device):
    """The context that calls on ("cpu", 0) or ("cuda", index) use; opened by the first call."""
    found = _current.get(device)
    if found is not None:
        return found
    with _lock:
        found = _current.get(device)
        if found is None:
            found = _replace(device, Context("cpu" if device[0] == "cpu" else f"cuda:{device[1]}"))
        return found


def _replace(device, context):
    if device in _current:
        _kept.append(_current[device])
    _current[device] = context
    for listener in _listeners:
        listener(device, context)
    return context


def use(tuned_files=None, device="cpu", **options):
    """From now on calls on `device` use these tuned files (and options of Context); returns the context.

    Raises NotFound if a file is missing and OtherDevice if it has rows, but none of this device."""
    context = Context(device, tuned_files, **options)
    with _lock:
        return _replace(_key(device), context)


def reload():
    """Reads the tuned files of all open contexts again."""
    for context in list(_current.values()):
        context.reload()


def listen(listener):
    """Calls listener(device, context) for the contexts of now and of later."""
    with _lock:
        _listeners.append(listener)
        for device, context in _current.items():
            listener(device, context)


def _after_fork():
    """A child has the parent's contexts, but not their threads: it opens its own."""
    global _lock
    _lock = threading.RLock()
    _kept.extend(_current.values())
    devices = list(_current)
    _current.clear()
    for device in devices:
        for listener in _listeners:
            listener(device, None)


os.register_at_fork(after_in_child=_after_fork)
