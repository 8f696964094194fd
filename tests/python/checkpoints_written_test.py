"""gemmtune.checkpoints on files that compressed-tensors and ModelOpt write, and on experts that transformers dequantizes. The operands stand
for the weights that the writers' own dequantization gives.

Usage: checkpoints_written_test.py CACHE      (the folder of tools/checkpoint_environment.py is below it)"""

import os
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

import needs_torch  # noqa: F401
import torch
from quantized import values
from safetensors.torch import save_file
from torch import nn

from gemmtune import checkpoints, errors

TOOL = Path(__file__).resolve().parents[2] / "tools" / "checkpoint_environment.py"
found = subprocess.run([sys.executable, str(TOOL), "--find"], capture_output=True, text=True, check=False,
                       env={**os.environ, "XDG_CACHE_HOME": sys.argv[1]}).stdout.strip()
if not found:
    print(f"SKIPPED: compressed-tensors and ModelOpt are not here: tools/{TOOL.name} installs them")
    sys.exit(77)
sys.path.append(subprocess.run([found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True, capture_output=True,
                               text=True).stdout.strip())
warnings.simplefilter("ignore")

import modelopt.torch.quantization as modelopt  # noqa: E402
from compressed_tensors.compressors import BaseCompressor, ModelCompressor  # noqa: E402
from compressed_tensors.compressors.nvfp4 import unpack_fp4_from_uint8  # noqa: E402
from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import dequantize  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam  # noqa: E402
from modelopt.torch.export import export_hf_checkpoint  # noqa: E402
from modelopt.torch.quantization.qtensor import NVFP4QTensor  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402
from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # noqa: E402


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up_proj, self.down_proj, self.gate = nn.Linear(64, 20), nn.Linear(128, 40, bias=False), nn.Linear(64, 8)


INT4 = {"num_bits": 4, "type": "int"}
NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


class CompressedTensors(unittest.TestCase):
    def write(self, groups, dtype):
        """A model whose linear layers have these config_groups, as (its folder, compressed modules by name)."""
        model = Mlp().to(dtype)
        apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["gate"]))
        quantized = {name: module for name, module in model.named_modules() if hasattr(module, "quantization_scheme")}
        for module in quantized.values():
            self.calibrate(module, module.quantization_scheme.weights)
        compressor = ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        save_file(model.state_dict(), folder / "model.safetensors")
        compressor.update_config(folder)
        return folder, quantized

    @staticmethod
    def calibrate(module, arguments):
        """Scales and zero points of the weight, as the library's own functions compute them."""
        parts = module.weight.detach().unflatten(-1, (-1, arguments.group_size or module.weight.shape[1]))
        low, high = parts.amin(-1), parts.amax(-1)
        global_scale = None
        if hasattr(module, "weight_global_scale"):
            global_scale = module.weight_global_scale.data = generate_gparam(low.min(), high.max())
            if hasattr(module, "input_global_scale"):
                module.input_global_scale.data.fill_(37)
        scale, zero_point = calculate_qparams(low, high, arguments, global_scale=global_scale)
        module.weight_scale.data = scale.to(module.weight_scale.dtype)
        if not arguments.symmetric:
            module.weight_zero_point.data = zero_point.to(module.weight_zero_point.dtype)

    def compare_int4(self, weight, module):
        """The library dequantizes in the dtype of the scales."""
        tensors = {**module.state_dict(), "weight_scale": module.weight_scale.double()}
        exact = BaseCompressor.get_value_from_registry("pack-quantized").decompress(tensors, module.quantization_scheme)["weight"]
        self.assertEqual(exact.dtype, torch.float64)
        self.assertTrue(torch.equal(values(weight), exact))
        self.assertGreater(exact.abs().max(), 0)

    def compare_nvfp4(self, weight, module):
        rows, half = module.weight_packed.shape
        exact = dequantize(unpack_fp4_from_uint8(module.weight_packed, rows, half * 2).double(), module.weight_scale.double(),
                           args=module.quantization_scheme.weights, global_scale=module.weight_global_scale.double(), dtype=torch.float64)
        self.assertTrue(torch.allclose(values(weight), exact, rtol=2**-23, atol=0))  # one rounding of the reciprocal
        self.assertGreater(exact.abs().max(), 0)

    def test_int4(self):
        grouped, channel = {**INT4, "strategy": "group", "group_size": 32}, {**INT4, "strategy": "channel"}
        int8 = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
        for weights in (grouped, {**grouped, "group_size": 64, "symmetric": False}, channel, {**channel, "symmetric": False}):
            for dtype in (torch.bfloat16, torch.float16):
                for x, operation in ((None, "a16w4_int4"), (int8, "a8w4_int4")):
                    with self.subTest(weights=weights, dtype=dtype, x=x):
                        folder, modules = self.write({"group": {"targets": ["Linear"], "weights": weights, "input_activations": x, "format": "pack-quantized"}}, dtype)
                        checkpoint = checkpoints.Checkpoint(folder)
                        self.assertEqual(sorted(checkpoint.layers()), ["down_proj", "up_proj"])
                        for name, module in modules.items():
                            weight = checkpoint.read_layer(name)
                            self.assertEqual((weight.operation, weight.w_scale.dtype, weight.w_zero_points is None),
                                             (operation, dtype, weights.get("symmetric", True)))
                            self.assertEqual(weight.group, weights.get("group_size", module.weight_shape[1].item()))
                            self.compare_int4(weight, module)
                        self.assertTrue(torch.equal(checkpoint.read_layer("up_proj").bias, modules["up_proj"].bias))

    def test_nvfp4(self):
        for x, operation in ((None, "a16w4_nvfp4"), ({**NVFP4, "dynamic": "local"}, "a4w4_nvfp4")):
            with self.subTest(operation):
                folder, modules = self.write({"group": {"targets": ["Linear"], "weights": NVFP4, "input_activations": x}}, torch.bfloat16)
                checkpoint = checkpoints.Checkpoint(folder)
                for name, module in modules.items():
                    weight = checkpoint.read_layer(name)
                    self.assertEqual(weight.operation, operation)
                    self.assertEqual(weight.x_global_scale, None if x is None else 1 / torch.tensor([37.0]))
                    self.compare_nvfp4(weight, module)

    def test_both_in_one_model(self):
        folder, modules = self.write({"all": {"targets": ["Linear"], "weights": {**INT4, "strategy": "group", "group_size": 32}},
                                      "down": {"targets": ["re:.*down_proj"], "weights": NVFP4}}, torch.bfloat16)
        checkpoint = checkpoints.Checkpoint(folder)
        self.compare_int4(checkpoint.read_layer("up_proj"), modules["up_proj"])
        self.compare_nvfp4(checkpoint.read_layer("down_proj"), modules["down_proj"])
        with self.assertRaisesRegex(errors.NotFound, 'gate is not quantized: .*ignore has "gate"'):
            checkpoint.read_layer("gate")


class ModelOpt(unittest.TestCase):
    def test_nvfp4(self):
        torch.manual_seed(2)
        for recipe, operation in ((modelopt.NVFP4_DEFAULT_CFG, "a4w4_nvfp4"), (modelopt.W4A16_NVFP4_CFG, "a16w4_nvfp4")):
            with self.subTest(operation):
                config = LlamaConfig(vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4,
                                     num_key_value_heads=2, architectures=["LlamaForCausalLM"])  # the export changes it
                model = LlamaForCausalLM(config).bfloat16()
                before = {name: parameter.detach().double() for name, parameter in model.named_parameters()}
                model = modelopt.quantize(model, recipe, lambda model: model(torch.arange(16)[None]))
                folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
                export_hf_checkpoint(model, export_dir=folder)
                for with_config in (True, False):  # then of hf_quant_config.json alone
                    if not with_config:
                        (folder / "config.json").write_text("{}")
                    checkpoint = checkpoints.Checkpoint(folder)
                    self.assertEqual(len(checkpoint.layers()), 7)
                    for name in checkpoint.layers():
                        weight = checkpoint.read_layer(name)
                        self.assertEqual((weight.operation, weight.x_global_scale is None), (operation, operation == "a16w4_nvfp4"))
                        rows, half = weight.w.shape
                        exact = NVFP4QTensor((rows, half * 2), torch.float64, weight.w).dequantize(
                            torch.float64, scale=weight.w_scale.double(), double_scale=weight.w_global_scale.double(), block_sizes={-1: 16})
                        self.assertTrue(torch.equal(values(weight), exact))
                        original = before[f"{name}.weight"]
                        self.assertLess((exact - original).norm(), 0.2 * original.norm())  # so the scales are this weight's


class GptOss(unittest.TestCase):
    def test_as_transformers_dequantizes(self):
        blocks = torch.randint(0, 256, (3, 10, 4, 16), dtype=torch.uint8)
        scales = torch.randint(100, 150, (3, 10, 4), dtype=torch.uint8)
        exact = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
        self.assertTrue(torch.equal(values(checkpoints.gpt_oss_mxfp4(blocks, scales)), exact.double()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
