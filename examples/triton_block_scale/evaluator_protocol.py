"""The evaluator's side of gemmtune's protocol (docs/evaluators.md), with buffers that are torch tensors.

A program subclasses Evaluator and calls serve(). Standard output belongs to the protocol from the import of this
module on: print() goes to standard error.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import types

import torch

# Whatever a library prints must not come between two replies.
_replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def die_with_parent():
    """This process is killed when its parent dies: a kernel that hangs would outlive it."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Refused(Exception):
    """The evaluator does not do this: a configuration that it cannot build."""


class Evaluator:
    """What a program has to say. `device` is where the buffers are."""

    device = "cuda"

    def hello(self):
        """The reply to "hello", without the protocol's version."""
        raise NotImplementedError

    def build(self, problem, config):
        """A function of operands (tensors of bytes, as views of the buffers from their offsets on) that enqueues the
        product on the current stream. Raises what it likes: the text is the candidate's reason."""
        raise NotImplementedError

    def compile_ahead(self, problem, configs):
        """A hint: these will be built next."""


def _time_on_gpu(call, rotation, first, launches):
    """Microseconds a launch, of `launches` launches in one CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in range(launches):
            call(rotation[(first + launch) % len(rotation)])
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / launches


def _time_on_cpu(call, rotation, first, launches):
    import time

    begin = time.perf_counter()
    for launch in range(launches):
        call(rotation[(first + launch) % len(rotation)])
    return (time.perf_counter() - begin) * 1e6 / launches


class _Server:
    """One method a verb: do_<verb>(request) answers the reply's members, or None."""

    def __init__(self, evaluator):
        self.evaluator = evaluator
        self.buffers = {}
        self.kernels = {}
        self.rotation = []

    def tensor(self, place, size=None):
        buffer, offset = place
        return self.buffers[buffer][offset:] if size is None else self.buffers[buffer][offset:offset + size]

    def operands(self, request):
        names = ("x", "w", "bias", "x_scale", "w_scale", "y")
        tensors = {name: self.tensor(request[name]) if name in request else None for name in names}
        return types.SimpleNamespace(**tensors, **{name: value for name, value in request.items() if name not in names})

    def synchronize(self):
        if self.evaluator.device != "cpu":
            torch.cuda.synchronize()

    def do_hello(self, request):
        if request["protocol"] != 1:
            raise Refused(f"protocol {request['protocol']}, this evaluator speaks 1")
        return {"protocol": 1, **self.evaluator.hello()}

    def do_allocate(self, request):
        self.buffers[request["buffer"]] = torch.empty(request["bytes"], dtype=torch.uint8, device=self.evaluator.device)

    def do_free(self, request):
        self.rotation = []
        del self.buffers[request["buffer"]]

    def do_write(self, request):
        size = request["bytes"]
        with mmap.mmap(3, size) as shared:
            source = torch.frombuffer(bytearray(shared[:size]), dtype=torch.uint8)
        self.tensor(request["at"], size).copy_(source)

    def do_read(self, request):
        size = request["bytes"]
        content = self.tensor(request["at"], size).cpu().numpy().tobytes()
        with mmap.mmap(3, size) as shared:
            shared[:size] = content

    def do_copy(self, request):
        self.tensor(request["to"], request["bytes"]).copy_(self.tensor(request["from"], request["bytes"]))

    def do_fill(self, request):
        self.tensor(request["at"], request["bytes"]).fill_(request["value"])

    def do_compile(self, request):
        self.evaluator.compile_ahead(types.SimpleNamespace(**request["problem"]), request["configs"])

    def do_build(self, request):
        problem = types.SimpleNamespace(**request["problem"])
        self.kernels[request["kernel"]] = self.evaluator.build(problem, request["config"])

    def do_release(self, request):
        self.kernels.pop(request["kernel"], None)

    def do_run(self, request):
        self.kernels[request["kernel"]](self.operands(request["operands"]))
        self.synchronize()

    def do_rotation(self, request):
        self.rotation = [self.operands(operands) for operands in request["operands"]]

    def do_sample(self, request):
        time = _time_on_cpu if self.evaluator.device == "cpu" else _time_on_gpu
        return {
            "microseconds":
                time(self.kernels[request["kernel"]], self.rotation, request["first"], request["launches"])
        }


def serve(evaluator):
    """Answers requests until the input ends."""
    die_with_parent()
    server = _Server(evaluator)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(server, "do_" + request["do"])(request) or {}
        except torch.cuda.OutOfMemoryError as error:
            reply = {"error": str(error).splitlines()[0], "kind": "out_of_memory"}
        except Refused as error:
            reply = {"error": str(error), "kind": "refused"}
        except getattr(torch, "AcceleratorError", ()):
            raise  # nothing of this process can use the device any more
        except Exception as error:  # of one configuration: the next may do
            reply = {"error": f"{type(error).__name__}: {error}"[:1000]}
        _replies.write(json.dumps({"id": request["id"], **reply}) + "\n")
        _replies.flush()
