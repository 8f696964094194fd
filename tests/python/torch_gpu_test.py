"""The package on a GPU: operators, streams, graphs, compile, patch, capture and tune, DLPack of cupy and JAX, threads.

tools/test_python_gpu.sh runs it. GEMMTUNE_TEST_BUDGET: seconds of each tuning (40)."""

import os
import sys
import tempfile
import threading
import unittest
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
try:
    import torch
    if not torch.cuda.is_available():
        raise ImportError("PyTorch finds no GPU")
except ImportError as reason:
    print(f"SKIPPED: {reason}")
    sys.exit(77)

from torch.nn import functional
from torch_models import Fp8Linear, GatedMlp, SmallLlama, close, random_fp8

import gemmtune
import gemmtune.torch
from gemmtune import errors

ops = torch.ops.gemmtune
BUDGET = float(os.environ.get("GEMMTUNE_TEST_BUDGET", "40"))
torch.manual_seed(1)


def on_gpu(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def counters():
    return gemmtune.contexts.current(("cuda", 0)).counters()


class Operators(unittest.TestCase):
    def test_linear_of_each_type(self):
        for dtype, relative in ((torch.bfloat16, 1e-2), (torch.float16, 2e-3), (torch.float32, 1e-4)):
            for m in (1, 17, 200):
                x, w, bias = on_gpu(m, 256, dtype=dtype), on_gpu(320, 256, dtype=dtype), on_gpu(320, dtype=dtype)
                exact = x.double() @ w.double().T
                close(self, ops.linear(x, w), exact, relative)
                close(self, gemmtune.linear(x, w, bias), exact + bias.double(), relative)
                wide = torch.zeros(m, 328, dtype=dtype, device="cuda")
                ops.linear_out(x, w, out=wide[:, :320])
                close(self, wide[:, :320], exact, relative)
                self.assertEqual(wide[:, 320:].abs().max().item(), 0)

    def test_forms(self):
        x, w = on_gpu(2, 3, 128), on_gpu(64, 128)
        exact = x.double() @ w.double().T
        close(self, ops.linear(x, w), exact, 1e-2)
        close(self, ops.linear(x[:, 0], w), exact[:, 0], 1e-2)
        close(self, ops.linear(x.view(6, 128).t().contiguous().t(), w.t().contiguous().t()), exact.view(6, 64), 1e-2)
        self.assertEqual(ops.linear(x[:, :0], w).shape, (2, 0, 64))
        one = torch.tensor([0.5], device="cuda")
        x8, w8 = random_fp8((16, 256), "cuda"), random_fp8((128, 256), "cuda")
        close(self, gemmtune.linear(x8, w8, x_scale=one, w_scale=one), x8.double() @ w8.double().T / 4, 1e-2)

    def test_operands_as_on_a_cpu(self):
        x, w, bias = on_gpu(6, 64), on_gpu(32, 64), on_gpu(32)
        for arguments in ((x[:, :0], w[:, :0], None), (x[:, :0], w[:, :0], bias), (x, w[:0], None), (x[:0], w, bias)):
            torch.testing.assert_close(ops.linear(*arguments), functional.linear(*arguments), rtol=0, atol=0)
        empty = torch.empty(6, 0, device="cuda").to(torch.float8_e4m3fn), torch.empty(32, 0, device="cuda").to(torch.float8_e4m3fn)
        y = gemmtune.a8w8(*empty, torch.ones(6, device="cuda"), torch.ones(32, device="cuda"), bias)
        torch.testing.assert_close(y, bias.expand(6, 32), rtol=0, atol=0)
        room = torch.cat([x, torch.zeros(6, 32, device="cuda").bfloat16()], 1)
        ops.linear_out(room[:, :64], w, out=room[:, 64:])  # rows take turns
        close(self, room[:, 64:], x.double() @ w.double().T, 1e-2)
        with self.assertRaisesRegex(RuntimeError, "y overlaps x in memory"):
            ops.linear_out(room[:, :64], w, out=room[:, 56:88])
        scales = torch.rand(6, 3, device="cuda"), torch.rand(1, 3, device="cuda")
        x8, w8 = random_fp8((6, 384), "cuda"), random_fp8((32, 384), "cuda")
        y = gemmtune.a8w8_blockscale(x8, w8, *scales)
        torch.testing.assert_close(gemmtune.a8w8_blockscale(x8, w8, scales[0].t().contiguous().t(), scales[1]), y, rtol=0, atol=0)
        with self.assertRaisesRegex(errors.InvalidArgument, r"x_scale has shape \[3, 6\], expected \[6, 3\]"):
            gemmtune.a8w8_blockscale(x8, w8, scales[0].view(3, 6), scales[1])

    def test_silu_and_mul(self):
        for dtype, relative in ((torch.bfloat16, 4e-3), (torch.float32, 1e-6)):
            for rows, columns in ((1, 14336), (8, 12288), (16, 100), (3, 4099), (700, 1536)):
                gate, up = on_gpu(rows, 2 * columns, dtype=dtype).chunk(2, 1)
                exact = functional.silu(gate.double()) * up.double()
                close(self, ops.silu_and_mul(gate, up), exact, relative)
                wide = torch.zeros(rows, columns + 3, dtype=dtype, device="cuda")
                ops.silu_and_mul_out(gate, up.clone(), out=wide[:, :columns])
                close(self, wide[:, :columns], exact, relative)
                self.assertEqual(wide[:, columns:].abs().max().item(), 0)
        with self.assertRaisesRegex(errors.InvalidArgument, "up is on another device than gate"):
            gemmtune.torch.silu_and_mul(gate, up.cpu())

    def test_errors(self):
        x, w = on_gpu(2, 32), on_gpu(8, 32)
        with self.assertRaisesRegex(errors.InvalidArgument, "w is on another device than x"):
            gemmtune.linear(x, w.cpu())
        with self.assertRaisesRegex(errors.WrongType, "dtype of w is f16, expected the type of x, bf16"):
            gemmtune.linear(x, w.half())
        with self.assertRaisesRegex(errors.NeedsGradient, "gemmtune computes no gradients"):
            gemmtune.linear(x.requires_grad_(), w)

    def test_current_stream(self):
        w = on_gpu(512, 512) / 16
        x = on_gpu(64, 512)
        slow = on_gpu(4096, 4096)
        expected = functional.linear(functional.linear(x, w), w)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.inference_mode():
            for _ in range(20):
                for _ in range(3):
                    torch.mm(slow, slow)
                first = torch.zeros(64, 512, dtype=x.dtype, device="cuda")
                first += ops.linear(x, w)  # wrong if it runs before or beside the stream's other work
                second = ops.linear(first, w)
        stream.synchronize()
        close(self, second, expected, 2e-2)


class Graphs(unittest.TestCase):
    def capture(self, function, stream=None):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            result = function()
        return graph, result

    def test_graphs_on_two_streams(self):
        w, static = on_gpu(384, 640), [on_gpu(m, 640) for m in (1, 48)]
        with torch.inference_mode():
            for x in static:
                ops.linear(x, w)
            before = counters()["plans_made"]
            streams = [torch.cuda.Stream() for _ in static]
            graphs = [self.capture(lambda x=x: functional.relu(ops.linear(x, w)), stream) for x, stream in zip(static, streams)]
            self.assertEqual(counters()["plans_made"], before)
            torch.cuda.synchronize()
            free = torch.cuda.mem_get_info()[0]
            for turn in range(50):
                for x in static:
                    x.copy_(torch.randn_like(x))
                torch.cuda.synchronize()
                for (graph, _), stream in zip(graphs, streams):
                    with torch.cuda.stream(stream):
                        graph.replay()
                torch.cuda.synchronize()
                for x, (_, y) in zip(static, graphs):
                    close(self, y, functional.relu(x.double() @ w.double().T), 1e-2)
            self.assertLess(free - torch.cuda.mem_get_info()[0], 64 << 20)

    def test_a_size_without_a_plan_is_refused(self):
        x, w = on_gpu(5, 208), on_gpu(176, 208)
        with torch.inference_mode():
            with self.assertRaisesRegex(errors.NotPlanned, r"no plan of a16w16 m=5 n=176 k=208 .*gemmtune.torch.warm"):
                self.capture(lambda: gemmtune.linear(x, w))
            ops.linear(x, w)
            graph, y = self.capture(lambda: gemmtune.linear(x, w))
            graph.replay()
            close(self, y, x.double() @ w.double().T, 1e-2)

    def test_dependent_launches(self):
        """Layers of one input, whose second one may start while the first one runs, give the same bits as plain launches."""
        device = gemmtune.contexts.current(("cuda", 0)).device()
        if device["gfx"] != "sm_90":
            self.skipTest(f"skinny does not run on {device['gfx']}")
        names = {1: "skinny_r1_bm64_bk64_csk4_smem50_pdl", 48: "wgmma_r1_swap0_bm64_bn64_wg1_pp0_bk128_cm1_cn1_csk2_smem226_pdl"}
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "tuned.csv"
            table.write_text("gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,pdl_kernelName,pdl_us\n"
                             + "".join(f"sm_90,{device['cu_num']},{m},4096,4096,False,torch.bfloat16,torch.bfloat16,False,False,{name[:6].strip('_')},"
                                       f"0,0,9.0,{name}0,0.0,{name}1,8.0\n" for m, name in names.items()))
            context = gemmtune.use(table, "cuda:0")
        self.addCleanup(gemmtune.use, None, "cuda:0")
        problem = gemmtune.operations.problem(1, 4096, 4096, operation="a16w16", x_type="bf16")
        self.assertEqual(context.plan(problem)["kernelName"], names[1] + "0")
        problem.constant_weights = problem.predecessor_triggers = 1
        self.assertEqual(context.plan(problem)["kernelName"], names[1] + "1")
        layers = torch.nn.ModuleList(torch.nn.Linear(4096, 4096, bias=False, dtype=torch.bfloat16, device="cuda") for _ in range(4))
        with torch.inference_mode():
            for m in names:
                x, results = on_gpu(m, 4096), []
                for dependent in (False, True):
                    with gemmtune.torch.patch(layers, pack=False, dependent=dependent):
                        def chain():
                            y = functional.silu(layers[0](x)) * layers[1](x)
                            return layers[3](layers[2](y))

                        chain()
                        graph, y = self.capture(chain)
                        for _ in range(50):
                            y.zero_()
                            graph.replay()
                        results.append(y.clone())
                torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


    def test_a_gated_layer(self):
        """In a graph, where each kernel may start while the one in front of it runs, the same bits as one call behind the other."""
        x = on_gpu(8, 512, dtype=torch.float16)
        with torch.inference_mode():
            with self.assertRaisesRegex(errors.NotPlanned, "silu_and_mul of f16 has not run on cuda:0 yet.*gemmtune.torch.warm"):
                self.capture(lambda: gemmtune.torch.silu_and_mul(x, x))
            for merge in (False, True):
                mlp = GatedMlp(512, 1536).half().cuda()
                expected = mlp(x)
                with gemmtune.torch.patch(mlp, merge=merge, dependent=True) as patched:
                    self.assertEqual(patched.gated, [""])
                    gemmtune.torch.warm(mlp, [8])
                    once = mlp(x)
                    close(self, once, expected, 4e-3)
                    graph, y = self.capture(lambda: mlp(x) + mlp(x * 1))
                    for _ in range(20):
                        y.zero_()
                        graph.replay()
                        torch.testing.assert_close(y, once + once, rtol=0, atol=0)
                    compiled = torch.compile(mlp, fullgraph=True)
                    close(self, compiled(x), expected, 4e-3)
                    torch._dynamo.reset()


class Models(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.addCleanup(gemmtune.use, None, "cuda:0")
        self.model = SmallLlama(512, 8, 4, 1024, 2, 1024).bfloat16().cuda().eval()
        self.tokens = torch.randint(0, 1024, (1, 24), device="cuda")
        self.enterContext(torch.inference_mode())
        self.expected = self.model(self.tokens)

    def test_patch_compile_undo(self):
        with gemmtune.torch.patch(self.model) as patched:
            self.assertEqual(len(patched), 15)
            close(self, self.model(self.tokens), self.expected, 3e-2)
            for mode in ("default", "reduce-overhead"):
                gemmtune.torch.warm(self.model, [24])
                compiled = torch.compile(self.model, fullgraph=True, mode=mode)
                for _ in range(4):
                    close(self, compiled(self.tokens), self.expected, 3e-2)
                torch._dynamo.reset()
        torch.testing.assert_close(self.model(self.tokens), self.expected, rtol=0, atol=0)

    def test_merged_layers_in_a_graph_and_compiled(self):
        with gemmtune.torch.patch(self.model, merge=[("k", "v"), ("gate", "up")]) as patched:
            self.assertEqual(len(patched.merged), 4)
            close(self, self.model(self.tokens), self.expected, 3e-2)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = self.model(self.tokens)
            for _ in range(3):
                y.zero_()
                graph.replay()
                close(self, y, self.expected, 3e-2)
            compiled = torch.compile(self.model, fullgraph=True)
            close(self, compiled(self.tokens), self.expected, 3e-2)
            torch._dynamo.reset()
        torch.testing.assert_close(self.model(self.tokens), self.expected, rtol=2e-2, atol=2e-2)

    @torch.inference_mode(False)
    @torch.no_grad()
    def test_a_patched_model_moves_and_changes(self):
        layers = torch.nn.ModuleDict({name: torch.nn.Linear(512, 256).bfloat16() for name in ("wq", "wk", "other")})
        x = torch.randn(3, 512).bfloat16()

        def run(x):
            return [layer(x) for layer in layers.values()]

        def check(run, x):
            for layer, y in zip(layers.values(), run(x)):
                close(self, y, functional.linear(x.double(), layer.weight.double(), layer.bias.double()), 1e-2)

        with gemmtune.torch.patch(layers, merge=[("wq", "wk")]) as patched:
            for device in ("cpu", "cuda", "cpu", "cuda"):
                layers.to(device)
                check(run, x.to(device))
                layers["wk"].weight.mul_(3)
                layers["other"].weight.data += 1
                patched.refresh()
                check(run, x.to(device))
            compiled, x = torch.compile(run, fullgraph=True, mode="reduce-overhead"), x.to("cuda")
            for change in (lambda layer: None, lambda layer: layer.weight.mul_(3),
                           lambda layer: layer.load_state_dict({name: torch.randn_like(value) for name, value in layer.state_dict().items()}, assign=True)):
                for layer in layers.values():
                    change(layer)
                for _ in range(4):
                    check(compiled, x)
            torch._dynamo.reset()

    def test_derivatives_are_refused(self):
        x, w = on_gpu(3, 64), on_gpu(8, 64)
        with torch.inference_mode(False), self.assertRaises(errors.NeedsGradient):
            torch.func.grad(lambda w: ops.linear(x.clone(), w).sum())(w.clone())
        with torch.inference_mode(False), self.assertRaises(errors.NeedsGradient):
            torch.func.jvp(lambda w: ops.linear(x.clone(), w), (w.clone(),), (w.clone(),))

    def test_max_autotune_times_our_kernel(self):
        from torch._inductor import config
        gemmtune.torch.register_inductor()
        self.addCleanup(config.external_matmul.clear)
        x, w = on_gpu(64, 512), on_gpu(512, 768)
        before = counters()
        with config.patch(force_disable_caches=True):
            product = torch.compile(lambda a, b: a @ b, fullgraph=True, mode="max-autotune-no-cudagraphs")(x, w)
        close(self, product, x.double() @ w.double(), 1e-2)
        self.assertGreater(sum(counters().values()), sum(before.values()))

    def test_capture_tune_use(self):
        for packed in (False, True):
            file, table = self.folder / f"shapes{packed}.csv", self.folder / f"tuned{packed}.csv"
            with gemmtune.torch.capture(file, packed=packed):
                self.model(self.tokens[:, :1])
            done = gemmtune.tune(file, table, backend="cuda", budget=BUDGET)
            states = [problem["state"] for problem in done["problems"]]
            self.assertTrue(set(states) <= {"tuned", "default"}, states)
            context = gemmtune.use(table, "cuda:0")
            one = self.model(self.tokens[:, :1])
            with gemmtune.torch.patch(self.model) as patched:
                self.assertEqual(bool(patched.packed), packed)
                gemmtune.torch.warm(self.model, [1])
                before = context.counters()
                close(self, self.model(self.tokens[:, :1]), one, 3e-2)
                after = context.counters()
                self.assertEqual((after["exact"] - before["exact"], after["plans_made"]), (15, before["plans_made"]))
                graph = torch.cuda.CUDAGraph()
                token = self.tokens[:, :1].clone()
                with torch.cuda.graph(graph):
                    y = self.model(token)
                graph.replay()
                close(self, y, one, 3e-2)
                if packed:
                    weight = gemmtune.pack(self.model.head.weight)
                    self.assertTrue(torch.equal(gemmtune.unpack(weight), self.model.head.weight))

    def test_scaled_fp8_layer(self):
        layer = Fp8Linear(torch.randn(256, 512), "tensor", torch.randn(256).bfloat16()).cuda()
        x = on_gpu(9, 512)
        expected = layer(x)
        with gemmtune.torch.patch(torch.nn.Sequential(layer)):
            close(self, layer(x), expected, 6e-2)
        blocks = Fp8Linear(torch.randn(256, 512), "blocks").cuda()
        expected = blocks(x)
        with gemmtune.torch.patch(torch.nn.Sequential(blocks)) as patched:
            self.assertEqual(len(patched.layers) + len(patched.skipped), 1)  # as this GPU's kernels can
            close(self, blocks(x), expected, 6e-2)

    def test_a_table_of_a_cpu_is_refused(self):
        file = self.folder / "cpu.csv"
        file.write_text("gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName\n"
                        "x86-avx2,4,1,64,64,False,torch.bfloat16,torch.bfloat16,False,False,skinny,0,0,1.0,skinny_r1\n")
        with self.assertRaisesRegex(errors.OtherDevice, "is not used: 1 row of x86-avx2/4, none of this device, sm_"):
            gemmtune.use(file, "cuda:0")


class OtherLibraries(unittest.TestCase):
    def test_cupy(self):
        try:
            import cupy
        except ImportError:
            self.skipTest("no cupy")
        x, w = (cupy.random.standard_normal(shape, dtype=cupy.float32).astype(cupy.float16) for shape in ((4, 256), (96, 256)))
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            y = gemmtune.linear(x + 0, w)
            self.assertIsInstance(y, cupy.ndarray)
            error = float(abs(y.astype(float) - x.astype(float) @ w.astype(float).T).max())
        self.assertLess(error, 0.1)

    def test_jax(self):
        try:
            import jax
            import jax.numpy as jnp
            jax.devices("cuda")
        except (ImportError, RuntimeError) as reason:
            self.skipTest(f"no JAX with CUDA: {reason}")
        x = jax.random.normal(jax.random.key(1), (4, 256), jnp.bfloat16)
        w = jax.random.normal(jax.random.key(2), (96, 256), jnp.bfloat16)
        y = gemmtune.linear(x, w)
        self.assertEqual((y.shape, y.dtype), ((4, 96), jnp.bfloat16))
        expected = x.astype(jnp.float32) @ w.astype(jnp.float32).T
        self.assertLess(float(jnp.abs(y.astype(jnp.float32) - expected).max()), 0.5)


class Threads(unittest.TestCase):
    def test_calls_with_reloads(self):
        problems = [(on_gpu(m, 256), on_gpu(128, 256)) for m in (1, 8, 33)]
        exact = [functional.linear(x, w).float() for x, w in problems]
        torch.cuda.synchronize()
        wrong = []

        def work(calls):
            with torch.inference_mode(), torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(calls):
                    x, w = problems[turn % 3]
                    y = ops.linear(x, w)
                    if turn % 200 == 0 and (y.float() - exact[turn % 3]).abs().max().item() > 0.6:
                        wrong.append(turn)

        def run(calls):
            threads = [threading.Thread(target=work, args=(calls,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            reloads = 0
            while any(thread.is_alive() for thread in threads):
                gemmtune.reload()
                reloads += 1
                threads[0].join(0.02)
            torch.cuda.synchronize()
            return reloads

        run(500)
        free = torch.cuda.mem_get_info()[0]
        self.assertGreater(run(12500), 5)
        self.assertEqual(wrong, [])
        self.assertLess(free - torch.cuda.mem_get_info()[0], 256 << 20)


if __name__ == "__main__":
    unittest.main()
