"""gemmtune_vllm against a double of vLLM (vllm_double.py), on a CPU: which layers are taken, which kernel runs, results."""

import importlib.util
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "gemmtune_vllm"
sys.path.insert(0, str(PACKAGE))

import needs_torch  # noqa: F401, I001: the first of these
import gemmtune_vllm
import torch
import vllm_double
import vllm_gpu_mixtures_double
from torch import nn
from torch_models import close

import gemmtune

N, K = 128, 256
KINDS = (None, "tensor", "token", "block")
COUNTER = {"tensor": "cutlass", "token": "cutlass", "block": "deep_gemm"}  # of bf16 it is aten::linear, which C++ calls
TABLES = {}


def setUpModule():
    """Tuned files with rows of each operation. M = 60 pads to 64, where nobody measured it."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    sizes = [{"M": m, "N": N, "K": K} for m in (3, 4, 64)]
    plain = {"dtype": "bf16", "outdtype": "bf16", "scaleAB": False, "bpreshuffle": False}
    kinds = ({"bias": False}, {"bias": True}, {"bias": False, "dtype": "f8_e4m3fn", "scaleAB": True})
    shapes = {"a16w16": [{**size, **plain, **kind} for size in sizes for kind in kinds],
              "a8w8": [{**size, "q_dtype_w": "fp8"} for size in sizes], "a8w8_blockscale": sizes}
    for operation, rows in shapes.items():
        TABLES[operation] = str(Path(folder.name) / f"{operation}.csv")
        gemmtune.tune(rows, TABLES[operation], op=operation, backend="cpu", search="random", iters=2, confirmations=1)


class Process(unittest.TestCase):
    """A process of vLLM."""

    def start(self, environment=(), **double):
        """A process of vLLM whose plug-ins are loaded; returns the double and the log."""
        self.vllm = vllm_double.install(**double)
        gemmtune_vllm._registered = False
        with mock.patch.dict(os.environ, dict(environment)), self.assertLogs("vllm.gemmtune", logging.DEBUG) as log:
            logging.getLogger("vllm.gemmtune").debug("started")
            gemmtune_vllm.register()
            gemmtune_vllm.register()
        self.log = [record.getMessage() for record in log.records[1:]]
        return self.vllm

    def load(self, make, **sizes):
        """The model that vLLM loads; its configuration is in self.config, the log line in self.line."""
        self.config = vllm_double.configuration(**sizes)
        with self.assertLogs("vllm.gemmtune", logging.DEBUG) as log:
            logging.getLogger("vllm.gemmtune").debug("started")
            model = self.vllm.loader().load_model(vllm_config=self.config, model_config=make)
        self.lines = [record.getMessage() for record in log.records]
        self.line = next((line for line in self.lines if line.startswith(f"gemmtune {gemmtune.__version__}: ")), self.lines[-1])
        return model


class Plugin(Process):
    def setUp(self):
        self.addCleanup(gemmtune.use)
        self.enterContext(torch.inference_mode())
        self.context = gemmtune.use(TABLES)

    def used(self):
        counters = self.context.counters()
        return counters["exact"] + counters["coarse"] + counters["fine"] + counters["range"]

    def test_each_kind_runs_ours_where_a_row_answers(self):
        for kind in KINDS:
            for bias in (False, True) if kind in (None, "block") else (False,):
                with self.subTest(kind=kind, bias=bias):
                    vllm = self.start()
                    self.assertEqual(self.log, [])
                    layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K, bias, kind)))[0]
                    self.assertRegex(self.line, r"^gemmtune \S+: 1 of 1 linear layers have tuned kernels; .* 3 CUDA-graph sizes")
                    counter = COUNTER.get(kind)
                    for m, ours in ((4, True), (3, True), (16, False), (33, False), (60, False)):
                        x = torch.randn(m, K).bfloat16()
                        calls, used, unused = dict(vllm.calls), self.used(), self.context.counters()["untuned"]
                        y = layer(x)
                        self.assertEqual(y.dtype, torch.bfloat16)
                        exact = x.double() @ layer.exact.t() + (layer.bias.double() if bias else 0)
                        close(self, y, exact, 1e-2 if kind is None else 6e-2)
                        calls = {name: vllm.calls[name] - count for name, count in calls.items() if vllm.calls[name] != count}
                        in_graphs = kind == "block" and m <= 16  # gemmtune's default kernel runs what no row answers
                        self.assertEqual(calls, {} if ours or in_graphs or kind is None else {counter: 1}, m)
                        self.assertEqual((self.used() - used, self.context.counters()["untuned"] - unused), (1, 0) if ours else (0, 1), m)

    def test_deep_gemm_with_and_without_scales_of_e8m0(self):
        """Both are an operator that C++ calls; scales of x lie row by row in layers that are ours, so that none is copied. DeepGEMM would copy
        them: it runs no size of a CUDA graph (1, 4, 16), with a row or without."""
        for e8m0 in (True, False):
            vllm = self.start(e8m0=e8m0)
            model = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind="block"), vllm.Linear(N, 128, kind="block")))
            self.assertIn("1 of 2 linear layers", self.line)
            self.assertEqual([layer.quant_method.fp8_linear.quant_fp8.column_major_scales for layer in model], [False, True])
            self.assertEqual([layer.quant_method.fp8_linear.quant_fp8.tma_aligned_scales for layer in model], [False, True])
            for layer, m, ours in ((model[0], 4, True), (model[0], 16, True), (model[0], 17, False), (model[1], 4, False)):
                x = torch.randn(m, layer.weight.shape[1]).bfloat16()
                calls = vllm.calls["deep_gemm"]
                close(self, layer(x), x.double() @ layer.exact.t(), 6e-2)
                self.assertEqual(vllm.calls["deep_gemm"] - calls, 0 if ours else 1)

    def test_dependent_launches(self):
        """With the variable the kernels that PyTorch compiles let ours start early, unless the user says otherwise, and graphs are others."""
        from torch._inductor import config
        asked, hashes = {"GEMMTUNE_VLLM_DEPENDENT_LAUNCHES": "1"}, set()
        self.addCleanup(self.start)  # without it
        for environment, platform, expected in (({}, "CUDA", False), (asked, "CPU", False), (asked | {"TORCHINDUCTOR_ENABLE_PDL": "0"}, "CUDA", False),
                                                (asked, "CUDA", True)):
            with mock.patch.object(config.triton, "enable_pdl", False):
                vllm = self.start(environment, platform=platform)
                self.assertEqual(config.triton.enable_pdl, expected, (environment, platform))
                layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind="token")))[0]
            if platform == "CUDA":
                hashes.add(self.config.additional_config["gemmtune"])
            x = torch.randn(4, K).bfloat16()
            close(self, layer(x), x.double() @ layer.exact.t(), 6e-2)
        self.start()
        with mock.patch.object(config.triton, "enable_pdl", True):  # TORCHINDUCTOR_ENABLE_PDL=1
            self.load(lambda: nn.Sequential(self.vllm.Linear(N, K, kind="token")))
        hashes.add(self.config.additional_config["gemmtune"])
        self.assertEqual(len(hashes), 4)

    def test_leading_dimensions_and_no_rows(self):
        for kind in KINDS:
            vllm = self.start()
            layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind=kind)))[0]
            x = torch.randn(2, 2, K).bfloat16()
            close(self, layer(x), x.double() @ layer.exact.t(), 6e-2)
            self.assertEqual(set(vllm.calls.values()), {0})
            if kind is None:
                self.assertEqual(layer(x[:0]).shape, (0, 2, N))

    def test_padded_rows_of_a_kernel(self):
        """vLLM pads x to 17 rows and not its scales, where nothing is compiled."""
        for platform in ("CPU", "CUDA"):
            vllm = self.start(padding=17, platform=platform)
            for kind in ("tensor", "token"):
                layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind=kind)))[0]
                for m in (4, 3, 16, 20):
                    x = torch.randn(m, K).bfloat16()
                    calls = vllm.calls["torch"]
                    y = layer(x)
                    self.assertEqual(y.shape, (m, N))
                    close(self, y, x.double() @ layer.exact.t(), 6e-2)
                    ours = platform == "CPU" and m <= 4
                    self.assertEqual(vllm.calls["torch"] - calls, 0 if ours else 1, (platform, kind, m))
            # A product of a GPU is too short for a call of Python.
            self.assertIn("1 of 1 linear" if platform == "CPU" else "0 of 1 linear", self.line)
            if platform == "CUDA":
                self.assertRegex(self.lines[-1], r"^gemmtune: vLLM's kernels run in 0: ChannelWiseTorch\w+ is a Python function")

    def test_python_functions_are_ours_where_every_size_is_tuned(self):
        vllm = self.start(padding=17)
        layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind="token")), sizes=(3, 4), tokens=4)[0]
        self.assertIn("0 of 1", self.line)  # 1 and 2 have no row
        path = TABLES["a8w8"] + ".all.csv"
        gemmtune.tune([{"M": m, "N": N, "K": K, "q_dtype_w": "fp8"} for m in (1, 2, 3, 4)], path, op="a8w8", backend="cpu", search="random", iters=2,
                      confirmations=1)
        self.context = gemmtune.use({"a8w8": path})
        layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind="token")), sizes=(3, 4), tokens=4)[0]
        self.assertIn("1 of 1", self.line)
        x = torch.randn(4, K).bfloat16()
        close(self, layer(x), x.double() @ layer.exact.t(), 6e-2)
        self.assertEqual(vllm.calls["torch"], 0)
        x = torch.randn(64, K).bfloat16()  # more than vLLM said
        close(self, layer(x), x.double() @ layer.exact.t(), 6e-2)
        self.assertEqual(vllm.calls["torch"], 1)

    def test_the_backend_that_a_user_chose_stays(self):
        vllm = self.start(linear_backend="flashinfer_cutedsl")
        model = self.load(lambda: nn.Sequential(vllm.Linear(N, K)))
        self.assertIn("0 of 1 linear layers", self.line)
        self.assertIn("0: flashinfer_gemm is a Python function", self.lines[-1])
        model(torch.randn(4, K).bfloat16())
        self.assertEqual(vllm.calls["gemm"], 1)
        vllm = self.start(keeps_function=False)  # vLLM 0.24
        self.load(lambda: nn.Sequential(vllm.Linear(N, K)))
        self.assertIn("1 of 1 linear layers", self.line)

    def test_vllm_reorders_kernels_by_device(self):
        for prefers_humming in (False, True):
            vllm = self.start(prefers_humming=prefers_humming)
            vllm.envs.VLLM_DISABLED_KERNELS += ["CutlassFP8ScaledMMLinearKernel", "ChannelWiseTorchFP8ScaledMMLinearKernel"]
            kernel = vllm.Linear(N, K, kind="token").quant_method.fp8_linear
            self.assertEqual(type(kernel).__name__, f"{'Humming' if prefers_humming else 'Marlin'}FP8ScaledMMLinearKernel")

    def test_equal_shapes_keep_their_weights(self):
        """Layers of one shape, in each backend: each computes with its own weight in every size."""
        for platform in ("CUDA", "CPU"):
            for rows in (True, False):
                self.context = gemmtune.use(TABLES if rows else {})
                vllm = self.start(platform=platform)
                model = self.load(lambda: nn.ModuleList([vllm.Linear(N, K, seed=seed) for seed in range(2)]))
                self.assertIn(f"{2 if rows else 0} of 2 linear layers", self.line)
                for layer in model:
                    for m in (1, 4, 16, 40):
                        x = torch.randn(m, K).bfloat16()
                        close(self, layer(x), x.double() @ layer.exact.t(), 1e-2)

    def test_two_heads_of_one_shape_keep_their_weights(self):
        """A head keeps its plain weight beside the packed one, from which the CPU backend computes."""
        class ParallelLMHead(nn.Module):
            def __init__(self, method):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(N, K).bfloat16(), requires_grad=False)
                self.quant_method = method

        for platform in ("CUDA", "CPU"):
            vllm = self.start(platform=platform)
            heads = self.load(lambda: nn.ModuleList([ParallelLMHead(vllm.UnquantizedEmbeddingMethod()) for _ in range(2)]))
            self.assertIn("2 of 2 linear layers", self.line)
            for head in heads:
                for m in (4, 33):
                    x = torch.randn(m, K).bfloat16()
                    close(self, head.quant_method.apply(head, x), x.double() @ head.weight.double().t(), 1e-2)

    def test_compiled_in_one_graph(self):
        vllm = self.start()

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([vllm.Linear(N, K, kind is None, kind) for kind in KINDS])

            def forward(self, x):
                return [torch.relu(layer(x)) for layer in self.layers]

        model = self.load(Model)
        self.assertIn("4 of 4 linear layers", self.line)
        compiled = torch.compile(model, fullgraph=True, dynamic=True)
        for m, ours in ((4, True), (16, False), (3, True), (40, False)):
            x = torch.randn(m, K).bfloat16()
            expected, calls = model(x), dict(vllm.calls)
            for found, one in zip(compiled(x), expected, strict=True):
                close(self, found, one, 1e-2)
            self.assertEqual([vllm.calls[name] - calls[name] for name in ("gemm", "cutlass", "deep_gemm")],
                             [0, 0, 0] if ours else [0, 2, int(m > 16)], m)

    def test_plans_are_made_ahead(self):
        vllm = self.start()
        model = self.load(lambda: nn.Sequential(*[vllm.Linear(N, K, seed=one) for one in range(3)]), sizes=(3, 4, 16))
        self.assertIn("3 of 3 linear layers", self.line)
        self.assertRegex(self.line, r"2 plans for 3 CUDA-graph sizes")  # equal layers share them
        made = self.context.counters()["plans_made"]
        for m in (3, 4, 16):
            for layer in model:
                layer(torch.randn(m, K).bfloat16())
        self.assertEqual(self.context.counters()["plans_made"], made)

    def test_kernels_are_compiled_side_by_side(self):
        """Two calls of the look-up wait for each other: one after the other they would not end."""
        from gemmtune_vllm import operators
        for function in ("answered", "plan"):
            met, calls, stock = threading.Barrier(2), itertools.count(), getattr(operators, function)

            def meet(size, met=met, calls=calls, stock=stock):
                if next(calls) < 2:
                    met.wait(60)
                return stock(size)

            vllm = self.start()
            with mock.patch.object(operators, function, meet), mock.patch.object(os, "sched_getaffinity", lambda process: {0, 1}):
                self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind="block"), vllm.Linear(N, K, kind="block")))
            self.assertIn("2 of 2 linear layers", self.line)
            self.assertFalse(met.broken)
            self.assertGreater(next(calls), 1)

    def test_layers_without_rows_are_not_touched(self):
        vllm = self.start()
        model = self.load(lambda: nn.ModuleDict(
            {str(kind): vllm.Linear(256, 128, kind=kind) for kind in KINDS} | {"tuned": vllm.Linear(N, K)}))
        self.assertIn("1 of 5 linear layers", self.line)
        self.assertNotIn("apply", vars(model["None"].quant_method))
        self.assertIn("apply", vars(model["tuned"].quant_method))
        for kind in KINDS[1:]:
            inner = model[kind].quant_method.fp8_linear
            self.assertFalse({"apply_scaled_mm", "apply_block_scaled_mm"} & set(vars(inner)))
            x = torch.randn(4, 128).bfloat16()
            close(self, model[kind](x), x.double() @ model[kind].exact.t(), 6e-2)
        self.assertEqual(list(self.config.additional_config), ["gemmtune"])  # another graph: another compile cache
        self.load(lambda: nn.Sequential(vllm.Linear(256, 128)))
        self.assertIn("0 of 1 linear layers", self.line)
        self.assertEqual(self.config.additional_config, {})

    def test_layers_that_a_kernel_prepared_otherwise_are_not_touched(self):
        vllm = self.start()

        def repacked():
            layer = vllm.Linear(N, K, kind="token")
            layer.weight_scale = nn.Parameter(layer.weight_scale.bfloat16(), requires_grad=False)
            other = vllm.Linear(N, K, kind="token")
            other.quant_method.fp8_linear.workspace = torch.zeros(1)  # state of one layer
            sparse = vllm.Linear(N, 2 * K)
            sparse.weight = nn.Parameter(sparse.weight[:, ::2], requires_grad=False)
            inside = vllm.Linear(N, K, kind="block")
            inside.quant_method.fp8_linear.apply_input_quant = False
            return nn.Sequential(layer, other, sparse, inside)

        self.load(repacked)
        self.assertIn("0 of 4 linear layers", self.line)

    def test_embeddings_are_no_linear_layers(self):
        vllm = self.start()

        class VocabParallelEmbedding(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(N, K).bfloat16(), requires_grad=False)
                self.quant_method = vllm.UnquantizedEmbeddingMethod()

        class ParallelLMHead(VocabParallelEmbedding):
            pass

        model = self.load(lambda: nn.Sequential(VocabParallelEmbedding(), ParallelLMHead()))
        self.assertIn("1 of 1 linear layers", self.line)
        x = torch.randn(4, K).bfloat16()
        y = model[1].quant_method.apply(model[1], x)
        close(self, y, x.double() @ model[1].weight.double().t(), 1e-2)
        self.assertEqual(vllm.calls["gemm"], 0)

    def test_vllm_choices_stay(self):
        vllm = self.start()
        self.assertEqual(vllm.fp8[vllm.platform][0].__name__, "GemmtuneFp8LinearKernel")
        kernel = vllm.Linear(N, K, kind="token").quant_method.fp8_linear
        self.assertEqual(type(kernel).__name__, "CutlassFP8ScaledMMLinearKernel")  # the first of vLLM's that fits, and nothing around it
        self.assertIn("process_weights_after_loading", vars(kernel))
        self.assertEqual(kernel.layer_param_names[0], "weight")
        vllm.envs.VLLM_DISABLED_KERNELS.append("GemmtuneFp8LinearKernel")
        self.assertEqual(vars(vllm.Linear(N, K, kind="token").quant_method.fp8_linear).keys(),
                         {"config", "layer_param_names", "logical_output_size"})
        vllm.envs.VLLM_DISABLED_KERNELS += ["DeepGemmFp8BlockScaledMMKernel", "TritonFp8BlockScaledMMKernel"]  # a block-scaled layer with a kernel that unpacks the weight
        vllm.blocks[vllm.platform].append(vllm.fp8[vllm.platform][2])
        kernel = vllm.Linear(N, K, kind="block").quant_method.fp8_linear
        self.assertEqual((type(kernel).__name__, kernel.layer_param_names[1]), ("CutlassFP8ScaledMMLinearKernel", "weight_scale"))
        for known in (False, True):  # releases whose register_linear_kernel knows no block-scaled kernels
            vllm = self.start(block_type_known=known)
            self.assertEqual([one.__name__ for one in vllm.blocks[vllm.platform]], ["GemmtuneFp8BlockLinearKernel", "DeepGemmFp8BlockScaledMMKernel", "TritonFp8BlockScaledMMKernel"])

    def test_weights_loaded_again(self):
        vllm = self.start()
        for kind in KINDS:
            model = self.load(lambda: nn.Sequential(vllm.Linear(N, K, kind=kind)))
            layer = model[0]
            if kind in ("tensor", "token"):  # as the checkpoint has it
                layer.weight = nn.Parameter(layer.weight.t(), requires_grad=False)
            again = self.load(lambda: model)
            x = torch.randn(17, K).bfloat16()
            calls = dict(vllm.calls)
            close(self, again[0](x), x.double() @ layer.exact.t(), 6e-2)
            self.assertEqual({name for name in calls if vllm.calls[name] != calls[name]}, {COUNTER[kind]} if kind else set())

    def test_shapes_without_rows_are_recorded(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GEMMTUNE_CAPTURE": folder}):
            self.context = gemmtune.use(TABLES)
            vllm = self.start()
            model = self.load(lambda: nn.ModuleDict({str(kind): vllm.Linear(256, 128, kind=kind) for kind in KINDS}))
            self.assertEqual(self.line, f"gemmtune {gemmtune.__version__}: records the sizes of 4 of 4 linear layers")
            for kind in KINDS:
                for _ in range(3):
                    model[str(kind)](torch.randn(6, 128).bfloat16())
            self.assertEqual({name: count for name, count in vllm.calls.items() if count}, {"cutlass": 6, "deep_gemm": 3})
            self.context.flush_capture()
            found = {path.name: path.read_text().splitlines()[1:] for path in Path(folder).glob("*.csv")}
            self.assertEqual({name: len(rows) for name, rows in found.items()},
                             {"bf16_untuned_gemm.csv": 2, "a8w8_untuned_gemm.csv": 1, "a8w8_blockscale_untuned_gemm.csv": 1})
            for rows in found.values():
                for row in rows:
                    self.assertTrue(row.startswith("6,256,128"), row)
            calls = (Path(folder) / "bf16_untuned_gemm.csv.calls.json").read_text()
            self.assertEqual(calls.count('"calls":3,'), 2, calls)
            gemmtune.use()

    def test_layers_of_the_cpu_backend(self):
        """vLLM packs the weight and drops the plain one; layers with tuned rows are ours in all sizes."""
        path = TABLES["a16w16"] + ".packed.csv"
        row = {"M": 4, "N": N, "K": K, "dtype": "bf16", "outdtype": "bf16", "scaleAB": False, "bpreshuffle": True}
        gemmtune.tune([{**row, "bias": False}, {**row, "bias": True}], path, backend="cpu", search="random", iters=2, confirmations=1)
        for table in (path, TABLES["a16w16"]):
            for bias in (False, True):
                self.context = gemmtune.use(table)
                vllm = self.start(platform="CPU")
                model = self.load(lambda: nn.Sequential(vllm.Linear(N, K, bias), vllm.Linear(256, 128, bias)))
                self.assertIn("1 of 2 linear layers", self.line)
                self.assertIn("gemmtune: vLLM's kernels run in 1: no tuned row answers its sizes", self.lines)
                packed = gemmtune.torch.pack(torch.zeros(N, K).bfloat16()) is not None and model[0].weight.numel() == 0
                self.assertEqual(packed, table == path)  # no second copy of the weight
                self.assertEqual(model[1].weight.numel(), 0)  # vLLM's
                for m in (4, 16, 100):
                    x = torch.randn(2, m // 2, K).bfloat16()
                    used, unused = self.used(), self.context.counters()["untuned"]
                    close(self, model[0](x), x.double() @ model[0].exact.t() + (model[0].bias.double() if bias else 0), 1e-2)
                    self.assertEqual((self.used() - used, self.context.counters()["untuned"] - unused), (1, 0) if m == 4 else (0, 1))
                self.assertEqual(vllm.calls["packed"], 0)
                x = torch.randn(3, 128).bfloat16()
                close(self, model[1](x), x.double() @ model[1].exact.t() + (model[1].bias.double() if bias else 0), 1e-2)
                self.assertEqual(vllm.calls["packed"], 1)

    def use_int8_row(self):
        path = TABLES["a8w8"] + ".int8.csv"
        if not Path(path).exists():
            gemmtune.tune([{"M": 4, "N": N, "K": K, "q_dtype_w": "int8"}], path, op="a8w8", backend="cpu", search="random", iters=2, confirmations=1)
        self.context = gemmtune.use({"a8w8": path})

    def test_int8_layers_of_the_cpu_backend(self):
        self.use_int8_row()
        default = torch.get_default_dtype()
        self.addCleanup(torch.set_default_dtype, default)
        for bias in (False, True):
            vllm = self.start(platform="CPU")

            def make():
                layers = nn.Sequential(vllm.Linear(N, K, bias, kind="int8"), vllm.Linear(256, 128, kind="int8"))
                torch.set_default_dtype(torch.bfloat16)  # as vLLM does while it loads
                return layers

            model = self.load(make)
            torch.set_default_dtype(default)
            self.assertIn("1 of 2 linear layers", self.line)
            self.assertIsNone(model[1].weight)  # vLLM's
            for m in (4, 40):
                x = torch.randn(2, m // 2, K).bfloat16()
                used, unused = self.used(), self.context.counters()["untuned"]
                close(self, model[0](x), x.double() @ model[0].exact.t() + (model[0].bias.double() if bias else 0), 3e-2)
                self.assertEqual((self.used() - used, self.context.counters()["untuned"] - unused), (1, 0) if m == 4 else (0, 1))
            self.assertEqual(vllm.calls["int8"], 0)
            x = torch.randn(3, 128).bfloat16()
            close(self, model[1](x), x.double() @ model[1].exact.t(), 3e-2)
            self.assertEqual(vllm.calls["int8"], 1)

    def test_int8_layers_of_gpus(self):
        self.use_int8_row()
        default = torch.get_default_dtype()
        self.addCleanup(torch.set_default_dtype, default)
        for kind, bias in (("int8", False), ("int8", True), ("int8 static", False)):
            vllm = self.start()

            def make():
                layers = nn.Sequential(vllm.Linear(N, K, bias, kind), vllm.Linear(256, 128, kind=kind), vllm.Linear(N, K, kind="int8 asymmetric"),
                                       vllm.Linear(40, 24, kind=kind))
                torch.set_default_dtype(torch.bfloat16)  # as vLLM does while it loads
                return layers

            model = self.load(make)
            torch.set_default_dtype(default)
            self.assertIn("1 of 4 linear layers", self.line)
            left = gemmtune_vllm.report()["left"]
            self.assertEqual(left["2"], "int8 with asymmetric scales of x")
            self.assertEqual(left["3"], "its sizes are no multiples of 16")
            self.assertIn("no tuned row", left["1"])
            weight = model[0].weight.data_ptr()
            for m, ours in ((4, True), (40, False)):
                x = torch.randn(2, m // 2, K).bfloat16().clamp(-4, 4)
                calls, used = vllm.calls["cutlass"], self.used()
                close(self, model[0](x), x.double() @ model[0].exact.t() + (model[0].bias.double() if bias else 0), 3e-2)
                self.assertEqual((self.used() - used, vllm.calls["cutlass"] - calls), (1, 0) if ours else (0, 1), m)
            self.assertEqual(model[0].weight.data_ptr(), weight)  # no copy
            for layer, counter in ((model[1], "cutlass"), (model[2], "cutlass"), (model[3], "triton")):
                x = torch.randn(4, layer.weight.shape[0]).bfloat16().clamp(-4, 4)
                calls = vllm.calls[counter]
                close(self, layer(x), x.double() @ layer.exact.t(), 3e-2)
                self.assertEqual(vllm.calls[counter] - calls, 1)

    def test_merged_layers_have_a_scale_for_each(self):
        from gemmtune_vllm import quantized
        self.assertEqual(quantized.scale_of_rows(torch.tensor([2.0, 3.0]), 3, [1, 2]).tolist(), [2, 3, 3])
        self.assertEqual(quantized.scale_of_rows(torch.tensor([[2.0], [3.0]]), 2, [2]).tolist(), [2, 3])
        self.assertEqual(quantized.scale_of_rows(torch.tensor(2.0), 5, [5]).tolist(), [2])

    def test_shapes_of_the_cpu_backend_are_recorded(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GEMMTUNE_CAPTURE": folder}):
            self.context = gemmtune.use(TABLES)
            vllm = self.start(platform="CPU")
            layer = self.load(lambda: nn.Sequential(vllm.Linear(256, 128)))[0]
            self.assertIn("records the sizes of 1 of 1", self.line)
            for _ in range(3):
                layer(torch.randn(6, 128).bfloat16())
            self.assertEqual(vllm.calls["packed"], 3)
            # vLLM kills its workers: what was recorded is in the file soon after a call, with its number.
            file = Path(folder) / "bf16_untuned_gemm.csv.calls.json"
            until = time.monotonic() + 0.8
            while time.monotonic() < until and '"calls":3,' not in (file.read_text() if file.exists() else ""):
                time.sleep(0.02)
            self.assertIn('"calls":3,', file.read_text())
            row, = (Path(folder) / "bf16_untuned_gemm.csv").read_text().splitlines()[1:]
            self.assertTrue(row.startswith("6,256,128,False") and row.endswith("True"), row)  # packed
            gemmtune.use()

    def test_calls_are_counted(self):
        vllm = self.start()
        model = self.load(lambda: nn.Sequential(vllm.Linear(N, K), vllm.Linear(256, N)))
        for m in (4, 4, 16):
            model(torch.randn(m, K).bfloat16())
        report = gemmtune_vllm.report()
        self.assertEqual(report["calls"], {"tuned": 2, "without_row": 1})
        self.assertEqual((report["linear_layers"], report["ours"], list(report["left"])), (2, ["0"], ["1"]))
        from gemmtune_vllm import plugin
        with self.assertLogs("vllm.gemmtune", logging.INFO) as log:
            plugin._watcher.say()
        self.assertEqual(log.records[0].getMessage(), "gemmtune: calls of our layers so far: 2 by tuned rows, 1 of sizes without a row "
                         "(a CUDA graph counts once)")
        with self.assertNoLogs("vllm.gemmtune", logging.INFO):
            plugin._watcher.say()  # none since

    def test_switch(self):
        for value, line in (("0", "gemmtune: off (GEMMTUNE_VLLM=0)"),
                            ("no", "gemmtune: off: GEMMTUNE_VLLM is 'no', expected 0 or 1")):
            vllm = self.start({"GEMMTUNE_VLLM": value})
            self.assertEqual(self.log, [line])
            self.assertNotIn("Gemmtune", str(vllm.fp8) + str(vllm.blocks))
        self.start(batch_invariant=True, without=["vllm.model_executor.layers.linear.UnquantizedLinearMethod"])
        self.assertEqual(self.log, ["gemmtune: off: VLLM_BATCH_INVARIANT is set, and only layers of bf16 and fp16 can have rows of a bit class on a GPU"])

    def test_another_interface(self):
        loader = "vllm.model_executor.model_loader.base_loader.BaseModelLoader"
        vllm = self.start(without=[loader])
        self.assertEqual(len(self.log), 1)
        self.assertIn("gemmtune: off: this vLLM differs from what the plug-in knows", self.log[0])
        self.assertIn(f"no {loader}", self.log[0])
        self.assertNotIn("Gemmtune", str(vllm.fp8) + str(vllm.blocks))

        vllm = self.start(without=[f"{vllm_double.LINEAR}._POSSIBLE_FP8_BLOCK_KERNELS"])
        self.assertEqual(len(self.log), 1)
        self.assertIn("gemmtune: no fp8 block-scaled layers: this vLLM differs from what the plug-in knows: no "
                      f"{vllm_double.LINEAR}._POSSIBLE_FP8_BLOCK_KERNELS", self.log[0])
        model = self.load(lambda: nn.Sequential(vllm.Linear(N, K), vllm.Linear(N, K, kind="block")))
        self.assertIn("1 of 1 linear layers", self.line)
        self.assertNotIn("process_weights_after_loading", vars(model[1].quant_method.fp8_linear))

        def apply(self, hidden_states, layer):
            return torch.nn.functional.linear(hidden_states, layer.weight)

        linear = [f"{vllm_double.LINEAR}._POSSIBLE_FP8_BLOCK_KERNELS", f"{vllm_double.LINEAR}._POSSIBLE_FP8_KERNELS"]
        four_bit = [f"{vllm_double.LINEAR}.{name}" for name in ("nvfp4.marlin.MarlinNvFp4LinearKernel", "mxfp4.marlin.MarlinMxFp4LinearKernel")]
        mixtures = [f"{vllm_gpu_mixtures_double.FUSED_MOE}.prepare_finalize.no_dp_ep.MoEPrepareAndFinalizeNoDPEPModular",
                    "vllm.model_executor.layers.quantization.mxfp4.GptOssMxfp4MoEMethod"]
        self.start(signature=apply, without=[*linear, *four_bit, *mixtures, "vllm.scalar_type.scalar_types", "vllm._custom_ops.scaled_int8_quant"])
        self.assertEqual(len(self.log), 1)
        self.assertIn("gemmtune: off: this vLLM differs", self.log[0])
        self.start(signature=apply, without=linear[:1])
        self.assertEqual(len(self.log), 1)
        self.assertIn("gemmtune: no bf16, fp8 block-scaled layers: ", self.log[0])
        self.assertIn("UnquantizedLinearMethod.apply(self, hidden_states, layer) has no x, bias", self.log[0])

    def test_a_failure_leaves_vllm_running(self):
        vllm = self.start()
        self.vllm = vllm
        with mock.patch("gemmtune_vllm.operators.answered", side_effect=OSError("disk")):
            layer = self.load(lambda: nn.Sequential(vllm.Linear(N, K)))[0]
        self.assertEqual(self.line, "gemmtune: OSError: disk; vLLM's kernels run in the layers that are left")
        layer(torch.randn(4, K).bfloat16())
        self.assertEqual(vllm.calls["gemm"], 1)
        vllm = self.start(platform="CPU")  # where layers are chosen while the model is loaded
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())

        def make():
            layers = nn.Sequential(vllm.Linear(N, K), vllm.Linear(N, K, kind="int8"))
            torch.set_default_dtype(torch.bfloat16)  # as vLLM does while it loads
            return layers

        with mock.patch("gemmtune_vllm.operators.row_of", side_effect=OSError("disk")):
            model = self.load(make)
        self.assertIn("0 of 2", self.line)
        self.assertIn("gemmtune: vLLM's kernels run in 0, 1: OSError: disk", self.lines)
        for layer in model:
            x = torch.randn(4, K).bfloat16()
            close(self, layer(x), x.double() @ layer.exact.t(), 3e-2)
        self.assertEqual((vllm.calls["packed"], vllm.calls["int8"]), (1, 1))

    def test_another_layout_is_another_graph(self):
        keys = set()
        for table in (TABLES["a16w16"], None):
            if table is None:
                table = TABLES["a16w16"] + ".other_layout.csv"
                gemmtune.tune([{"M": 4, "N": N, "K": K, "dtype": "bf16", "outdtype": "bf16", "scaleAB": False, "bpreshuffle": True, "bias": False}], table,
                              backend="cpu", search="random", iters=2, confirmations=1)
            gemmtune.use(table)
            vllm = self.start(platform="CPU")
            self.load(lambda: nn.Sequential(vllm.Linear(N, K)))
            self.assertIn("1 of 1", self.line)
            keys.add(self.config.additional_config["gemmtune"])
        self.assertEqual(len(keys), 2)


@unittest.skipUnless(torch.cuda.is_available(), "PyTorch finds no GPU")
class Gpu(Process):
    def test_a_captured_graph_runs_what_was_planned_ahead(self):
        self.enterContext(torch.inference_mode())
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.addCleanup(gemmtune.use, device="cuda:0")
        table = str(Path(folder) / "tuned.csv")
        shape = {"M": 16, "N": 1024, "K": 1024, "outdtype": "bf16", "bias": False, "bpreshuffle": False}
        gemmtune.tune([{**shape, "dtype": "bf16", "scaleAB": False}, {**shape, "dtype": "f8_e4m3fn", "scaleAB": True}], table,
                      backend="cuda", budget=float(os.environ.get("GEMMTUNE_TEST_BUDGET", "20")))
        gemmtune.use(table, device="cuda:0")
        for kind in KINDS[:2]:
            vllm = self.start()
            model = self.load(lambda: nn.Sequential(vllm.Linear(1024, 1024, kind=kind).cuda()), sizes=(16,), tokens=16)
            self.assertIn("1 of 1 linear layers have tuned kernels; 1 plans", self.line)
            calls = dict(vllm.calls)
            x, graph = torch.randn(16, 1024, device="cuda").bfloat16(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = model(x)
            for _ in range(2):
                x.copy_(torch.randn(16, 1024))
                graph.replay()
                close(self, y, x.double() @ model[0].exact.cuda().t(), 1e-2 if kind is None else 6e-2)
            self.assertEqual(vllm.calls, calls)


class Package(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("vllm"), "this Python has vLLM")
    def test_without_vllm(self):
        done = subprocess.run([sys.executable, "-c", "import logging, sys; logging.basicConfig(format='%(message)s')\n"
                               "import gemmtune_vllm; assert 'torch' not in sys.modules; gemmtune_vllm.register()"],
                              env={**os.environ, "PYTHONPATH": f"{PACKAGE}:{os.environ.get('PYTHONPATH', '')}"}, capture_output=True, text=True, check=True)
        self.assertRegex(done.stderr, r"\Agemmtune: off: this vLLM differs .* no vllm.envs \(No module named 'vllm'\).*\n\Z")

    def test_vllm_finds_it(self):
        """The wheel, built and installed as a user does it."""
        try:
            import scikit_build_core  # noqa: F401
        except ImportError:
            self.skipTest("scikit-build-core is not installed")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                            "--no-build-isolation", "--no-index", "--target", folder, str(PACKAGE)], check=True,
                           capture_output=True)
            found = subprocess.run(
                [sys.executable, "-c", "from importlib.metadata import entry_points, version\n"
                 "for one in entry_points(group='vllm.general_plugins'):\n"
                 "    if one.name == 'gemmtune': print(one.name, one.load().__module__)\n"
                 "import gemmtune_vllm; assert version('gemmtune-vllm') == gemmtune_vllm.__version__"],
                env={**os.environ, "PYTHONPATH": folder}, capture_output=True, text=True, check=True).stdout
        self.assertEqual(found, "gemmtune gemmtune_vllm\n")


if __name__ == "__main__":
    unittest.main()
