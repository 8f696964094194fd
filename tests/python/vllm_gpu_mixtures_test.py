"""gemmtune_vllm's mixtures of experts of GPUs against a double of vLLM (vllm_gpu_mixtures_double.py), with gemmtune on this CPU: which layers are
taken, which sizes run, results."""

import math
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import needs_torch  # noqa: F401, I001: the first of these
import torch
import vllm_gpu_mixtures_double
from torch import nn
from torch_models import close
from vllm_mixtures_test import tuned_file
from vllm_test import Process, gemmtune_vllm

import gemmtune

# kind -> columns of its rows, tolerance
KINDS = {None: ({"q_dtype_a": "bf16", "q_dtype_w": "bf16", "q_type": "No"}, 1e-2),
         "fp8": ({"q_dtype_a": "fp8", "q_dtype_w": "fp8", "q_type": "per_1x128"}, 6e-2),
         "int8": ({"q_dtype_a": "int8", "q_dtype_w": "int8", "q_type": "per_Token"}, 3e-2),
         "mxfp4": ({"q_dtype_a": "bf16", "q_dtype_w": "fp4", "q_type": "per_1x32"}, 1e-2)}
for name, w, zero_points in (("int4", "int4", False), ("awq", "int4", True), ("nvfp4", "fp4", None)):
    of_kind = {"q_type": "per_1x16"} if zero_points is None else {"q_type": "per_group", "group": 32, "zero_points": zero_points}
    KINDS[name] = ({"q_dtype_a": "bf16", "q_dtype_w": w, **of_kind}, 1e-2)
# Layers of 4 bits that are gemmtune's, and the table that has a row for them.
OF_4_BITS = (({"kind": "int4"}, "int4"), ({"kind": "int4", "zero_points": True}, "awq"), ({"kind": "gptq"}, "int4"), ({"kind": "awq"}, "awq"),
             ({"kind": "nvfp4"}, "nvfp4"), ({"kind": "modelopt nvfp4"}, "nvfp4"))
OSS = {"kind": "mxfp4", "activation": "swigluoai", "bias": True}
BF16 = "torch.bfloat16"
NO_ROW = "no tuned row answers its sizes"
TABLES = {}


def tuned(name, kind=None, **columns):
    return tuned_file(Path(TABLES["folder"]) / f"{name}.csv", {**KINDS[kind][0], **columns})


def setUpModule():
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    TABLES["folder"] = folder.name
    for kind in KINDS:
        TABLES[kind] = tuned(kind, kind, inter_dim=128 if kind == "fp8" else 64, act_type="Swiglu" if kind == "mxfp4" else "Silu")


def inputs(tokens, k=128, experts=8, dtype=torch.bfloat16):
    random = torch.Generator().manual_seed(tokens)
    return torch.randn(tokens, k, generator=random).to(dtype), torch.randn(tokens, experts, generator=random)


class GpuMixtures(Process):
    def setUp(self):
        self.addCleanup(gemmtune.use)
        self.enterContext(torch.inference_mode())

    def begin(self, tables, **double):
        self.context = gemmtune.use(tables)
        vllm = self.start(**double)
        self.assertEqual(self.log, [])
        return vllm

    def made(self, kind=None, **options):
        return self.vllm.GpuExperts(kind, **{"n": 128 if kind == "fp8" else 64, **options})

    def loaded(self, **options):
        return self.load(lambda: nn.ModuleDict({"experts": self.made(**options)}), tokens=64)["experts"]

    def check(self, layer, ours, tuned=(3, 4), tolerance=1e-2, tokens=(4, 3, 40)):
        """ours: sizes that run gemmtune's kernels; tuned: those that a row answers."""
        for m in tokens:
            x, logits = inputs(m, layer.moe_config.hidden_dim_unpadded, dtype=layer.moe_config.in_dtype)
            calls, before = self.vllm.calls["gpu experts"], gemmtune_vllm.report()["calls"]
            y = layer(x, logits)
            self.assertEqual((y.shape, y.dtype, self.vllm.calls["gpu experts"] - calls), (x.shape, x.dtype, 0 if m in ours else 1), m)
            close(self, y, layer.reference(x, logits), tolerance)
            after = gemmtune_vllm.report()["calls"]
            used = {name: after[name] - before[name] for name in after}
            self.assertEqual(used, {"tuned": m in ours and m in tuned, "without_row": m in ours and m not in tuned}, m)

    def test_sizes_with_a_row_run_ours_and_others_vllms(self):
        for kind in (None, "fp8", "int8"):
            with self.subTest(kind=kind):
                self.begin(TABLES[kind])
                layer = self.loaded(kind=kind)
                self.assertIn("0 of 0 linear layers and 1 of 1 mixtures of experts have tuned kernels; 1 plans for 3 CUDA-graph sizes", self.line)
                self.check(layer, ours=(3, 4), tolerance=KINDS[kind][1])

    def test_layers_without_rows_are_vllms(self):
        for options in ({}, {"kind": "fp8"}, OSS, {**OSS, "backend": "MARLIN"}):
            with self.subTest(**options):
                self.begin({})
                layer = self.loaded(**options)
                self.assertEqual(gemmtune_vllm.report()["left"], {"experts": NO_ROW})
                self.check(layer, ours=(), tolerance=6e-2)

    def test_repacked_layers_are_whole_ours(self):
        """Also of a kernel that chooses experts itself, and without the zeros that another one pads with."""
        for backend in ("TRITON", "MARLIN"):
            with self.subTest(backend):
                self.begin(TABLES["mxfp4"])
                layer = self.loaded(**OSS, backend=backend)
                # 1, 4 and 16 tokens, powers of two up to 64.
                self.assertIn("1 of 1 mixtures of experts have tuned kernels; 7 plans", self.line)
                self.check(layer, ours=(3, 4, 40))
                self.assertEqual(layer(inputs(4)[0][:0], inputs(4)[1][:0]).shape, (0, 128))
                self.assertEqual((layer.w13_weight.shape, layer.w2_weight.shape, layer.w13_weight_scale.shape, layer.w2_bias.shape),
                                 ((8, 128, 64), (8, 128, 32), (8, 128, 4), (8, 128)))

    def test_experts_of_4_bits_are_whole_ours(self):
        """vLLM's parameters are gone: what is there is gemmtune's, of the checkpoint's size."""
        for options, table in OF_4_BITS:
            with self.subTest(**options):
                self.begin(TABLES[table])
                layer = self.loaded(**options)
                self.assertIn("1 of 1 mixtures of experts have tuned kernels; 7 plans", self.line)
                self.check(layer, ours=(3, 4, 40))
                weight = "qweight" if options["kind"] in ("gptq", "awq") else "weight"
                scale, groups = (torch.float8_e4m3fn, 8) if table == "nvfp4" else (torch.bfloat16, 4)
                expected = {f"w13_{weight}": ((8, 128, 64), torch.uint8), f"w2_{weight}": ((8, 128, 32), torch.uint8),
                            "w13_weight_scale": ((8, 128, groups), scale), "w2_weight_scale": ((8, 128, groups // 2), scale)}
                if table == "awq":
                    expected |= {"w13_zero_points": ((8, 128, 4), torch.int8), "w2_zero_points": ((8, 128, 2), torch.int8)}
                if table == "nvfp4":
                    expected |= {"w13_global_scale": ((8,), torch.float32), "w2_global_scale": ((8,), torch.float32)}
                self.assertEqual({name: (tuple(one.shape), one.dtype) for name, one in layer.named_parameters()}, expected)

    def test_groups_of_int4(self):
        for group, word in ((64, 64), (-1, "row")):
            table = tuned(f"group {group}", "int4", group=word, model_dim=256)
            for kind in ("int4", "gptq"):
                self.begin(table)
                self.check(self.loaded(kind=kind, group=group, k=256), ours=(3, 4, 40))
        self.assertEqual(self.vllm.calls["gpu experts"], 0)

    def test_layers_of_newer_versions(self):
        """As newer versions of vLLM store them: outputs first. Those of GPTQ have the name weight when they run, and biases that the checkpoint
        lacks."""
        self.begin(TABLES["awq"])
        self.vllm.Int4Method.transposed = False
        self.check(self.loaded(kind="int4", zero_points=True), ours=(3, 4, 40))
        self.begin(TABLES["int4"])
        self.vllm.GptqMethod.run = "weight"

        def make():
            layer = self.made("gptq")
            layer.w13_bias, layer.w2_bias = (nn.Parameter(torch.zeros(8, 128).bfloat16(), requires_grad=False) for _ in range(2))
            layer._loaded_expert_biases = set()
            return nn.Sequential(layer)

        layer = self.load(make, tokens=64)[0]
        self.assertFalse(hasattr(layer, "w13_bias"))
        self.check(layer, ours=(3, 4, 40))

    def test_rows_of_gate_and_up_that_alternate(self):
        for kind, table in (("awq", "awq"), ("nvfp4", "nvfp4")):
            self.begin(tuned(f"alternating {table}", table, act_type="Swiglu"))
            self.check(self.loaded(kind=kind, activation="swigluoai"), ours=(3, 4, 40))

    def test_global_scales_of_gate_and_up_that_differ(self):
        """vLLM takes gate's for both."""
        for kind in ("nvfp4", "modelopt nvfp4"):
            self.begin(TABLES["nvfp4"])
            self.check(self.loaded(kind=kind, up_over_gate=1.5), ours=(3, 4, 40))
        self.begin(tuned("swiglu", "nvfp4", act_type="Swiglu"))
        self.loaded(kind="nvfp4", activation="swigluoai", up_over_gate=2)
        self.assertRegex(gemmtune_vllm.report()["left"]["experts"], r"^gate and up of expert 0 have the global scales [\d.]+ and [\d.]+$")

    def test_a_scale_that_is_no_number(self):
        """Of a group: the tokens of its expert have none. Of a whole expert: the layer is vLLM's."""
        for kind, table in (("nvfp4", "nvfp4"), ("int4", "int4")):
            self.begin(TABLES[table])

            def make(kind=kind):
                layer = self.made(kind)
                layer.w2_weight_scale.data[3, 0, 0] = math.nan
                return nn.ModuleDict({"experts": layer})

            layer = self.load(make)["experts"]
            x, logits = inputs(40)
            chosen = (vllm_gpu_mixtures_double.routed(logits, 2)[1] == 3).any(1)
            y = layer(x, logits)
            self.assertTrue(chosen.any())
            self.assertTrue(y[chosen].isnan().any(1).all())
            close(self, y[~chosen], layer.reference(x, logits)[~chosen], 1e-2)
        self.begin(TABLES["nvfp4"])

        def make_without():
            layer = self.made("modelopt nvfp4")
            layer.w2_weight_scale_2.data[5] = math.nan
            return nn.ModuleDict({"experts": layer})

        layer = self.load(make_without)["experts"]
        self.assertIn("InvalidArgument: weight_scale_2 = nan, expected a positive number", gemmtune_vllm.report()["left"]["experts"])
        self.check(layer, ours=())

    def test_sizes_of_ranks_that_split_a_group(self):
        """Of 80 elements of a rank, in three groups of 32, vLLM has padded 16 and more."""
        self.begin(tuned("split", "mxfp4", inter_dim=96, act_type="Swiglu"))

        def make():
            layer = self.made(**OSS, n=96, backend="MARLIN")
            layer.moe_config.intermediate_size_per_partition_unpadded = 80
            return nn.Sequential(layer)

        layer = self.load(make)[0]
        self.assertEqual(layer.w2_weight.shape, (8, 128, 48))
        self.check(layer, ours=(3, 4, 40))

    def test_weights_have_no_second_copy(self):
        for options in ({}, OSS):
            self.begin({**TABLES["mxfp4" if options else None]})
            made = []

            def make(options=options):
                made.append(self.made(**options))
                made.append(made[0].w13_weight.data_ptr())
                return nn.Sequential(made[0])

            layer = self.load(make)[0]
            self.assertEqual(layer.w13_weight.data_ptr(), made[1])

    def test_router_weights_on_input_and_fp16(self):
        self.begin(tuned("llama4", topk=1, dtype="fp16", q_dtype_a="fp16", q_dtype_w="fp16"))
        self.check(self.loaded(topk=1, apply_router_weight_on_input=True, dtype=torch.float16), ours=(3, 4))

    def test_expert_map(self):
        """Of 16 experts the odd ones are here."""
        experts = torch.full((16,), -1, dtype=torch.int32)
        experts[1::2] = torch.arange(8, dtype=torch.int32)
        self.begin(TABLES[None])
        layer = self.loaded(expert_map=experts)
        x, logits = inputs(4, experts=16)
        close(self, layer(x, logits), layer.reference(x, logits), 1e-2)
        self.assertEqual(self.vllm.calls["gpu experts"], 0)

    def test_layers_of_other_kinds_are_left(self):
        wrong = {"limit": ({"swiglu_limit": 9.0}, "its swiglu_limit is 9.0"), "lora": ({"lora": True}, "LoRA is enabled"),
                 "alternates": ({"activation": "swigluoai"}, "its rows of gate and up alternate"),
                 "class": ({"unknown": True}, "UnknownExperts is not known"),
                 "static": ({"kind": "fp8", "static": True}, "TritonExperts with static scales is not known"),
                 "ranks": ({"dp_size": 2}, "its tokens are exchanged between data-parallel ranks"),
                 "chosen": ({"moe_backend": "triton"}, "--moe-backend is triton"),
                 "exchange": ({"exchanges": True}, "Monolithic is not known"),
                 "x": ({**OSS, "backend": "DEEPGEMM_MXFP4"}, "DEEPGEMM_MXFP4 for MXFP4 experts is not known"),
                 "fp4 x": ({"kind": "nvfp4", "backend": "FLASHINFER_CUTLASS"}, "FLASHINFER_CUTLASS for NVFP4 experts is not known"),
                 "trtllm": ({"kind": "int4", "backend": "FLASHINFER_TRTLLM"}, "FLASHINFER_TRTLLM for int4 experts is not known"),
                 "triton": ({"kind": "int4 by Triton"}, "CompressedTensorsWNA16MoEMethod for int4 experts is not known"),
                 "bits": ({"kind": "gptq", "bits": 8}, "MARLIN for int8 experts is not known"),
                 "desc_act": ({"kind": "gptq", "desc_act": True}, "the order of its inputs is another one (desc_act)"),
                 "actorder": ({"kind": "int4", "actorder": vllm_gpu_mixtures_double.ActivationOrdering.GROUP},
                              "the order of its inputs is another one (desc_act)"),
                 "group": ({"kind": "awq", "group": 16}, "its groups have 16 elements"),
                 "zero points": ({"kind": "awq", "zero_points": False}, "it has no zero points")}
        self.begin({**TABLES[None]})
        self.load(lambda: nn.ModuleDict({name: self.made(**options) for name, (options, _) in wrong.items()}))
        self.assertEqual(gemmtune_vllm.report()["left"], {name: why for name, (_, why) in wrong.items()})

    def test_weights_that_are_loaded_again(self):
        """As reinforcement learning does: the checkpoint's form comes again, outside of load_model."""
        for options, table in (({}, None), ({"kind": "fp8"}, "fp8"), (OSS, "mxfp4"), ({**OSS, "backend": "MARLIN"}, "mxfp4"), *OF_4_BITS):
            kind = options.get("kind")
            with self.subTest(**options):
                self.begin(TABLES[table])
                layer = self.loaded(**options)
                for seed in (1, 2):
                    layer.moe_config.intermediate_size_per_partition, layer.moe_config.hidden_dim = layer.quant_method.round_up(128 if kind == "fp8" else 64, 128)
                    layer.load(kind, 8, 128 if kind == "fp8" else 64, 128, options.get("bias", False), torch.bfloat16, seed)
                    layer.quant_method.process_weights_after_loading(layer)
                    self.check(layer, ours=(3, 4) if kind in (None, "fp8") else (3, 4, 40), tolerance=KINDS[table][1])

    def test_shapes_are_recorded(self):
        for options, row in (({}, "8,128,64,8,2,ActivationType.Silu,"), ({**OSS, "backend": "TRITON"}, "8,128,64,8,2,ActivationType.Swiglu,"),
                             ({**OSS, "backend": "MARLIN"}, "8,128,64,8,2,ActivationType.Swiglu,"),
                             ({"kind": "awq"}, f"8,128,64,8,2,ActivationType.Silu,{BF16},{BF16},torch.int4,QuantType.per_group,1,0,32,True"),
                             ({"kind": "nvfp4"}, f"8,128,64,8,2,ActivationType.Silu,{BF16},{BF16},torch.float4_e2m1fn_x2,QuantType.per_1x16,1,0")):
            with self.subTest(**options), tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"GEMMTUNE_CAPTURE": folder}):
                self.begin({})
                layer = self.loaded(**options)
                for m in (6, 5):
                    x, logits = inputs(m)
                    close(self, layer(x, logits), layer.reference(x, logits), 1e-2)
                self.assertEqual(self.vllm.calls["gpu experts"], 2)
                self.context.flush_capture()
                found, = (Path(folder) / "untuned_fmoe.csv").read_text().splitlines()[1:]
                self.assertTrue(found.startswith(row), found)
                gemmtune.use()

    def test_a_failure_leaves_vllm_running(self):
        for options in ({}, OSS):
            self.begin(TABLES[options.get("kind")])
            with mock.patch("gemmtune_vllm.mixtures.Mixture.problem", side_effect=OSError("disk")):
                layer = self.loaded(**options)
            self.assertEqual(gemmtune_vllm.report()["left"], {"experts": "OSError: disk"})
            self.check(layer, ours=())

    def test_another_interface(self):
        module = vllm_gpu_mixtures_double.FUSED_MOE
        quantization = vllm_gpu_mixtures_double.QUANTIZATION
        parts = ", ".join(f"{kind}mixtures on GPUs" for kind in ("", "MXFP4 ", "int4 ", "AWQ ", "GPTQ ", "NVFP4 ", "ModelOpt NVFP4 "))
        for without, part in ((f"{module}.modular_kernel.FusedMoEKernel", parts),
                              (f"{quantization}.mxfp4.GptOssMxfp4MoEMethod", "MXFP4 mixtures on GPUs"),
                              (f"{quantization}.auto_awq.AutoAWQMoEMethod", "AWQ mixtures on GPUs")):
            self.context = gemmtune.use(TABLES[None])
            self.start(without=[without])
            self.assertEqual(len(self.log), 1)
            self.assertIn(f"gemmtune: no {part} layers: ", self.log[0])
            self.assertEqual(self.log[0].count(f"no {without} ("), 1)
            x, logits = inputs(4)
            layer = self.loaded()
            close(self, layer(x, logits), layer.reference(x, logits), 1e-2)
            self.assertEqual(self.vllm.calls["gpu experts"], int("FusedMoEKernel" in without))


if __name__ == "__main__":
    unittest.main()
