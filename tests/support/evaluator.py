#!/usr/bin/env python3
"""An evaluator of gemmtune (docs/evaluators.md) without libraries: a product of bf16 in Python, times by a formula.

  evaluator.py [--hello MEMBER=JSON]… [--faults] [--microseconds JSON] [--wrong-hello] [--log FILE] [--hold FILE]

A config's time does not depend on the machine, nor its joules, which it counts with --hello energy=true: 300 W, and 100 W
with a cache modifier. With --hold it takes no time before FILE exists. With --faults there is a parameter MODE whose values are what can go
wrong.
"""

import argparse
import json
import mmap
import os
import signal
import struct
import sys
import time

FAULTS = ["right", "wrong", "refused", "broken", "crash", "exit", "hang", "chatter", "outside"]


def number_of_bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def bf16_of_number(number):
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


class Evaluator:

    def __init__(self, options):
        self.options = options
        self.buffers = {}
        self.kernels = {}
        self.rotation = []
        self.samples = 0

    def hello(self, request):
        hello = {
            "protocol": 1,
            "family": "python_gemm",
            "revision": 2,
            "identity": "python_gemm of the tests",
            "device": {"gfx": "python", "cu_num": 3, "model": "an interpreter", "memory_bytes": 1 << 26},
            "libraries": [{"name": "python", "version": sys.version.split()[0]}],
            "problems": [{"operation": "a16w16", "x_types": ["bf16"], "y_types": ["bf16"], "requires": "k % 2 == 0"}],
            "parameters": [
                {"name": "BLOCK_SIZE_M", "key": "bm", "values": [16, 32, 64, 128], "meaning": "rows"},
                {"name": "BLOCK_SIZE_N", "key": "bn", "values": [16, 32, 64, 128, 256], "meaning": "columns"},
                {"name": "num_warps", "key": "nw", "values": [1, 2, 4]},
                {"name": "cache_modifier", "key": "cm", "values": ["", ".cg"]},
            ],
            "rules": [
                {"name": "registers", "refuses": "BLOCK_SIZE_M * BLOCK_SIZE_N > 8192 * num_warps"},
                {"name": "columns", "refuses": "BLOCK_SIZE_N > 16 and BLOCK_SIZE_N > 2 * n", "kind": "search"},
            ],
            "defaults": {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "num_warps": 4, "cache_modifier": ""},
            "probe": {"m": 4, "n": 8, "k": 16},
        }
        if self.options.faults:
            hello["parameters"].append({"name": "MODE", "values": FAULTS})
            hello["defaults"]["MODE"] = "right"
        for change in self.options.hello:
            member, value = change.split("=", 1)
            hello[member] = json.loads(value)
        return hello

    def at(self, place, size):
        buffer, offset = place
        return memoryview(self.buffers[buffer])[offset:offset + size]

    def allocate(self, request):
        self.buffers[request["buffer"]] = bytearray(request["bytes"])

    def free(self, request):
        del self.buffers[request["buffer"]]

    def write(self, request):
        with mmap.mmap(3, request["bytes"]) as shared:
            self.at(request["at"], request["bytes"])[:] = shared[:request["bytes"]]

    def read(self, request):
        with mmap.mmap(3, request["bytes"]) as shared:
            shared[:request["bytes"]] = bytes(self.at(request["at"], request["bytes"]))

    def copy(self, request):
        self.at(request["to"], request["bytes"])[:] = bytes(self.at(request["from"], request["bytes"]))

    def fill(self, request):
        self.at(request["at"], request["bytes"])[:] = bytes([request["value"]]) * request["bytes"]

    def build(self, request):
        mode = request["config"].get("MODE")
        if mode == "refused":
            return {"error": "MODE refused: this is not for us", "kind": "refused"}
        if mode == "broken":
            raise RuntimeError("the compiler did not like it")
        self.kernels[request["kernel"]] = request

    def release(self, request):
        del self.kernels[request["kernel"]]

    def run(self, request):
        kernel = self.kernels[request["kernel"]]
        self.fail(kernel["config"].get("MODE"))
        problem, operands = kernel["problem"], request["operands"]
        m, n, k = problem["m"], problem["n"], problem["k"]

        def rows(place, count, step):
            size = (step * (count - 1) + k) * 2
            bits = struct.unpack(f"<{size // 2}H", self.at(place, size))
            return [[number_of_bf16(value) for value in bits[step * row:step * row + k]] for row in range(count)]

        weights = rows(operands["w"], n, k)
        for row, x in enumerate(rows(operands["x"], m, operands["ldx"])):
            y = [bf16_of_number(sum(a * b for a, b in zip(x, w))) for w in weights]
            if kernel["config"].get("MODE") == "wrong" and row == m - 1:
                y[-1] ^= 0x0100
            buffer, offset = operands["y"]
            struct.pack_into(f"<{n}H", self.buffers[buffer], offset + row * operands["ldy"] * 2, *y)
        if kernel["config"].get("MODE") == "outside":
            self.buffers[buffer][offset - 3] ^= 0xFF

    def fail(self, mode):
        if mode == "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode == "exit":
            sys.exit(7)
        if mode == "chatter":
            print("progress: 50 %", flush=True)
        if mode == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(1)

    def rotate(self, request):
        self.rotation = request["operands"]

    def energy(self, request):
        assert request["seconds"] >= 1
        microseconds = self.sample(request)["microseconds"]
        modifier = self.kernels[request["kernel"]]["config"]["cache_modifier"]
        return {"microseconds": microseconds, "joules": microseconds * 1e-6 * (100 if modifier else 300)}

    def sample(self, request):
        while self.options.hold and not os.path.exists(self.options.hold):
            time.sleep(0.01)
        kernel = self.kernels[request["kernel"]]
        assert 0 <= request["first"] < len(self.rotation) and request["launches"] > 0
        config, problem = kernel["config"], kernel["problem"]
        waste = -problem["n"] % config["BLOCK_SIZE_N"] + -problem["m"] % config["BLOCK_SIZE_M"]
        microseconds = (20 + waste / 8 + 40 / config["num_warps"] + 300 / config["BLOCK_SIZE_N"] +
                        (2 if config["cache_modifier"] else 0))
        self.samples += 1
        if self.options.microseconds is not None:
            return {"microseconds": self.options.microseconds}
        return {"microseconds": microseconds * (1 + 1e-4 * (self.samples * 7919 % 11 - 5))}

    verbs = {"rotation": rotate}

    def answer(self, request):
        verb = self.verbs.get(request["do"], getattr(Evaluator, request["do"], None))
        return verb(self, request) or {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hello", action="append", default=[])
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--microseconds", type=json.loads)
    parser.add_argument("--log")
    parser.add_argument("--hold")
    options = parser.parse_args()
    evaluator = Evaluator(options)
    for line in sys.stdin:
        request = json.loads(line)
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                log.write(line)
        try:
            reply = evaluator.answer(request)
        except RuntimeError as error:
            reply = {"error": str(error)}
        print(json.dumps({"id": request["id"], **reply}), flush=True)


main()
