"""gemmtune_vllm's mixtures of experts against a double of vLLM's CPU backend (vllm_mixtures_double.py): which layers are taken, what runs,
results."""

import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import needs_torch  # noqa: F401, I001: the first of these
import torch
import vllm_mixtures_double
from torch import nn
from torch_models import close
from vllm_test import Process, gemmtune_vllm

import gemmtune

# kind -> columns of its rows, tolerance
KINDS = {None: ({"q_dtype_a": "bf16", "q_dtype_w": "bf16", "q_type": "No"}, 1e-2),
         "fp8": ({"q_dtype_a": "bf16", "q_dtype_w": "fp8", "q_type": "per_1x128"}, 1e-2),
         "int8": ({"q_dtype_a": "int8", "q_dtype_w": "int8", "q_type": "per_Token"}, 3e-2),
         "mxfp4": ({"q_dtype_a": "bf16", "q_dtype_w": "fp4", "q_type": "per_1x32"}, 1e-2)}
SIZES = {"model_dim": 128, "inter_dim": 64, "expert": 8, "topk": 2}
TABLES = {}


def tuned_file(path, columns):
    """A file with a row of 4 tokens, of which 3 and 4 are answered."""
    row = {"token": 4, **SIZES, "act_type": "Silu", "dtype": "bf16", "use_g1u1": 1, "doweight_stage1": 0, **columns}
    # The default kernel and one more: the row is there soon, on a busy machine too.
    gemmtune.tune([row], str(path), op="fused_moe", backend="cpu", libtype="reference", iters=1, confirmations=1, budget=120)
    return {"fused_moe": str(path)}


def tuned(name, kind=None, **columns):
    return tuned_file(Path(TABLES["folder"]) / f"{name}.csv", {**KINDS[kind][0], **columns})


def setUpModule():
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    TABLES["folder"] = folder.name
    for kind in KINDS:
        TABLES[kind] = tuned(kind, kind, inter_dim=128 if kind == "fp8" else 64)


def routes(tokens, topk=2, experts=8, seed=0):
    """(weights, ids) as vLLM's router gives them."""
    random = torch.Generator().manual_seed(seed)
    logits, ids = torch.randn(tokens, experts, generator=random).topk(topk)
    return torch.sigmoid(logits), ids.to(torch.int32)


def inputs(tokens, topk=2, k=128, dtype=torch.bfloat16):
    return torch.randn(tokens, k, generator=torch.Generator().manual_seed(tokens)).to(dtype), *routes(tokens, topk)


class Mixtures(Process):
    def setUp(self):
        self.addCleanup(gemmtune.use)
        self.enterContext(torch.inference_mode())

    def begin(self, tables, **double):
        self.context = gemmtune.use(tables)
        vllm = self.start(platform="CPU", **double)
        self.assertEqual(self.log, [])
        return vllm

    def made(self, kind, **options):
        return self.vllm.Experts(kind, **{"n": 128 if kind == "fp8" else 64, **options})

    def check(self, layer, ours, tolerance=1e-2, tokens=(4, 3, 100)):
        for m in tokens:
            x, weights, ids = inputs(m, layer.top_k, dtype=layer.moe_config.in_dtype)
            calls, before = self.vllm.calls["experts"], gemmtune_vllm.report()["calls"]
            y = layer(x, weights, ids)
            self.assertEqual((y.dtype, self.vllm.calls["experts"] - calls), (x.dtype, 0 if ours else 1))
            close(self, y, layer.reference(x, weights, ids), tolerance)
            after = gemmtune_vllm.report()["calls"]
            used = {name: after[name] - before[name] for name in after}
            self.assertEqual(used, {"tuned": ours and m <= 4, "without_row": ours and m > 4}, m)

    def test_each_kind_runs_ours_where_a_row_answers(self):
        for kind, (_, tolerance) in KINDS.items():
            for ours in (True, False):
                with self.subTest(kind=kind, ours=ours):
                    self.begin(TABLES[kind] if ours else {})
                    layer = self.load(lambda: nn.ModuleDict({"experts": self.made(kind)}), tokens=64)["experts"]
                    self.assertIn(f"0 of 0 linear layers and {int(ours)} of 1 mixtures of experts have tuned kernels", self.line)
                    self.check(layer, ours, tolerance)
                    report = gemmtune_vllm.report()
                    self.assertEqual((report["linear_layers"], report["mixtures"]), (0, 1))
                    self.assertEqual((report["ours"], report["left"]),
                                     (["experts"], {}) if ours else ([], {"experts": "no tuned row answers its sizes"}))
                    self.assertEqual(f"gemmtune: vLLM's kernels run in experts: {report['left'].get('experts')}" in self.lines, not ours)

    def test_weights_have_no_second_copy(self):
        self.begin(TABLES[None])
        made = []

        def make():
            made.append(self.made(None))
            made.append(made[0].w13_weight.data_ptr())
            return nn.Sequential(made[0])

        layer = self.load(make)[0]
        self.assertEqual(layer.w13_weight.data_ptr(), made[1])
        self.assertEqual(set(vars(layer.quant_method.moe_kernel.fused_experts)), {"moe_config", "quant_config", "apply"})

    def test_gpt_oss_with_biases_and_rows_that_alternate(self):
        for kind in (None, "mxfp4"):
            table = tuned(f"oss{kind}", kind, act_type="Swiglu")
            for ours in (True, False):
                with self.subTest(kind=kind, ours=ours):
                    self.begin(table if ours else {})
                    layer = self.load(lambda: nn.Sequential(self.made(kind, activation="swigluoai", bias=True, swiglu_limit=7.0, swiglu_alpha=1.702)))[0]
                    self.check(layer, ours)

    def test_fp16(self):
        self.begin(tuned("f16", dtype="fp16", q_dtype_a="fp16", q_dtype_w="fp16"))
        self.check(self.load(lambda: nn.Sequential(self.made(None, dtype=torch.float16)))[0], True)

    def test_router_weights_on_input(self):
        table = tuned("llama4", topk=1)
        for ours in (True, False):
            self.begin(table if ours else {})
            self.check(self.load(lambda: nn.Sequential(self.made(None, topk=1, apply_router_weight_on_input=True)))[0], ours)

    def test_expert_map_and_empty_slots(self):
        """Experts 1, 3, 5 … of 16 are here; ids of the others, and -1, add nothing."""
        self.begin(TABLES[None])
        experts = torch.full((16,), -1, dtype=torch.int32)
        experts[1::2] = torch.arange(8, dtype=torch.int32)
        layer = self.load(lambda: nn.Sequential(self.made(None, expert_map=experts)))[0]
        x, _, _ = inputs(64)
        weights, ids = routes(64, experts=16)
        ids[::5, 0] = -1
        close(self, layer(x, weights, ids), layer.reference(x, weights, torch.where(ids < 0, ids, experts[ids.clamp(min=0).long()])), 1e-2)

    def test_layers_of_other_kinds_are_left(self):
        self.begin(TABLES[None])
        wrong = {"gelu_tanh": {"activation": "gelu_tanh"}, "limit": {"swiglu_limit": 9.0}, "other limit": {"activation": "swigluoai", "swiglu_limit": 9.0},
                 "lora": {"lora": True}, "f32": {"dtype": torch.float32}}
        model = self.load(lambda: nn.ModuleDict({name: self.made(None, **options) for name, options in wrong.items()}))
        self.assertEqual(gemmtune_vllm.report()["left"], {
            "gelu_tanh": "its activation is gelu_tanh", "limit": "its swiglu_limit is 9.0", "other limit": "its swiglu_limit is 9.0",
            "lora": "LoRA is enabled", "f32": "its tokens are torch.float32"})
        self.check(model["gelu_tanh"], False)
        self.load(lambda: nn.ModuleDict({"int4": self.made("int4")}))
        self.assertEqual(gemmtune_vllm.report()["left"], {"int4": "CPUExpertsInt4 is not known"})

    def test_a_cpu_without_amx_runs_quantized_experts(self):
        """vLLM has no kernel of them, so that gemmtune's run whether rows answer or not."""
        for kind in ("fp8", "int8", "mxfp4"):
            for tables in (TABLES[kind], {}):
                with self.subTest(kind=kind, rows=bool(tables)):
                    self.begin(tables, amx=False)
                    layer = self.load(lambda: nn.Sequential(self.made(kind)))[0]
                    self.assertIn("1 of 1 mixtures", self.line)
                    x, weights, ids = inputs(4)
                    close(self, layer(x, weights, ids), layer.reference(x, weights, ids), KINDS[kind][1])
                    self.assertEqual(gemmtune_vllm.report()["calls"], {"tuned": bool(tables), "without_row": not tables})
        with self.assertRaisesRegex(RuntimeError, "vLLM's CPUExpertsMxfp4 do not run on this CPU, and gemmtune does not take them: its swiglu_limit is 9.0"):
            self.vllm.loader().load_model(vllm_config=self.config, model_config=lambda: nn.Sequential(self.made("mxfp4", swiglu_limit=9.0)))
        self.start({"GEMMTUNE_VLLM": "0"}, platform="CPU", amx=False)
        with self.assertRaises(NotImplementedError):
            self.made("mxfp4")

    def test_weights_that_are_loaded_again(self):
        """As reinforcement learning does: the checkpoint's form comes again, outside of load_model."""
        self.begin(tuned("again", act_type="Swiglu"))
        layer = self.load(lambda: nn.Sequential(self.made(None, activation="swigluoai", bias=True)))[0]
        other = self.made(None, activation="swigluoai", bias=True, seed=1)
        for name in ("w13_weight", "w2_weight", "w13_bias", "w2_bias"):
            getattr(layer, name).copy_(getattr(other, name))
        layer.exact = other.exact
        layer.quant_method.process_weights_after_loading(layer)
        self.check(layer, True)

    def test_shapes_are_recorded(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GEMMTUNE_CAPTURE": folder}):
            vllm = self.begin(TABLES[None])
            layer = self.load(lambda: nn.Sequential(self.made(None)))[0]
            self.assertTrue(self.line.endswith("records the sizes of 0 of 0 linear layers and 1 of 1 mixtures of experts"), self.line)
            for m in (6, 6, 5):
                x, weights, ids = inputs(m)
                close(self, layer(x, weights, ids), layer.reference(x, weights, ids), 1e-2)
            self.assertEqual(vllm.calls["experts"], 3)
            self.context.flush_capture()
            row, = (Path(folder) / "untuned_fmoe.csv").read_text().splitlines()[1:]
            self.assertTrue(row.startswith("8,128,64,8,2,"), row)  # the tier that answers 5 and 6 tokens
            self.assertIn('"calls":3,', (Path(folder) / "untuned_fmoe.csv.calls.json").read_text())
            gemmtune.use()

    def test_compiled(self):
        self.begin(TABLES["int8"])
        layer = self.load(lambda: nn.Sequential(self.made("int8")))[0]
        compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
        for m in (4, 3, 64):
            x, weights, ids = inputs(m)
            close(self, compiled(x, weights, ids), layer.reference(x, weights, ids), 3e-2)
        self.assertEqual(self.vllm.calls["experts"], 0)

    def test_a_failure_leaves_vllm_running(self):
        self.begin(TABLES[None])
        with mock.patch("gemmtune_vllm.mixtures.Mixture.problem", side_effect=OSError("disk")):
            layer = self.load(lambda: nn.Sequential(self.made(None)))[0]
        self.assertEqual(gemmtune_vllm.report()["left"], {"0": "OSError: disk"})
        self.check(layer, False)

    def test_another_interface(self):
        for without, line in ((f"{vllm_mixtures_double.ROUTED}.RoutedExperts", "gemmtune: no mixtures of the CPU backend layers: "),
                              (f"{vllm_mixtures_double.EXPERTS}.CPUExpertsMxfp4", "gemmtune: no quantized mixtures of the CPU backend layers: ")):
            self.context = gemmtune.use(TABLES[None])
            self.start(platform="CPU", without=[without])
            self.assertEqual(len(self.log), 1)
            self.assertIn(line, self.log[0])
            layer = self.load(lambda: nn.Sequential(self.made(None)))[0]
            x, weights, ids = inputs(4)
            calls = self.vllm.calls["experts"]
            close(self, layer(x, weights, ids), layer.reference(x, weights, ids), 1e-2)
            self.assertEqual(self.vllm.calls["experts"] - calls, "RoutedExperts" in without)


if __name__ == "__main__":
    unittest.main()
