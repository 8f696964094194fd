"""gemmtune_vllm against a double of vLLM: linear layers with 4-bit weights on a CPU and as on a GPU, and rows of a bit class on a CPU."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import needs_torch  # noqa: F401, I001: the first of these
import torch
import vllm_quantized_double
from torch import nn
from torch_models import close
from vllm_test import Process, gemmtune_vllm

import gemmtune

N, K = 64, 128
INT4 = ("awq", "gptq", "compressed", "compressed with zero points")
ROWS, NVFP4_ROWS, CLASSES = "a16w4_int4", "a16w4_nvfp4", "classes"
TABLES = {}


def setUpModule():
    """Rows of 4 tokens for int4 layers with groups of 32 and whole rows, and for an NVFP4 layer; rows of a bit class."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    for name, rows in {ROWS: [{"bias": bias, "group": group, "zero_points": zeros, "q_dtype_a": dtype, "outdtype": dtype} for group, dtype, bias in
                              (("32", "bf16", False), ("32", "bf16", True), ("row", "bf16", False), ("32", "fp16", False)) for zeros in (False, True)],
                       NVFP4_ROWS: [{}], "a8w8": [{"q_dtype_w": "int8"}]}.items():
        TABLES[name] = {name: f"{folder.name}/{name}.csv"}
        # The default kernel and one more: the rows are there soon, on a busy machine too.
        gemmtune.tune([{"M": 4, "N": N, "K": K, **row} for row in rows], TABLES[name][name], op=name, backend="cpu", libtype="reference", iters=1,
                      confirmations=1)
    TABLES[CLASSES] = {"a16w16": f"{folder.name}/classes.csv"}
    gemmtune.tune([(40, N, K)], TABLES[CLASSES]["a16w16"], backend="cpu", search="random", iters=1, libtype="tiled", invariant="rows")


class Backend(Process):
    def setUp(self):
        self.addCleanup(gemmtune.use)
        self.enterContext(torch.inference_mode())
        default = torch.get_default_dtype()
        self.addCleanup(torch.set_default_dtype, default)

    platform = "CPU"

    def begin(self, tables, environment=(), **double):
        self.context = gemmtune.use(tables)
        return self.start(environment, platform=self.platform, **double)

    def loaded(self, *layers, dtype=torch.bfloat16):
        """The model of these layers; make: vLLM's default dtype is the model's while it loads."""
        def make():
            torch.set_default_dtype(dtype)
            return nn.Sequential(*(layer() for layer in layers))

        before = torch.get_default_dtype()
        try:
            return self.load(make)
        finally:
            torch.set_default_dtype(before)

    def check(self, layer, ours, tuned=(4,), tolerance=1e-2, dtype=torch.bfloat16):
        for m in (4, 3, 40):
            x = torch.randn(m, 1, K).to(dtype)
            kind = layer.kind if layer.kind in ("nvfp4", "mxfp4") else "int4"
            calls, before = self.vllm.calls[kind], gemmtune_vllm.report()["calls"]
            y = layer(x)
            self.assertEqual((y.dtype, y.shape, self.vllm.calls[kind] - calls), (dtype, (m, 1, N), 0 if ours else 1))
            close(self, y, x.double() @ layer.exact.t() + (0 if layer.bias is None else layer.bias.double()), tolerance)
            after = gemmtune_vllm.report()["calls"]
            used = {name: after[name] - before[name] for name in after}
            self.assertEqual(used, {"tuned": ours and m in tuned, "without_row": ours and m not in tuned}, m)


class Quantized(Backend):
    def test_int4_layers_are_ours_where_a_row_answers(self):
        for kind in INT4:
            for group, bias in ((32, False), (32, True), (-1, False)):
                with self.subTest(kind=kind, group=group, bias=bias):
                    vllm = self.begin(TABLES[ROWS])
                    self.assertEqual(self.log, [])
                    layer = self.loaded(lambda: vllm.FourBit(kind, N, K, group, bias))[0]
                    self.assertIn("1 of 1 linear layers have tuned kernels", self.line)
                    # m = 3 is answered by the row of 4: vLLM's kernel cannot run any size.
                    self.check(layer, True, tuned=(3, 4))
                    weight = getattr(layer, layer.names[0])
                    self.assertEqual((weight.dtype, weight.numel()), (torch.uint8, N * K // 2))  # in the place of vLLM's

    def test_int4_of_fp16(self):
        vllm = self.begin(TABLES[ROWS])
        for kind in INT4:
            layer = self.loaded(lambda: vllm.FourBit(kind, N, K, 32, dtype=torch.float16), dtype=torch.float16)[0]
            self.assertIn("1 of 1", self.line)
            self.check(layer, True, tuned=(3, 4), dtype=torch.float16)

    def test_int4_layers_without_rows_are_vllms(self):
        vllm = self.begin(TABLES[ROWS])
        model = self.loaded(lambda: vllm.FourBit("gptq", 2 * N, K, 32), lambda: vllm.FourBit("compressed", N, K, 128, dtype=torch.float16),
                            lambda: vllm.FourBit("awq", N, K, 16), lambda: vllm.FourBit("awq", N, K, 32, zero_points=False),
                            lambda: vllm.FourBit("gptq", N, K, 32, zentorch=True))
        self.assertIn("0 of 4 linear layers", self.line)
        self.assertEqual(gemmtune_vllm.report()["left"], {"0": "no tuned row answers its sizes", "1": "no tuned row answers its sizes",
                                                          "2": "its groups have 16 elements", "3": "its weight is uint4, without zero points"})
        for layer in (model[2], model[3], model[4]):
            self.check(layer, False)
        self.assertEqual(model[4].qweight.dtype, torch.float64)  # as vLLM's kernel repacks it

    def test_int4_sizes_are_recorded(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GEMMTUNE_CAPTURE": folder}):
            vllm = self.begin({})
            model = self.loaded(lambda: vllm.FourBit("awq", N, K, 32, True), lambda: vllm.FourBit("gptq", N, K, -1))
            self.assertIn("records the sizes of 2 of 2 linear layers", self.line)
            for layer in model:
                for m in (6, 6):
                    x = torch.randn(m, K).bfloat16()
                    close(self, layer(x), x.double() @ layer.exact.t() + (0 if layer.bias is None else layer.bias.double()), 1e-2)
            self.assertEqual(vllm.calls["int4"], 4)
            self.context.flush_capture()
            header, *rows = (Path(folder) / "a16w4_int4_untuned_gemm.csv").read_text().splitlines()
            found = [dict(zip(header.split(","), row.split(","))) for row in rows]
            self.assertEqual([(row["M"], row["N"], row["K"], row["bias"], row["group"], row["zero_points"]) for row in found],
                             [("6", "64", "128", "True", "32", "True"), ("6", "64", "128", "False", "128", "False")])
            gemmtune.use()

    def test_nvfp4_and_mxfp4_run_with_and_without_rows(self):
        for kind, tables in (("nvfp4", TABLES[NVFP4_ROWS]), ("nvfp4", {}), ("mxfp4", {})):
            for bias in (False, True):
                with self.subTest(kind=kind, tables=bool(tables), bias=bias):
                    vllm = self.begin(tables)
                    layer = self.loaded(lambda: vllm.FourBit(kind, N, K, bias=bias))[0]
                    self.assertIn("1 of 1 linear layers", self.line)
                    self.check(layer, True, tuned=(3, 4) if tables and not bias else ())
                    self.assertEqual(layer.weight.numel(), N * K // 2)

    def test_vllm_alone_has_no_kernel_of_nvfp4(self):
        vllm = self.begin({}, {"GEMMTUNE_VLLM": "0"})
        with self.assertRaisesRegex(ValueError, "Failed to find a kernel"):
            vllm.FourBit("nvfp4", N, K)
        vllm = self.begin({})
        with self.assertRaisesRegex(ValueError, "Failed to find a kernel"):
            vllm.FourBit("mxfp4", N, K, activations="mxfp6")
        with self.assertRaisesRegex(RuntimeError, "vLLM has no NvFp4 kernel for CPUs, and gemmtune does not take the layer: its activations are torch.float32"):
            self.loaded(lambda: vllm.FourBit("nvfp4", N, K), dtype=torch.float32)

    def test_weights_that_are_loaded_again(self):
        """As reinforcement learning does: the checkpoint's form comes again, outside of load_model."""
        for kind in (*INT4, "nvfp4", "mxfp4"):
            with self.subTest(kind):
                vllm = self.begin({**TABLES[ROWS], **TABLES[NVFP4_ROWS]})
                layer = self.loaded(lambda: vllm.FourBit(kind, N, K, 32))[0]
                before = layer.exact
                getattr(layer, f"load_{kind if 'fp4' in kind else 'int4'}")(N, K)
                self.assertFalse(torch.equal(layer.exact, before))
                layer.quant_method.process_weights_after_loading(layer)
                self.check(layer, True, tuned=() if kind == "mxfp4" else (3, 4))

    def test_int8_weights_that_are_loaded_again(self):
        for tables in (TABLES["a8w8"], {}):
            vllm = self.begin(tables)
            layer = self.loaded(lambda: vllm.Linear(N, K, kind="int8"))[0]
            other = vllm.Linear(N, K, kind="int8", seed=1)
            layer.weight, layer.weight_scale = other.weight, other.weight_scale
            layer.quant_method.process_weights_after_loading(layer)
            x = torch.randn(4, K).bfloat16()
            close(self, layer(x), x.double() @ other.exact.t(), 3e-2)
            self.assertEqual(vllm.calls["int8"], 0 if tables else 1)

    def test_compiled(self):
        vllm = self.begin({**TABLES[ROWS], **TABLES[NVFP4_ROWS]})
        model = self.loaded(lambda: vllm.FourBit("awq", K, K, 32), lambda: vllm.FourBit("gptq", N, K, 32), lambda: vllm.FourBit("nvfp4", N, K))
        self.assertIn("2 of 3", self.line)
        for layer in list(model)[1:]:
            compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
            for m in (4, 3, 64):
                x = torch.randn(m, K).bfloat16()
                close(self, compiled(x), x.double() @ layer.exact.t(), 1e-2)
        self.assertEqual(vllm.calls["int4"], 0)

    def test_a_failure_leaves_vllm_running(self):
        vllm = self.begin(TABLES[ROWS])
        with mock.patch("gemmtune_vllm.quantized.Int4.take", side_effect=OSError("disk")):
            layer = self.loaded(lambda: vllm.FourBit("awq", N, K, 32))[0]
        self.assertEqual(gemmtune_vllm.report()["left"], {"0": "OSError: disk"})
        self.check(layer, False)

    def test_another_interface(self):
        for name, part in ((f"{vllm_quantized_double.KERNELS}.mixed_precision.cpu.CPUWNA16LinearKernel", "int4"),
                           (f"{vllm_quantized_double.KERNELS}.nvfp4.base.NvFp4LinearKernel", "NVFP4 and MXFP4")):
            self.begin(TABLES[ROWS], without=[name])
            self.assertEqual(len(self.log), 1)
            self.assertIn(f"gemmtune: no {part} of the CPU backend layers: this vLLM differs", self.log[0])


class OnGpus(Backend):
    """vLLM's kernels of a GPU prepare and run layers without rows."""

    platform = "CUDA"

    def test_layers_are_ours_where_a_row_answers(self):
        for kind, tables, options in (("compressed", TABLES[ROWS], {"machete": True}), ("awq", TABLES[ROWS], {}), ("gptq", TABLES[ROWS], {}),
                                      ("nvfp4", TABLES[NVFP4_ROWS], {})):
            with self.subTest(kind=kind):
                vllm = self.begin(tables)
                self.assertEqual(self.log, [])
                layer = self.loaded(lambda: vllm.FourBit(kind, N, K, 32, **options))[0]
                self.assertIn("1 of 1 linear layers have tuned kernels", self.line)
                # Graphs of 1, 4 and 16 rows, powers of two up to 64, and 64 itself.
                self.assertIn("7 plans for 3 CUDA-graph sizes made ahead", self.line)
                self.check(layer, True, tuned=(3, 4))

    def test_layers_without_rows_are_vllms(self):
        vllm = self.begin({})
        model = self.loaded(*(lambda kind=kind: vllm.FourBit(kind, N, K, 32) for kind in ("awq", "nvfp4", "mxfp4")))
        self.assertIn("0 of 3 linear layers", self.line)
        self.assertEqual(set(gemmtune_vllm.report()["left"].values()), {"no tuned row answers its sizes"})
        for layer in model:
            self.check(layer, False)

    def test_reordered_inputs_and_a_chosen_backend_are_vllms(self):
        vllm = self.begin(TABLES[ROWS])
        self.loaded(lambda: vllm.FourBit("gptq", N, K, 32, reordered=True))
        self.assertEqual(gemmtune_vllm.report()["left"], {"0": "the order of its inputs is another one (desc_act)"})
        vllm = self.begin(TABLES[ROWS], linear_backend="marlin")
        self.check(self.loaded(lambda: vllm.FourBit("gptq", N, K, 32))[0], False)
        self.assertEqual(gemmtune_vllm.report()["left"], {"0": "--linear-backend is marlin"})

    def test_sizes_are_recorded(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GEMMTUNE_CAPTURE": folder}):
            vllm = self.begin({})
            self.loaded(lambda: vllm.FourBit("awq", N, K, 32))[0](torch.randn(6, K).bfloat16())
            self.context.flush_capture()
            header, *rows = (Path(folder) / "a16w4_int4_untuned_gemm.csv").read_text().splitlines()
            found = [dict(zip(header.split(","), row.split(","))) for row in rows]
            self.assertEqual([(row["M"], row["N"], row["group"]) for row in found], [("6", "64", "32")])
            gemmtune.use()

    def test_a_version_with_other_kernels(self):
        linear = vllm_quantized_double.KERNELS
        vllm = self.begin(TABLES[ROWS], without=(f"{linear}.mixed_precision.machete.MacheteLinearKernel",))
        self.assertEqual(self.log, [])
        self.check(self.loaded(lambda: vllm.FourBit("gptq", N, K, 32))[0], True, tuned=(3, 4))
        self.begin(TABLES[ROWS], without=(f"{linear}.nvfp4.marlin.MarlinNvFp4LinearKernel",))
        self.assertIn("no NVFP4 on GPUs layers", self.log[0])
        self.assertIn(f"no {linear}.nvfp4.marlin.MarlinNvFp4LinearKernel", self.log[0])


class BitClasses(Backend):
    def test_layers_with_rows_of_a_bit_class_are_ours(self):
        """vLLM's kernels run in the others."""
        vllm = self.begin({**TABLES[CLASSES], **TABLES[ROWS]}, batch_invariant=True)
        self.assertEqual(self.log, ["gemmtune: VLLM_BATCH_INVARIANT is set: only layers whose rows have a bit class run gemmtune's kernels"])
        model = self.loaded(lambda: vllm.Linear(N, K), lambda: vllm.FourBit("awq", N, K, 32), lambda: vllm.Linear(2 * N, K))
        self.assertEqual(gemmtune_vllm.report()["ours"], ["0"])
        self.assertEqual(gemmtune_vllm.report()["left"], {"1": "its rows have no bit class, and VLLM_BATCH_INVARIANT is set",
                                                          "2": "no tuned row answers its sizes"})
        x = torch.randn(64, K).bfloat16()
        whole = model[0](x)
        for m in (1, 2, 7, 30):
            self.assertTrue(torch.equal(model[0](x[5:5 + m]), whole[5:5 + m]), m)

    def test_gemmtune_invariant_refuses_other_layers(self):
        with mock.patch.dict(os.environ, {"GEMMTUNE_INVARIANT": "rows"}):
            vllm = self.begin(TABLES[CLASSES])
            self.loaded(lambda: vllm.Linear(N, K))
            self.assertIn("1 of 1 linear layers", self.line)
            with self.assertRaisesRegex(RuntimeError, "GEMMTUNE_INVARIANT=rows, and vLLM's kernels would run in 1 of 2 layers: 1: no tuned row answers its sizes"):
                self.loaded(lambda: vllm.Linear(N, K), lambda: vllm.Linear(2 * N, K))
            gemmtune.use()


if __name__ == "__main__":
    unittest.main()
