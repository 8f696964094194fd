"""The Python program of bench/first_run: PyTorch's linear layer (torch) or gemmtune's operator for it (gemmtune), in bf16.

The protocol is that of member.cpp: lines "M N K calls" and "serve SECONDS M N K ..."."""

import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from cold_weights import copies  # noqa: E402

torch.set_grad_enabled(False)
if sys.argv[1] == "torch":
    def linear(x, w):
        return torch.nn.functional.linear(x, w)
else:
    import gemmtune.torch

    def linear(x, w):
        return torch.ops.gemmtune.linear(x, w, None)


class Layer:
    def __init__(self, m, n, k):
        self.x = torch.randn(m, k).bfloat16()
        drawn = [torch.randn(n, k).bfloat16() * 0.02 for _ in range(2)]
        self.weights = [drawn[i % 2].clone() for i in range(copies(n * k * 2))]
        self.next = 0

    def call(self):
        w = self.weights[self.next % len(self.weights)]
        self.next += 1
        begin = time.perf_counter()
        linear(self.x, w)
        return (time.perf_counter() - begin) * 1e6


layers = {}
for line in sys.stdin:
    words = line.split()
    if words[0] == "serve":
        sizes = [tuple(map(int, words[i:i + 3])) for i in range(2, len(words), 3)]
        for size in sizes:
            if size not in layers:
                layers[size] = Layer(*size)
        calls, end = 0, time.monotonic() + float(words[1])
        while time.monotonic() < end:
            for size in sizes:
                layers[size].call()
                calls += 1
        print(calls, flush=True)
        continue
    m, n, k, calls = map(int, words)
    if (m, n, k) not in layers:
        layers[m, n, k] = Layer(m, n, k)
    layer = layers[m, n, k]
    layer.call()  # plans
    print(f"{statistics.median(layer.call() for _ in range(calls)):.3f}", flush=True)
