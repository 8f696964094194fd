"""Contexts: a device and the tuned files of this process. Functions of the package use one for each device, which the
first call opens; use() replaces it."""

import ctypes
import os
import sys
import threading
import weakref

from . import _library as c
from . import _log
from .errors import InvalidArgument, NoGpu, NotFound, OtherDevice, Unsupported, error_of
from .program import nvidia_folders

_lock = threading.RLock()
_current = {}  # ("cpu", 0) -> Context
_kept = []  # C contexts that never end: of graphs that hold their kernels, and in a child those of its parent
_open = weakref.WeakSet()  # C contexts; with _lock
_finalized_in = None  # process with a finalizer of multiprocessing
# Called with (device, C context) when a device's context changes; None: forget it. True if the former one must never end.
_listeners = []


def _text(value):
    return None if value is None else os.fsencode(value)


class _Handle:
    """A context of the C interface. ctypes takes it as an argument and holds it for the time of the call, so that it ends with its
    last call."""

    def __init__(self, options):
        self._as_parameter_ = ctypes.c_void_p()
        self.status = c.lib.gemmtune_context_create(ctypes.byref(options), ctypes.byref(self._as_parameter_))
        if not self.status:
            with _lock:
                _open.add(self)
            # Not by __del__, in which _open would still give the handle to another thread.
            weakref.finalize(self, _destroy, self._as_parameter_, os.getpid()).atexit = False


def _destroy(context, process):
    # Not in a child, which has none of its threads; not at the end of Python, where a thread may still be in a call.
    if process == os.getpid() and not sys.is_finalizing():
        c.lib.gemmtune_context_destroy(context)


class NamedPlan:
    """A plan on one kernel, whatever the tuned files say."""

    def __init__(self, context, problem, kernel, verify):
        self._handle = ctypes.c_void_p()
        c.check(c.lib.gemmtune_plan_create_named(context.handle, ctypes.byref(problem), os.fsencode(kernel), int(not verify),
                                                 ctypes.byref(self._handle)))
        info = c.PlanInfo()
        c.check(c.lib.gemmtune_plan_get_info(self._handle, ctypes.byref(info)))
        self.kernel, self.workspace_bytes = info.kernel_name.decode(), info.workspace_bytes

    def run(self, operands, workspace, stream):
        c.check(c.lib.gemmtune_plan_run(self._handle, ctypes.byref(operands), workspace, stream))

    def __del__(self):
        if self._handle and not sys.is_finalizing():
            c.lib.gemmtune_plan_release(self._handle)


class Context:
    """A device and tuned files. It ends, with its threads and memory, by close(), at the end of a `with` block or when nothing
    holds it any more; never before the last call in it.

    device: "cpu", "cpu:0-15", "cuda:0". tuned_files: paths of a16w16, colon-separated, or a dictionary from operations to
    such lists; they replace the default of the operation. Other options are those of gemmtune_context_options."""

    def __init__(self, device="cpu", tuned_files=None, *, config_folder=None, threads=0, strict_environment=False,
                 log_config=False, capture=None, verify_untuned=False, own_threads_only=False):
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
            capture=capture is not None, capture_folder=_text(capture), own_threads_only=own_threads_only)
        if log_config:
            _log.print_information()
        self._named_plans = {}
        self._handle = _Handle(options)
        if status := self._handle.status:
            sentence = c.lib.gemmtune_last_error().decode(errors="replace")
            if on_gpu and status in (Unsupported.status, NotFound.status):
                raise NoGpu(sentence)
            raise error_of(status, sentence)
        _check_named({path for paths in lists.values() for path in paths.split(":")}, self.files())
        _flush_when_a_worker_ends()

    @property
    def handle(self):
        """The C context, for an argument of ctypes."""
        handle = self._handle
        if handle is None:
            raise InvalidArgument("the context is closed")
        return handle

    def close(self):
        """Ends the context once no call is in it. Later calls on it raise InvalidArgument; its device gets a new one where it was
        the current one."""
        with _lock:
            for device in [device for device, context in _current.items() if context is self]:
                del _current[device]
                _tell(device, self, None)
        self._named_plans.clear()
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def device(self):
        """backend, name, model, gfx and cu_num of the device; team: whose threads run a CPU's kernels by now ("openmp", "own")."""
        info = c.DeviceInfo()
        c.check(c.lib.gemmtune_context_device(self.handle, ctypes.byref(info)))
        return {"backend": info.backend.decode(), "name": info.name.decode(), "model": info.model.decode(),
                "gfx": info.gfx.decode(), "cu_num": info.cu_num, "team": info.team.decode()}

    def type(self, word):
        """The name of the type that a word means on the device: "fp8" is "f8_e4m3fnuz" on gfx94x, "f8_e4m3fn" elsewhere."""
        found = ctypes.c_int32()
        c.check(c.lib.gemmtune_context_type(self.handle, word.encode(), ctypes.byref(found)))
        return c.types[found.value]

    def sources(self):
        """The tuned files, one line each: path, and rows read or why there are none."""
        needed = ctypes.c_size_t()
        c.check(c.lib.gemmtune_context_sources(self.handle, None, 0, ctypes.byref(needed)))
        text = ctypes.create_string_buffer(needed.value + 256)
        c.check(c.lib.gemmtune_context_sources(self.handle, text, len(text), ctypes.byref(needed)))
        return text.value.decode(errors="replace").splitlines()

    def files(self):
        """The tuned files as dictionaries: path, operation, rows, own_rows (of this device), fewer_threads_rows,
        other_environment_rows, left_out, devices ({"gfx950/256": 200}), named, online, shipped, and unused: why none of the rows answers."""
        files = []

        @c.Visitor
        def visit(_, source):
            one = source.contents
            devices = [text.rpartition(":") for text in one.devices.decode(errors="replace").split(",") if text]
            files.append({"path": os.fsdecode(one.path), "operation": c.operations[one.operation], "rows": one.rows,
                          "own_rows": one.own_rows, "fewer_threads_rows": one.fewer_threads_rows,
                          "other_environment_rows": one.other_environment_rows, "left_out": one.left_out,
                          "devices": {name: int(rows) for name, _, rows in devices}, "named": bool(one.named),
                          "online": bool(one.online), "shipped": bool(one.shipped), "unused": one.unused.decode(errors="replace")})

        c.check(c.lib.gemmtune_context_visit_sources(self.handle, visit, None))
        return files

    def counters(self):
        """How plan requests were served: exact, range, fine, coarse, bucket, untuned ... and plans_made."""
        values = c.Counters()
        c.check(c.lib.gemmtune_context_counters(self.handle, ctypes.byref(values)))
        return {name: getattr(values, name) for name, _ in c.Counters._fields_[1:]}

    def plan(self, problem):
        """How a problem (of operations.problem()) is answered: kernel, family, match, rule, file, line, workspace_bytes, bits (the
        bit class of the row, or "")."""
        return self._plan_info(c.lib.gemmtune_plan_create, problem)

    def tuned_plan(self, problem):
        """The same if a row that was measured at this M answers (of a fused_moe: at its token tier), else None; no kernel is made then."""
        return self._plan_info(c.lib.gemmtune_plan_create_tuned, problem)

    def _plan_info(self, create, problem):
        plan = ctypes.c_void_p()
        c.check(create(self.handle, ctypes.byref(problem), ctypes.byref(plan)))
        if not plan:
            return None
        try:
            info = c.PlanInfo()
            c.check(c.lib.gemmtune_plan_get_info(plan, ctypes.byref(info)))
            return {"kernelName": info.kernel_name.decode(), "libtype": info.family.decode(), "match": c.matches[info.match],
                    "hit_m": info.hit_m, "rule": info.rule.decode(), "file": info.file.decode(), "line": info.line,
                    "other_environment": bool(info.other_environment), "workspace_bytes": info.workspace_bytes,
                    "weight_layout": info.weight_layout, "bits": info.bits.decode()}
        finally:
            c.lib.gemmtune_plan_release(plan)

    def named_plan(self, problem, kernel, verify=True):
        """The plan of a problem on a kernel: a kernelName, "family" or "family:index" (gemmtune_plan_create_named in
        gemmtune/c.h). Its first run is verified, unless `verify` is False. Kept for further calls."""
        key = bytes(problem), kernel, verify
        plan = self._named_plans.get(key)
        if plan is None:
            if len(self._named_plans) >= 4096:
                self._named_plans.clear()
            plan = self._named_plans[key] = NamedPlan(self, problem, kernel, verify)
        return plan

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


def _check_named(paths, files):
    """Tuned files that were named must be there, and those of an operation must have a row that may answer."""
    for path in sorted(paths):
        if not os.path.exists(path):
            raise NotFound(f"{path} does not exist, expected a tuned file")
    used = {file["operation"] for file in files if not file["shipped"] and (file["own_rows"] or file["fewer_threads_rows"])}
    for file in files:
        if file["path"] in paths and file["devices"] and file["unused"] and file["operation"] not in used:
            raise OtherDevice(file["unused"])


def _flush_when_a_worker_ends():
    """A process of multiprocessing ends by os._exit(), after these finalizers."""
    global _finalized_in
    util = sys.modules.get("multiprocessing.util")
    if util is not None and _finalized_in != os.getpid():
        _finalized_in = os.getpid()
        util.Finalize(None, flush_capture, exitpriority=0)


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


def _tell(device, former, context):
    """The listeners have no call in the former context when this returns, or it is kept."""
    handle = None if context is None else context.handle
    for listener in _listeners:
        if listener(device, handle) is True and former is not None:
            _kept.append(former.handle)


def _replace(device, context):
    former = _current.get(device)
    _current[device] = context
    _tell(device, former, context)
    return context


def keep(context):
    """For ever: a graph holds its kernels."""
    with _lock:
        if context.handle not in _kept:
            _kept.append(context.handle)


def use(tuned_files=None, device="cpu", **options):
    """From now on calls on `device` use these tuned files (and options of Context); returns the context.

    The former context of the device ends when no call is in it and nothing else holds it. Raises NotFound if a file is missing
    and OtherDevice if it has rows, but none of this device."""
    context = Context(device, tuned_files, **options)
    with _lock:
        return _replace(_key(device), context)


def reload():
    """Reads the tuned files of all open contexts again."""
    for context in list(_current.values()):
        context.reload()


def sources(device="cpu"):
    """The tuned files that calls on `device` look up, as data: Context.files()."""
    return current(_key(device)).files()


def flush_capture():
    """Writes what capture has not written yet, of all contexts."""
    with _lock:
        opened = list(_open)
    for context in opened:
        c.check(c.lib.gemmtune_capture_flush(context))


def listen(listener):
    """Calls listener(device, C context) for the contexts of now and of later. When it returns it has no call in the former one, or
    it returns True."""
    with _lock:
        _listeners.append(listener)
        for device, context in _current.items():
            listener(device, context.handle)


def _after_fork():
    """A child has the parent's contexts, but not their threads: it opens its own."""
    global _lock
    _lock = threading.RLock()
    _kept.extend(context._handle for context in _current.values())
    devices = list(_current)
    _current.clear()
    for device in devices:
        for listener in _listeners:
            listener(device, None)

os.register_at_fork(after_in_child=_after_fork)
