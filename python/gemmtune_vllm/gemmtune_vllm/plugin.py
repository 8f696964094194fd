"""install(): hooks into vLLM. Layers are chosen when a model was loaded: those for which a tuned row answers one of the sizes
that vLLM will run. The others stay exactly as they were."""

import atexit
import functools
import hashlib
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

import gemmtune
from gemmtune import contexts
from torch._inductor import config as inductor

from . import cpu, cpu_mixtures, gpu_mixtures, interface, kernels, loadings, logger, operators, quantized

_vllm = None
# Of the last model that this process loaded.
_report = {"version": gemmtune.__version__, "linear_layers": 0, "mixtures": 0, "ours": [], "left": {}, "plans": 0, "device": None}
_calls_before = {}  # counters when the model had been loaded
_watcher = None
_invariant = None  # the variable that asks for rows of a bit class


def install():
    """Registers the kernels and follows the loading of models."""
    global _vllm, _invariant
    _vllm = interface.find()
    if not _vllm.parts:
        logger.warning("gemmtune: off: this vLLM differs from what the plug-in knows: %s", _vllm.differences())
        return
    _invariant = _asks_for_bit_classes()
    if _invariant:
        _vllm.parts = [part for part in _vllm.parts if part == "bf16" or part.endswith("of the CPU backend")]
        if not _vllm.parts:
            logger.info("gemmtune: off: %s is set, and only layers of bf16 and fp16 can have rows of a bit class on a GPU", _invariant)
            return
        logger.info("gemmtune: %s is set: only layers whose rows have a bit class run gemmtune's kernels", _invariant)
    if _vllm.missing:
        logger.warning("gemmtune: no %s layers: this vLLM differs from what the plug-in knows: %s",
                       ", ".join(part for part, _ in _vllm.missing), _vllm.differences())
    operators.dependent = os.environ.get("GEMMTUNE_VLLM_DEPENDENT_LAUNCHES", "0") == "1"
    if operators.dependent and not _vllm.on_cpu:
        _let_dependents_start()
    kernels.register(_vllm)
    quantized.follow(_vllm)
    if "bf16 of the CPU backend" in _vllm.parts:
        cpu.follow(_vllm)
    if "mixtures of the CPU backend" in _vllm.parts:
        cpu_mixtures.follow(_vllm)
    if "mixtures on GPUs" in _vllm.parts:
        gpu_mixtures.follow(_vllm)
    _vllm.loader.load_model = _following(_vllm.load_model)


def _let_dependents_start():
    """Kernels that PyTorch compiles stand in front of ours: they let dependents start before they end. By default PyTorch has that off. What the user
    says of it stays."""
    if hasattr(inductor.triton, "enable_pdl") and "TORCHINDUCTOR_ENABLE_PDL" not in os.environ:
        inductor.triton.enable_pdl = True


def _asks_for_bit_classes():
    """The variable that does, or None."""
    if _refuses_others():
        return "GEMMTUNE_INVARIANT"
    return "VLLM_BATCH_INVARIANT" if getattr(_vllm.envs, "VLLM_BATCH_INVARIANT", False) else None


def _refuses_others():
    """GEMMTUNE_INVARIANT=rows: a layer without rows of a bit class is an error."""
    return os.environ.get("GEMMTUNE_INVARIANT") == "rows"


def _following(load_model):
    @functools.wraps(load_model)
    def load(self, *arguments, **options):
        worker = sys.modules.get("vllm.v1.worker.worker_base")
        if worker is not None:  # llm.collective_rpc("report_of_gemmtune")
            worker.WorkerBase.report_of_gemmtune = lambda self: report()
        config = options.get("vllm_config", arguments[0] if arguments else None)
        loadings.begin(_sizes(config)[1], getattr(getattr(config, "model_config", None), "enforce_eager", False), _invariant,
                       getattr(getattr(config, "kernel_config", None), "linear_backend", "auto"))
        try:
            model = load_model(self, *arguments, **options)
        finally:
            loading = loadings.end()
        try:
            _choose_layers(model, config, loading)
        except Exception as error:  # layers that are not ours run as before
            if _refuses_others():
                raise
            logger.warning("gemmtune: %s: %s; vLLM's kernels run in the layers that are left", type(error).__name__, error)
        return model
    return load


def _longest(config):
    return getattr(getattr(config, "scheduler_config", None), "max_num_batched_tokens", None) or 8192


def _sizes(config):
    """(M of the CUDA graphs, M to ask the look-up for)."""
    graphs = getattr(getattr(config, "compilation_config", None), "cudagraph_capture_sizes", None) or []
    longest = _longest(config)
    powers = [1 << exponent for exponent in range(longest.bit_length())]
    return sorted(set(graphs)), sorted({*graphs, *powers, longest})


class _Unquantized:
    """A linear layer of bf16 or fp16."""

    def __init__(self, layer, method):
        self.layer, self.method = layer, method
        self.weight = layer.weight
        stock = getattr(method, "_gemm_impl", None) or _vllm.dispatch_unquantized_gemm()
        self.runs_python = stock is not _vllm.default_unquantized_gemm  # else it is aten::linear
        self.stock_name = getattr(getattr(stock, "func", stock), "__name__", str(stock))

    def why_not(self):
        """Why the layer is not of a kind that gemmtune runs, or None."""
        weight = self.weight
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or weight.numel() == 0:
            return "its weight is no matrix"
        if weight.dtype not in (torch.bfloat16, torch.float16):
            return f"its weight is {weight.dtype}"
        return None if weight.is_contiguous() else "its weight is not contiguous"

    def biases(self):
        bias = getattr(self.layer, "bias", None)
        return [None] if bias is None else [None, bias]

    def size(self, m, bias):
        n, k = self.weight.shape
        return operators.device_of(self.weight), "plain", m, n, k, self.weight.dtype, self.weight.dtype, bias is not None, 0

    def run(self, m, bias):
        x = operators.random_rows(m, self.weight.shape[1], self.weight.dtype, self.weight.device)
        operators.linear(x, self.weight, bias)

    def constants(self):
        """What a compiled graph has of the layer beside tensors."""
        return f"dependent {operators.dependent}"

    def keep_function(self):
        """aten::linear runs the sizes that no row answers."""

    untuned_rows = 0

    def take(self, graphs):
        self.method.apply = _apply_unquantized


def _apply_unquantized(layer, x, bias=None):
    return operators.linear(x, layer.weight, bias)


def _layers(model):
    """The linear layers that vLLM runs by a function that the plug-in knows."""
    found = []
    methods = (_vllm.linear_method, _vllm.embedding_method) if "bf16" in _vllm.parts else ()
    for module in model.modules():
        method = getattr(module, "quant_method", None)
        if type(method) in methods and type(module).__name__ != "VocabParallelEmbedding" and hasattr(module, "weight"):
            found.append(_Unquantized(module, method))  # a tied embedding is no linear layer either: its product runs once a step
    loaded, kernels.loaded[:] = list(kernels.loaded), []
    return found + loaded


class _Answers:
    """Which sizes a tuned row answers."""

    def __init__(self, asked, longest):
        self._asked, self._longest, self._known = asked, longest, {}

    def __call__(self, size):
        if size not in self._known:
            self._known[size] = operators.answered(size)
        return self._known[size]

    def ask(self, layers, graphs):
        """The layers' sizes in CUDA graphs, side by side."""
        sizes = dict.fromkeys(layer.size(m, bias) for layer in layers if layer.why_not() is None for bias in layer.biases() for m in graphs)
        self._known.update(zip(sizes, _side_by_side(operators.answered, sizes)))

    def any(self, layer):
        return any(self(layer.size(m, bias)) for bias in layer.biases() for m in self._asked)

    def are_invariant(self, layer):
        """Rows of a bit class answer, which answer every M."""
        return all(operators.bit_class(layer.size(1, bias)) for bias in layer.biases())

    def all(self, layer):
        """Rows or ranges answer every M that vLLM may run."""
        bias = layer.biases()[-1]
        return all(self(layer.size(m, bias)) for m in range(1, self._longest + 1))


def _why_left(layer, answers, recording):
    """Why a layer stays vLLM's, or None."""
    why = layer.why_not()
    if why is not None or (recording and not _invariant):
        return why
    if not answers.any(layer):
        return operators.no_row
    if _invariant and not answers.are_invariant(layer):
        return operators.no_bit_class(_invariant)
    # A product of a CPU takes far longer than a call of Python.
    if layer.runs_python and not _vllm.on_cpu and not answers.all(layer):
        name = getattr(layer, "stock_name", None) or type(layer.kernel).__name__
        return f"{name} is a Python function, which costs a call more than a kernel gains, and rows do not answer every M"
    return None


def _side_by_side(function, items):
    """The results of function(item). On a GPU each call may compile a kernel, on one core and without Python's lock: so as many at once as
    the process has cores, 16 at most, because each takes some hundred MB."""
    if _vllm.on_cpu:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(16, len(os.sched_getaffinity(0)))) as threads:
        return list(threads.map(function, items))


def _choose_layers(model, config, loading):
    global _calls_before
    start = time.monotonic()
    graphs, asked = _sizes(config)
    recording = operators.recording()
    answers, planned = _Answers(asked, _longest(config)), {}  # size -> its layer, M and bias
    taken, left = list(loading.taken), list(loading.left)  # (module, constants of its graph); (module, why)
    layers = _layers(model)
    if not recording:
        answers.ask(layers, graphs)
    for layer in layers:
        layer.keep_function()  # of all: a compiled graph of an earlier run may have more of our operators
        why = _why_left(layer, answers, recording)
        if why is not None:
            left.append((layer.layer, why))
            continue
        layer.take(graphs)
        taken.append((layer.layer, layer.constants()))
        if recording:  # sizes that the model does not run must not get into the file
            continue
        for bias in layer.biases():
            for m in graphs:
                size = layer.size(m, bias)
                if m <= layer.untuned_rows or answers(size):
                    planned.setdefault(size, (layer, m, bias))
    if not _vllm.on_cpu:
        _side_by_side(operators.plan, [size for size in planned if not answers(size)])
    with torch.inference_mode():
        for layer, m, bias in planned.values():
            layer.run(m, bias)
    # On a GPU no kernel is compiled while a CUDA graph is captured, and gemmtune alone can run some of these layers.
    ahead = [(layer, m) for layer in loading.ahead.values() for m in filter(layer.runs, asked)] if not _vllm.on_cpu else []
    _side_by_side(lambda one: one[0].plan(one[1]), ahead)
    plans = len(planned) + len(ahead)
    known = {id(module): name for name, module in model.named_modules()}
    names = [known.get(id(module), type(module).__name__) for module, _ in taken]
    counted, experts = _counted(taken, left)
    left = {known.get(id(module), type(module).__name__): why for module, why in left}
    if left and _refuses_others():
        name, why = next(iter(left.items()))
        raise RuntimeError(f"GEMMTUNE_INVARIANT=rows, and vLLM's kernels would run in {len(left)} of {len(left) + len(names)} layers: {name}: {why}")
    _tell_compile_cache(config, [f"{name} {constants}" for name, (_, constants) in zip(names, taken)])
    device = operators.device_of(next((parameter for parameter in model.parameters()), torch.empty(0)))
    _report.update(linear_layers=len(names) + len(left) - experts, mixtures=experts, ours=names, left=left, plans=plans, device=device)
    _calls_before = _counters()
    _watch(recording)
    if recording:
        logger.info("gemmtune %s: records the sizes of %s", gemmtune.__version__, counted)
        return
    logger.info("gemmtune %s: %s have tuned kernels; %d plans for %d CUDA-graph sizes made ahead in %.1f s (GEMMTUNE_VLLM=0 turns this off)",
                gemmtune.__version__, counted, plans, len(graphs), time.monotonic() - start)
    _say_what_is_left(left, device, has_ours=bool(names))


def _counted(taken, left):
    """("5 of 6 linear layers and 2 of 2 mixtures of experts", mixtures)."""
    kind = getattr(_vllm, "routed_experts", None) or ()
    experts, others = (sum(isinstance(module, kind) for module, _ in modules) for modules in (taken, left))
    text = f"{len(taken) - experts} of {len(taken) + len(left) - experts - others} linear layers"
    return f"{text} and {experts} of {experts + others} mixtures of experts" if experts + others else text, experts + others


def _say_what_is_left(left, device, has_ours):
    reasons = {}
    for name, why in left.items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        logger.info("gemmtune: vLLM's kernels run in %s%s: %s", ", ".join(names[:3]), f" and {len(names) - 3} more" if len(names) > 3 else "", why)
    if has_ours or not left:
        return
    for file in contexts.current(device).files():
        if file["unused"] and file["rows"] and not file["shipped"]:
            logger.info("gemmtune: %s", file["unused"])


def _tell_compile_cache(config, ours):
    """vLLM finds compiled graphs of an earlier run by a hash of its configuration, additional_config included. ours: what a graph has of each
    of our layers."""
    additional = getattr(config, "additional_config", None)
    if ours and isinstance(additional, dict):
        early = f"PyTorch's kernels let dependents start: {getattr(inductor.triton, 'enable_pdl', False)}"  # vLLM's hash has none of Inductor's settings
        additional["gemmtune"] = hashlib.sha256("\n".join([*sorted(ours), early]).encode()).hexdigest()[:16]


# ---- what was served --------------------------------------------------------------------------------------------------------------------

def _counters():
    return contexts.current(_report["device"]).counters() if _report["device"] else {}


def report():
    """What the plug-in does in this process, as data: `linear_layers` and `mixtures` of the last model, `ours` (their names), `left` (name: why),
    `plans` made ahead, and `calls` of our layers since then: `tuned`, by a tuned row, and `without_row`, which vLLM's operator ran, on its CPU backend
    and in the graphs of DeepGEMM's layers gemmtune's default kernel. A CUDA graph counts once, when it is captured."""
    return {**_report, "calls": _calls()}


def _calls():
    counters = {name: value - _calls_before.get(name, 0) for name, value in _counters().items()}
    tuned = sum(counters.get(name, 0) for name in ("exact", "range", "fine", "coarse", "bucket", "fewer_threads"))
    return {"tuned": tuned, "without_row": counters.get("untuned", 0)}


class _Watcher(threading.Thread):
    """Says what was served when calls pause, and when the process ends; writes what was recorded. vLLM kills its workers, so that neither may
    wait for their end."""

    flush_seconds, look_seconds, line_seconds = 0.05, 0.25, 10

    def __init__(self, recording):
        super().__init__(name="gemmtune-vllm", daemon=True)
        self.process, self.recording, self.said, self.said_at = os.getpid(), recording, {"tuned": 0, "without_row": 0}, 0
        atexit.register(self.say)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:  # a process of multiprocessing ends by os._exit(), after these
            util.Finalize(None, self.say, exitpriority=0)

    def run(self):
        before = None
        while True:
            time.sleep(self.flush_seconds if self.recording else self.look_seconds)
            try:
                if self.recording:
                    contexts.flush_capture()
                    continue
                calls = _calls()
                if calls == before and time.monotonic() - self.said_at > self.line_seconds:
                    self.say()
                before = calls
            except Exception as error:  # such as a context that is closed
                logger.debug("gemmtune: %s: %s", type(error).__name__, error)

    def say(self):
        """The line, if calls were made since the last one."""
        calls = _calls()
        if self.recording or calls == self.said or self.process != os.getpid():
            return
        self.said, self.said_at = calls, time.monotonic()
        logger.info("gemmtune: calls of our layers so far: %d by tuned rows, %d of sizes without a row (a CUDA graph counts once)", calls["tuned"],
                    calls["without_row"])


def _watch(recording):
    global _watcher
    if _watcher is None or _watcher.process != os.getpid():
        _watcher = _Watcher(recording)
        _watcher.start()
    _watcher.recording, _watcher.said = recording, {"tuned": 0, "without_row": 0}
