#!/usr/bin/env python3
"""torch.nn.functional.linear on the CPU as an evaluator of gemmtune (docs/evaluators.md): what `--baseline torch` compares candidates with.

It runs on the cores that it is started on, with one of PyTorch's threads a core. A sample has one uncounted call in front: the request woke
this process up, and the calls of a program follow one another."""

import ctypes
import json
import mmap
import os
import re
import signal
import sys
import time

replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever a library prints is none of the protocol's
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with gemmtune, however that ends

import torch  # pylint: disable=wrong-import-position

HUGE_PAGE = 2 << 20
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class Server:
    """One method a verb: do_<verb>(request) returns the reply's members, or None."""

    def __init__(self):
        self.buffers, self.kernels, self.rotation = {}, {}, []

    def bytes_at(self, place, size=None):
        buffer, offset = place
        return self.buffers[buffer][offset:] if size is None else self.buffers[buffer][offset:offset + size]

    def do_hello(self, request):
        if request["protocol"] != 1:
            return {"error": f"protocol {request['protocol']}, this evaluator has 1", "kind": "refused"}
        libraries = [{"name": "PyTorch", "version": torch.__version__}]
        if onednn := re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show()):
            libraries.append({"name": "PyTorch's oneDNN", "version": onednn[1]})
        threads = torch.get_num_threads()
        return {
            "protocol": 1, "family": "pytorch", "identity": f"torch.nn.functional.linear of PyTorch {torch.__version__}, {threads} threads",
            "device": {"gfx": "cpu", "cu_num": threads, "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")},
            "libraries": libraries,
            "problems": [{"operation": "a16w16", "x_types": [name], "w_types": [name], "y_types": [name], "bias": True} for name in TYPES],
        }

    def do_allocate(self, request):
        # Huge pages where there are, as gemmtune's own pools have: what differs is the kernels.
        memory = mmap.mmap(-1, request["bytes"])
        if request["bytes"] >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.buffers[request["buffer"]] = torch.frombuffer(memory, dtype=torch.uint8)

    def do_free(self, request):
        self.rotation = []
        del self.buffers[request["buffer"]]

    def do_write(self, request):
        with mmap.mmap(3, request["bytes"]) as shared:
            ctypes.memmove(self.bytes_at(request["at"]).data_ptr(), (ctypes.c_char * request["bytes"]).from_buffer(shared), request["bytes"])

    def do_read(self, request):
        with mmap.mmap(3, request["bytes"]) as shared:
            ctypes.memmove((ctypes.c_char * request["bytes"]).from_buffer(shared), self.bytes_at(request["at"]).data_ptr(), request["bytes"])

    def do_copy(self, request):
        self.bytes_at(request["to"], request["bytes"]).copy_(self.bytes_at(request["from"], request["bytes"]))

    def do_fill(self, request):
        self.bytes_at(request["at"], request["bytes"]).fill_(request["value"])

    def do_build(self, request):
        self.kernels[request["kernel"]] = request["problem"]

    def do_release(self, request):
        self.kernels.pop(request["kernel"], None)

    def tensors(self, problem, operands):
        """x, w, bias and y of a call."""
        m, n, k, dtype = problem["m"], problem["n"], problem["k"], TYPES[problem["x_type"]]

        def matrix(name, rows, columns, leading):
            size = ((rows - 1) * leading + columns) * dtype.itemsize
            return self.bytes_at(operands[name], size).view(dtype).as_strided((rows, columns), (leading, 1))

        bias = matrix("bias", 1, n, n)[0] if problem["bias"] else None
        return matrix("x", m, k, operands["ldx"]), matrix("w", n, k, k), bias, matrix("y", m, n, operands["ldy"])

    def do_run(self, request):
        x, w, bias, y = self.tensors(self.kernels[request["kernel"]], request["operands"])
        y.copy_(torch.nn.functional.linear(x, w, bias))

    def do_rotation(self, request):
        self.rotation = request["operands"]

    def do_sample(self, request):
        problem, first, count = self.kernels[request["kernel"]], request["first"], len(self.rotation)
        calls = [self.tensors(problem, self.rotation[(first + launch - 1) % count])[:3] for launch in range(request["launches"] + 1)]
        linear = torch.nn.functional.linear
        linear(*calls[0])
        begin = time.perf_counter()
        for call in calls[1:]:
            linear(*call)
        return {"microseconds": (time.perf_counter() - begin) * 1e6 / request["launches"]}


def main():
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    server = Server()
    with torch.inference_mode():
        for line in sys.stdin:
            request = json.loads(line)
            try:
                reply = getattr(server, "do_" + request["do"])(request) or {}
            except MemoryError as error:
                reply = {"error": str(error) or "out of memory", "kind": "out_of_memory"}
            except Exception as error:  # pylint: disable=broad-except
                reply = {"error": f"{type(error).__name__}: {error}"[:1000]}
            replies.write(json.dumps({"id": request["id"], **reply}) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
