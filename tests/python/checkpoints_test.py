"""gemmtune.checkpoints: each packing against float64, damaged tensors, and files with their configs. Files of the quantizers' own code are
in checkpoints_written_test.py."""

import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

import needs_torch  # noqa: F401
import torch
from quantized import Int4, random_nvfp4, values

try:
    from safetensors.torch import save_file
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

import gemmtune  # noqa: E402
from gemmtune import Error, checkpoints, errors  # noqa: E402
from gemmtune.checkpoints import QuantizedWeight  # noqa: E402

torch.manual_seed(5)
DEVICES = ("cpu", "cuda")[:1 + torch.cuda.is_available()]


def shuffled_groups(k, seed=3):
    return torch.randperm(k, generator=torch.Generator().manual_seed(seed))


def modelopt(n=24, k=64):
    weight, scale = random_nvfp4(n, k)
    return {"weight": weight, "weight_scale": scale, "weight_scale_2": torch.tensor(0.037), "input_scale": torch.tensor(0.011)}


def compressed_nvfp4(n=24, k=64):
    weight, scale = random_nvfp4(n, k)
    return {"weight_packed": weight, "weight_scale": scale, "weight_global_scale": torch.tensor([27.0]), "input_global_scale": torch.tensor([91.0])}


def gpt_oss(experts=3, n=10, k=64):
    return {"blocks": torch.randint(0, 256, (experts, n, k // 32, 16), dtype=torch.uint8), "scales": torch.randint(0, 255, (experts, n, k // 32), dtype=torch.uint8)}


def int4_cases():
    """(name, function, tensors, arguments, expected values): every group, both ends of the zero points, both dtypes, odd N."""
    for n, k, group in ((24, 64, 32), (16, 128, 64), (8, 256, 128), (16, 96, -1)):
        for dtype in (torch.float16, torch.bfloat16):
            layer = Int4(n, k, group, dtype=dtype)
            yield "awq", checkpoints.awq, layer.awq(), {"group": group}, layer.values()
            layer = Int4(n, k, group, (1, 16), dtype)
            yield "gptq", checkpoints.gptq, layer.gptq(), {"group": group}, layer.values()
            layer = Int4(n, k, group, (0, 15), dtype)
            yield "gptq_v2", checkpoints.gptq, layer.gptq(v2=True), {"group": group, "v2": True}, layer.values()
            layer = Int4(n + 3, k, group, (0, 15), dtype)
            yield "pack-quantized", checkpoints.compressed_int4, layer.compressed(), {"group": group}, layer.values()
    layer = Int4(16, 128, 32, (1, 16), order=shuffled_groups(128))
    yield "desc_act", checkpoints.gptq, layer.gptq(), {"group": 32}, layer.values()
    layer = Int4(16, 128, 32, order=shuffled_groups(128))
    yield "actorder", checkpoints.compressed_int4, layer.compressed(), {"group": 32}, layer.values()
    layer = Int4(5, 14, -1)
    yield "K of no whole word", checkpoints.compressed_int4, layer.compressed(), {"group": -1}, layer.values()


class Packings(unittest.TestCase):
    def test_int4(self):
        for name, function, tensors, arguments, expected in int4_cases():
            with self.subTest(name, group=arguments["group"], dtype=tensors.get("scales", tensors.get("weight_scale")).dtype):
                weight = function(**tensors, **arguments)
                self.assertTrue(torch.equal(values(weight), expected))
                n, k = expected.shape
                self.assertEqual((weight.w.dtype, weight.w.shape, weight.w.is_contiguous()), (torch.uint8, (n, k // 2), True))
                groups = (n, k // weight.group)
                self.assertEqual((weight.w_scale.shape, weight.w_scale.is_contiguous()), (groups, True))
                self.assertEqual((weight.w_zero_points.dtype, weight.w_zero_points.shape, weight.w_zero_points.is_contiguous()), (torch.int8, groups, True))
                self.assertEqual(weight.k_order is not None, name in ("desc_act", "actorder"))
                self.assertEqual(weight.operation, "a16w4_int4")
                for device in DEVICES[1:]:
                    there = function(**{name: tensor.to(device) for name, tensor in tensors.items()}, **arguments)
                    for field in ("w", "w_scale", "w_zero_points", "k_order"):
                        found, expected_field = getattr(there, field), getattr(weight, field)
                        self.assertTrue(found is expected_field or found.device.type == device and torch.equal(found.cpu(), expected_field), field)

    def test_a_permuted_input_gives_the_product(self):
        layer = Int4(16, 128, 32, (1, 16), order=shuffled_groups(128))
        weight = checkpoints.gptq(**layer.gptq(), group=32)
        x = torch.randint(-4, 5, (3, 128)).double()
        plain = values(checkpoints.QuantizedWeight(weight.operation, weight.w, weight.w_scale, weight.group, weight.w_zero_points))
        self.assertTrue(torch.allclose(x[:, weight.k_order] @ plain.t(), x @ layer.values().t(), rtol=1e-12, atol=1e-12))

    def test_symmetric(self):
        layer = Int4(16, 64, 32, (8, 8))
        for v2 in (False, True):
            weight = checkpoints.gptq(**layer.gptq(v2), group=32, symmetric=True, v2=v2)
            self.assertIsNone(weight.w_zero_points)
            self.assertTrue(torch.equal(values(weight), layer.values()))
            with self.assertRaisesRegex(Error, f"qzeros has zero point {9 if v2 else 7} of output 0 and group 0, expected 8: .* sym, and the format gptq"):
                checkpoints.gptq(**layer.gptq(v2), group=32, symmetric=True, v2=not v2)
        tensors = layer.compressed()
        del tensors["weight_zero_point"]
        weight = checkpoints.compressed_int4(**tensors, group=32)
        self.assertIsNone(weight.w_zero_points)
        self.assertTrue(torch.equal(values(weight), layer.values()))

    def test_groups_that_are_not_whole_are_refused(self):
        tensors = Int4(8, 128, 32).gptq()
        tensors["g_idx"] = tensors["g_idx"].clone()
        tensors["g_idx"][0] = 2
        with self.assertRaisesRegex(Error, "g_idx has 31 inputs in group 0, expected 32 in each of 4 groups"):
            checkpoints.gptq(**tensors, group=32)
        for group in (4, -1):
            tensors["g_idx"][0] = group
            with self.assertRaisesRegex(Error, f"g_idx has group {group}, expected 0 to 3"):
                checkpoints.gptq(**tensors, group=32)

    def test_nvfp4_is_a_view(self):
        for tensors, function, packed, of_w, of_x in ((modelopt(), checkpoints.modelopt_nvfp4, "weight", torch.tensor(0.037), torch.tensor(0.011)),
                                                      (compressed_nvfp4(), checkpoints.compressed_nvfp4, "weight_packed", 1 / torch.tensor(27.0), 1 / torch.tensor(91.0))):
            weight = function(**tensors)
            self.assertEqual((weight.w.data_ptr(), weight.w_scale.data_ptr()), (tensors[packed].data_ptr(), tensors["weight_scale"].data_ptr()))
            self.assertEqual((weight.operation, weight.group, weight.w_global_scale.shape), ("a4w4_nvfp4", 16, (1,)))
            self.assertEqual((weight.w_global_scale.item(), weight.x_global_scale.item()), (of_w.item(), of_x.item()))
            del tensors["input_scale" if "input_scale" in tensors else "input_global_scale"]
            weight = function(**tensors)
            self.assertEqual((weight.operation, weight.x_global_scale), ("a16w4_nvfp4", None))

    def test_gpt_oss_is_a_view(self):
        tensors = gpt_oss()
        weight = checkpoints.gpt_oss_mxfp4(**tensors)
        self.assertEqual((weight.w.data_ptr(), weight.w_scale.data_ptr()), (tensors["blocks"].data_ptr(), tensors["scales"].data_ptr()))
        self.assertEqual((weight.operation, weight.group, weight.w.shape, weight.w_scale.shape), ("fused_moe", 32, (3, 10, 32), (3, 10, 2)))

    def test_global_scales_out_of_range(self):
        for function, tensors, names in ((checkpoints.modelopt_nvfp4, modelopt(), ("weight_scale_2", "input_scale")),
                                         (checkpoints.compressed_nvfp4, compressed_nvfp4(), ("weight_global_scale", "input_global_scale"))):
            for name in names:
                for value in (0.0, -1.0, float("nan"), float("inf"), 1e-40, 3e38):
                    with self.assertRaisesRegex(Error, f"{name} = .*, expected a positive number"):
                        function(**{**tensors, name: torch.full_like(tensors[name], value)})


def damaged(tensor, generator):
    """A tensor of another shape or dtype, or none."""
    def resized(dimension, size):
        shape = list(tensor.shape)
        shape[dimension] = size
        return torch.zeros(shape, dtype=tensor.dtype)

    choices = [lambda: None, tensor.tolist, lambda: tensor.unsqueeze(0), lambda: tensor.reshape(-1, 1, 1), lambda: tensor.to("meta")]
    choices += [lambda: tensor.to(dtype) for dtype in (torch.float64, torch.int16, torch.bool) if dtype != tensor.dtype]
    if tensor.ndim:
        dimension = generator.randrange(tensor.ndim)
        size = tensor.shape[dimension]
        choices += [lambda: resized(dimension, size + 1), lambda: resized(dimension, size * 2), lambda: resized(dimension, 0), lambda: resized(dimension, size - 1),
                    lambda: tensor[0]]
    return generator.choice(choices)()


class Damage(unittest.TestCase):
    optional = ("g_idx", "weight_g_idx", "weight_zero_point", "input_scale", "input_global_scale")

    def cases(self):
        layer = Int4(24, 128, 32, (1, 15), order=shuffled_groups(128))
        yield checkpoints.awq, Int4(24, 128, 32).awq(), {"group": 32}
        yield checkpoints.gptq, layer.gptq(), {"group": 32}
        yield checkpoints.compressed_int4, layer.compressed(), {"group": 32}
        yield checkpoints.compressed_nvfp4, compressed_nvfp4(), {}
        yield checkpoints.modelopt_nvfp4, modelopt(), {}
        yield checkpoints.gpt_oss_mxfp4, gpt_oss(), {}

    def test_a_damaged_tensor_is_an_error_with_names(self):
        generator = random.Random(7)
        for function, tensors, arguments in self.cases():
            for _ in range(150):
                name = generator.choice(sorted(tensors))
                other = damaged(tensors[name], generator)
                if other is None and name in self.optional or getattr(other, "shape", None) in ((), (1,)) and other.dtype == torch.float32:
                    continue  # which are right, too
                with self.subTest(function.__name__, tensor=name, other=getattr(other, "shape", other), dtype=getattr(other, "dtype", None)):
                    with self.assertRaisesRegex(Error, r"^\w+ (is|has|=) .*, expected .*"):
                        function(**{**tensors, name: other}, **arguments)

    def test_a_group_that_does_not_divide(self):
        for function, tensors, _ in list(self.cases())[:3]:
            for group in (0, 48, -2, None, 32.0):
                with self.assertRaisesRegex(Error, f"group_size = {group}, expected a divisor of K = 128"):
                    function(**tensors, group=group)


def config_of(method, **changes):
    weights = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32, "actorder": "group"}
    nvfp4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
    configs = {"awq": {"bits": 4, "group_size": 32, "version": "gemm", "zero_point": True, "modules_to_not_convert": ["lm_head"]},
               "gptq": {"bits": 4, "group_size": 32, "desc_act": True, "sym": False, "checkpoint_format": "gptq", "dynamic": {"-:lm_head": {}, "+:.*other": {"bits": 8}}},
               "compressed-tensors": {"format": "mixed-precision", "ignore": ["lm_head", "re:.*gate$"], "config_groups": {
                   "group_0": {"targets": ["Linear"], "format": "pack-quantized", "weights": weights},
                   "group_1": {"targets": ["re:.*down_proj"], "format": "nvfp4-pack-quantized", "weights": nvfp4, "input_activations": {"num_bits": 4, "type": "float"}}}},
               "modelopt": {"quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.7*"]},
               "mxfp4": {"modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}}
    return {"quant_method": method, **configs[method], **changes}


def result_dtype(tensors):
    """Of the results of a layer."""
    return tensors.get("scales", tensors.get("weight_scale")).dtype if "weight_scale_2" not in tensors else torch.bfloat16


PREFIX = "model.layers.0.mlp."


def write(folder, config, layers, separator=".", shards=1):
    """A checkpoint of layers (name to tensors); of several shards with an index."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    tensors = {f"{layer}{separator}{name}": tensor.contiguous() for layer, its in layers.items() for name, tensor in its.items()}
    names = [f"model-{shard + 1:05}-of-{shards:05}.safetensors" for shard in range(shards)] if shards > 1 else ["model.safetensors"]
    files = {tensor: names[place % shards] for place, tensor in enumerate(tensors)}
    for name in names:
        save_file({tensor: tensors[tensor] for tensor, file in files.items() if file == name}, folder / name)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


class Folder(unittest.TestCase):
    def write(self, *arguments, **options):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        write(folder, *arguments, **options)
        return folder

    def checkpoint(self, method, layers, separator=".", **changes):
        return checkpoints.Checkpoint(self.write({"quantization_config": config_of(method, **changes)}, layers, separator))

    def test_layers_of_each_method(self):
        awq, gptq, packed = Int4(24, 64, 32), Int4(24, 64, 32, (1, 16), order=shuffled_groups(64)), Int4(24, 64, 32, order=shuffled_groups(64))
        bias = torch.rand(24).half()
        for method, layers, expected in (
                ("awq", {"up_proj": {**awq.awq(), "bias": bias}}, {"up_proj": awq.values()}),
                ("gptq", {"up_proj": gptq.gptq()}, {"up_proj": gptq.values()}),
                ("compressed-tensors", {"up_proj": packed.compressed(), "down_proj": compressed_nvfp4()}, {"up_proj": packed.values(), "down_proj": None}),
                ("modelopt", {"up_proj": modelopt()}, {"up_proj": None})):
            layers = {PREFIX + name: tensors for name, tensors in layers.items()}
            folder = self.write({"quantization_config": config_of(method)}, {**layers, "lm_head": {"weight": torch.ones(4, 4)}}, shards=2)
            checkpoint = checkpoints.Checkpoint(folder)
            self.assertEqual(checkpoint.layers(), list(layers))
            for name in layers:
                weight = checkpoint.read_layer(name)
                exact = expected[name.removeprefix(PREFIX)]
                if exact is None:
                    self.assertEqual(weight.operation, "a4w4_nvfp4")
                    tensors = layers[name]
                    self.assertTrue(torch.equal(weight.w, tensors.get("weight", tensors.get("weight_packed"))))
                else:
                    self.assertTrue(torch.equal(values(weight), exact), name)
            self.assertEqual(weight.bias is not None and torch.equal(weight.bias, bias), method == "awq")
            with self.assertRaisesRegex(errors.NotFound, "lm_head is not quantized: .*config.json: quantization_config.* has \""):
                checkpoint.read_layer("lm_head")
            with self.assertRaisesRegex(errors.NotFound, "has no tensor model.q_proj.*, expected .* of model.q_proj"):
                checkpoint.read_layer("model.q_proj")

    def test_products_of_layers_as_they_were_read(self):
        """The file's bytes, wherever they lie, are operands."""
        awq, gptq = Int4(24, 64, 32), Int4(24, 64, 32, (1, 16), order=shuffled_groups(64))
        packed = Int4(24, 64, 64, dtype=torch.bfloat16)
        nvfp4 = modelopt()
        rows = {"format": "pack-quantized", "config_groups": {"g": {"targets": ["Linear"], "weights": {
            "num_bits": 4, "type": "int", "strategy": "channel", "symmetric": False}}}}
        for method, tensors, expected, changes in (("awq", awq.awq(), awq.values(), {}), ("gptq", gptq.gptq(), gptq.values(), {}),
                                                   ("modelopt", nvfp4, values(checkpoints.modelopt_nvfp4(**nvfp4)), {}),
                                                   ("compressed-tensors", packed.compressed(), packed.values(), rows)):
            folder = self.write({"quantization_config": config_of(method, **changes)}, {"model.up": {**tensors, "bias": torch.rand(24).to(result_dtype(tensors))}})
            for device in DEVICES:
                with self.subTest(method, device=device):
                    weight = checkpoints.Checkpoint(folder, device).read_layer("model.up")
                    x = torch.randn(3, 64, device=device).to(weight.bias.dtype)
                    inputs = x if weight.k_order is None else x[:, weight.k_order]
                    if method == "modelopt":
                        y = gemmtune.a16w4_nvfp4(inputs, weight.w, weight.w_scale, weight.w_global_scale, weight.bias)
                    else:
                        y = gemmtune.a16w4_int4(inputs, weight.w, weight.w_scale, weight.w_zero_points, weight.bias)
                    exact = x.cpu().double() @ expected.t() + weight.bias.cpu().double()
                    self.assertLess((y.cpu().double() - exact).norm(), 0.01 * exact.norm())

    def test_gpt_oss(self):
        tensors = gpt_oss()
        bias = torch.rand(3, 10).bfloat16()
        name = "model.layers.0.mlp.experts.gate_up_proj"
        checkpoint = self.checkpoint("mxfp4", {name: {**tensors, "bias": bias}}, "_")
        self.assertEqual(checkpoint.layers(), [name])
        weight = checkpoint.read_layer(name)
        self.assertTrue(torch.equal(weight.w, tensors["blocks"].flatten(2)) and torch.equal(weight.bias, bias))
        with self.assertRaisesRegex(Error, "model.layers.3.self_attn.q_proj is not quantized: .*modules_to_not_convert has \"model.layers.*.self_attn\""):
            checkpoint.read_layer("model.layers.3.self_attn.q_proj")

    def test_hf_quant_config(self):
        folder = self.write({}, {"model.up_proj": modelopt(), "model.fp8": {"weight": torch.ones(2, 2)}})
        with self.assertRaisesRegex(errors.Unsupported, "config.json has no quantization_config and there is no hf_quant_config.json"):
            checkpoints.Checkpoint(folder)
        for quantization in ({"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["model.fp*"]},
                             {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}}}):
            (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization}))
            checkpoint = checkpoints.Checkpoint(folder)
            self.assertEqual(checkpoint.layers(), ["model.up_proj"])
            self.assertEqual(checkpoint.read_layer("model.up_proj").operation, "a4w4_nvfp4" if quantization["quant_algo"] == "NVFP4" else "a16w4_nvfp4")
            with self.assertRaisesRegex(Error, "model.fp8 is not quantized: .*hf_quant_config.json: quantization.*"):
                checkpoint.read_layer("model.fp8")

    def test_the_config_of_a_part(self):
        layer = Int4(24, 64, 32)
        for config in ({"text_config": {"quantization_config": config_of("awq")}}, {"compression_config": config_of("awq")}):
            checkpoint = checkpoints.Checkpoint(self.write(config, {"model.up": layer.awq()}))
            self.assertTrue(torch.equal(values(checkpoint.read_layer("model.up")), layer.values()))
        config["compression_config"]["bits"] = 3
        with self.assertRaisesRegex(Error, "config.json: compression_config.bits = 3, expected 4"):
            checkpoints.Checkpoint(self.write(config, {"model.up": layer.awq()}))

    def test_formats_of_gptq(self):
        for v2, key in ((False, "format"), (True, "checkpoint_format"), (True, "format")):
            for zeros, symmetric in (((1, 15), False), ((8, 8), True)):
                layer = Int4(24, 64, 32, zeros)
                changes = {"checkpoint_format": None, key: "gptq_v2" if v2 else "gptq", "sym": symmetric, "desc_act": False}
                weight = self.checkpoint("gptq", {"model.up": layer.gptq(v2)}, **changes).read_layer("model.up")
                self.assertTrue(torch.equal(values(weight), layer.values()), changes)
                self.assertEqual(weight.w_zero_points is None, symmetric)

    def test_activations_decide_the_operation(self):
        layer = Int4(24, 64, 32)
        for x, operation in ((None, "a16w4_int4"), ({"type": "int", "num_bits": 8}, "a8w4_int4")):
            groups = config_of("compressed-tensors")["config_groups"]
            groups["group_0"]["input_activations"] = x
            self.assertEqual(self.checkpoint("compressed-tensors", {"up": layer.compressed()}, config_groups=groups).read_layer("up").operation, operation)

    def test_what_is_not_read_is_named(self):
        group = config_of("compressed-tensors")["config_groups"]["group_0"]

        def groups(**changes):
            return {"config_groups": {"g": {**group, **changes}}}

        def weights(**changes):
            return groups(weights={**group["weights"], **changes})

        for method, changes, sentence in (
                ("awq", {"quant_method": "bitsandbytes"}, r'quant_method = "bitsandbytes", expected awq, gptq, compressed-tensors, modelopt or mxfp4'),
                ("awq", {"quant_method": None}, "quant_method = null, expected"),
                ("awq", {"bits": 8}, "bits = 8, expected 4"),
                ("awq", {"bits": "4"}, 'bits = "4", expected 4'),
                ("awq", {"version": "gemv"}, 'version = "gemv", expected "gemm"'),
                ("awq", {"zero_point": False}, "zero_point = false, expected true"),
                ("awq", {"group_size": "32"}, 'group_size = "32", expected a number'),
                ("awq", {"group_size": True}, "group_size = true, expected a number"),
                ("awq", {"group_size": 48}, "model.up: group_size = 48, expected a divisor of K = 64"),
                ("awq", {"modules_to_not_convert": "lm_head"}, 'modules_to_not_convert = "lm_head", expected a list of names'),
                ("awq", {"modules_to_not_convert": ["up"]}, 'model.up is not quantized: .*modules_to_not_convert has "up"'),
                ("gptq", {"bits": 3}, "bits = 3, expected 4"),
                ("gptq", {"checkpoint_format": "marlin"}, 'checkpoint_format = "marlin", expected "gptq" or "gptq_v2"'),
                ("gptq", {"desc_act": 1}, "desc_act = 1, expected true or false"),
                ("gptq", {"dynamic": {"+:.*up": {"bits": 8}}}, r'dynamic."\+:.\*up".bits = 8, expected 4'),
                ("gptq", {"dynamic": {"-:.*up": {}}}, "model.up is not quantized"),
                ("gptq", {"dynamic": {"(": {}}}, r'dynamic: "\(" is no regular expression'),
                ("compressed-tensors", {"config_groups": []}, "config_groups = \\[\\], expected an object"),
                ("compressed-tensors", {"transform_config": {"config_groups": {"R3": {}}}}, "transform_config = .*, expected none"),
                ("compressed-tensors", weights(num_bits=8), "config_groups.g.weights.num_bits = 8, expected 4"),
                ("compressed-tensors", weights(type="float"), 'weights.type = "float", expected "int"'),
                ("compressed-tensors", weights(strategy="tensor"), 'weights.strategy = "tensor", expected "group" or "channel"'),
                ("compressed-tensors", weights(group_size=None), "weights.group_size = null, expected a number"),
                ("compressed-tensors", groups(format="int-quantized"), 'g.format = "int-quantized", expected "pack-quantized" or "nvfp4-pack-quantized"'),
                ("compressed-tensors", groups(format="nvfp4-pack-quantized"), 'weights.type = "int", expected "float"'),
                ("compressed-tensors", groups(targets=["re:.*down"]), 'no group has "model.up" or "Linear" among its targets'),
                ("compressed-tensors", groups(input_activations={"type": "float", "num_bits": 8}), "input_activations = .*, expected none or int8"),
                ("compressed-tensors", {"ignore": ["re:["]}, r'"\[" is no regular expression'),
                ("modelopt", {"quant_algo": "NVFP4_AWQ"}, 'quant_algo = "NVFP4_AWQ", expected "NVFP4" or "W4A16_NVFP4"'),
                ("modelopt", {"quant_algo": "FP8"}, 'quant_algo = "FP8", expected "NVFP4"'),
                ("modelopt", {"quant_algo": "MIXED_PRECISION"}, "quantized_layers = null, expected an object"),
                ("modelopt", {"group_size": 32}, "group_size = 32, expected 16")):
            with self.subTest(method, changes=changes), self.assertRaisesRegex(Error, sentence):
                layer = Int4(24, 64, 32, (1, 15))
                tensors = {"awq": layer.awq(), "gptq": layer.gptq(), "compressed-tensors": layer.compressed(), "modelopt": modelopt()}[method]
                self.checkpoint(method, {"model.up": tensors}, **changes).read_layer("model.up")

    def test_a_damaged_file_is_named_with_its_tensor(self):
        layer = Int4(24, 64, 32, (1, 15), order=shuffled_groups(64))
        for method, tensors in (("awq", Int4(24, 64, 32).awq()), ("gptq", layer.gptq()), ("compressed-tensors", layer.compressed()), ("modelopt", modelopt())):
            for name in tensors:
                for other in (tensors[name].double(), torch.cat([torch.atleast_1d(tensors[name]).view(torch.uint8)] * 2).view(tensors[name].dtype)):
                    with self.subTest(method, tensor=name), self.assertRaisesRegex(Error, rf"model.safetensors: model.up.\w+ (is|has|=) .*, expected"):
                        self.checkpoint(method, {"model.up": {**tensors, name: other}}).read_layer("model.up")
                with self.subTest(method, missing=name), self.assertRaisesRegex(Error, f"has no tensor model.up.{name}, expected .*{name}.* of model.up"):
                    self.checkpoint(method, {"model.up": {one: tensor for one, tensor in tensors.items() if one != name}}).read_layer("model.up")
        with self.assertRaisesRegex(Error, r"model.safetensors: model.up.bias is float16 \[1\], expected .* \[N\] = \[24\]"):
            self.checkpoint("awq", {"model.up": {**Int4(24, 64, 32).awq(), "bias": torch.ones(1).half()}}).read_layer("model.up")

    def test_folders_that_are_none(self):
        layers = {"up": Int4(24, 64, 32).awq()}
        config = {"quantization_config": config_of("awq")}
        with self.assertRaisesRegex(errors.NotFound, "config.json is missing, expected a folder with a quantized model"):
            checkpoints.Checkpoint("/nonexistent")
        for name, text, sentence in (("config.json", "{", "config.json: no JSON: "), ("config.json", "[]", r"config.json = \[\], expected an object"),
                                     ("config.json", b"\xff", "config.json: 'utf-8'"),
                                     ("model.safetensors", b"\xff" * 20, "model.safetensors: "),
                                     ("model.safetensors.index.json", '{"weight_map": {"up.qweight": "../other"}}', "weight_map has '../other', expected names of files"),
                                     ("model.safetensors.index.json", "{}", "index.json: weight_map = null, expected an object"),
                                     ("model.safetensors.index.json", json.dumps({"weight_map": {f"up.{name}": "gone.safetensors" for name in layers["up"]}}),
                                      "gone.safetensors is missing, model.safetensors.index.json names it"),
                                     ("model.safetensors.index.json", json.dumps({"weight_map": {f"other.{name}": "model.safetensors" for name in layers["up"]}}),
                                      "model.safetensors: other.qweight: ")):
            folder = self.write(config, layers)
            (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
            with self.subTest(name, text=text), self.assertRaisesRegex(Error, sentence):
                checkpoint = checkpoints.Checkpoint(folder)
                checkpoint.read_layer(checkpoint.layers()[0])
        folder = self.write(config, layers)
        (folder / "model.safetensors").unlink()
        with self.assertRaisesRegex(errors.NotFound, re.escape(f"{folder} has no *.safetensors")):
            checkpoints.Checkpoint(folder)


class Experts(unittest.TestCase):
    """Layers of single experts as operands of fused_moe."""

    def of_int4(self, group=32, experts=3, n=32, k=64, **options):
        return [[checkpoints.compressed_int4(**{name: tensor for name, tensor in Int4(*shape, group, **options).compressed().items() if "g_idx" not in name},
                                             group=group) for _ in range(experts)] for shape in ((n, k), (n, k), (k, n))]

    def of_nvfp4(self, experts=3, n=32, k=64):
        return [[checkpoints.modelopt_nvfp4(*random_nvfp4(*shape), torch.tensor(0.01 * (expert + 1 + last))) for expert in range(experts)]
                for last, shape in enumerate(((n, k), (n, k), (k, n)))]

    def stacked(self, parts):
        found = checkpoints.stack_experts(*parts)
        both = [values(QuantizedWeight("fused_moe_int4" if found.quant_type == "per_group" else "fused_moe", w, scale, found.group, zero_points,
                                       None if global_scale is None else global_scale[:, None, None]))
                for w, scale, zero_points, global_scale in ((found.w1, found.w1_scale, found.w1_zero_points, found.w1_global_scale),
                                                            (found.w2, found.w2_scale, found.w2_zero_points, found.w2_global_scale))]
        gate, up, down = ([values(weight) for weight in part] for part in parts)
        self.assertTrue(torch.equal(both[0], torch.stack([torch.cat(pair) for pair in zip(gate, up)])))
        self.assertTrue(torch.equal(both[1], torch.stack(down)))
        return found

    def test_int4(self):
        found = self.stacked(self.of_int4())
        self.assertEqual((found.quant_type, found.group), ("per_group", 32))
        self.assertEqual(set(found.operands()), {"quant_type", "w1", "w2", "w1_scale", "w2_scale", "w1_zero_points", "w2_zero_points",
                                                 "w1_global_scale", "w2_global_scale"})
        self.assertIsNone(found.w1_global_scale)

    def test_nvfp4(self):
        parts = self.of_nvfp4()
        parts[1] = [replace(up, w_global_scale=gate.w_global_scale) for gate, up in zip(*parts[:2])]
        found = self.stacked(parts)
        self.assertEqual(found.quant_type, "per_1x16")
        self.assertEqual(tuple(found.w1_global_scale.shape), (3,))

    def test_what_cannot_be_one_operand_is_refused(self):
        gate, up, down = self.of_int4()
        nvfp4 = self.of_nvfp4()
        for parts, text in (
                ((gate, up, down[:2]), "gate, up and down have 3, 3 and 2 experts"),
                (([], [], []), "0, 0 and 0 experts"),
                ((gate, up, [*down[:2], gate[0]]), r"down of expert 2 has shape \[32, 32\], expected \[64, 16\]"),
                ((gate, [up[0], replace(up[1], operation="a8w4_int4"), up[2]], down), "up of expert 1 is of a8w4_int4"),
                ((gate, [replace(up[0], k_order=torch.arange(64)), *up[1:]], down), "up of expert 0 has a k_order, expected none"),
                ((gate, up, [replace(down[0], w_zero_points=None), *down[1:]]), "down of expert 0 has zero points False, expected True"),
                (nvfp4, "gate and up of expert 0 have the global scales 0.0099.*, expected one")):
            with self.assertRaisesRegex(errors.InvalidArgument, text):
                checkpoints.stack_experts(*parts)

    def test_read_from_files(self):
        gate, up, down = ([Int4(*shape, 32) for _ in range(2)] for shape in ((32, 64), (32, 64), (64, 32)))
        layers = {f"model.layers.0.mlp.experts.{expert}.{name}": {key: tensor for key, tensor in weight.compressed().items() if "g_idx" not in key}
                  for name, part in (("gate_proj", gate), ("up_proj", up), ("down_proj", down)) for expert, weight in enumerate(part)}
        group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": False}}
        with tempfile.TemporaryDirectory() as folder:
            write(folder, {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}}, layers)
            checkpoint = checkpoints.Checkpoint(folder)
            found = checkpoint.read_experts("model.layers.0.mlp.experts")
            self.assertTrue(torch.equal(found.w1[1, 32:], checkpoint.read_layer("model.layers.0.mlp.experts.1.up_proj").w))
            x, ids, weights = torch.randn(3, 64).half(), torch.tensor([[0, 1], [1, 0], [0, 1]], dtype=torch.int32), torch.rand(3, 2)
            tokens = gemmtune.fused_moe(x, topk_ids=ids, topk_weights=weights, **found.operands())
            both = torch.einsum("tk,enk->ten", x.double(), torch.stack([torch.cat((one.values(), other.values())) for one, other in zip(gate, up)]))
            hidden = torch.nn.functional.silu(both[..., :32]) * both[..., 32:]
            exact = torch.einsum("ten,ekn->tek", hidden, torch.stack([weight.values() for weight in down]))
            exact = (exact.gather(1, ids.long()[..., None].expand(-1, -1, 64)) * weights.double()[..., None]).sum(1)
            self.assertLess((tokens.double() - exact).norm(), 0.02 * exact.norm())
            with self.assertRaisesRegex(errors.NotFound, re.escape("has no tensor model.layers.1.mlp.experts.0.gate_proj.weight_packed")):
                checkpoint.read_experts("model.layers.1.mlp.experts")


class Page(unittest.TestCase):
    """The blocks of docs/checkpoints.md, on small checkpoints with the names that they have there."""

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(contextlib.chdir(folder))
        os.mkdir("layers")
        name = "model.layers.0.mlp.experts."
        self.up, self.down = gpt_oss(experts=4, n=64, k=64), gpt_oss(experts=4, n=64, k=32)
        for tensors, rows in ((self.up, 64), (self.down, 64)):
            tensors.update(scales=torch.randint(120, 126, tensors["scales"].shape, dtype=torch.uint8), bias=torch.rand(4, rows).bfloat16())
        self.projection, self.bias = Int4(16, 256, 128), torch.rand(16).half()
        write("Qwen3-8B-AWQ", {"quantization_config": config_of("awq", group_size=128)},
              {"model.layers.0.self_attn.q_proj": {**self.projection.awq(), "bias": self.bias}})
        self.experts = {f"model.layers.1.mlp.experts.{expert}.{part}": Int4(*shape, 32, (8, 8), torch.bfloat16) for expert in range(4)
                        for part, shape in (("gate_proj", (32, 64)), ("up_proj", (32, 64)), ("down_proj", (64, 32)))}
        group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}}
        write("Kimi-K2-Thinking", {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}}},
              {name: {key: tensor for key, tensor in weight.compressed().items() if key in ("weight_packed", "weight_scale", "weight_shape")}
               for name, weight in self.experts.items()})
        write("gpt-oss-20b", {"quantization_config": config_of("mxfp4")}, {f"{name}gate_up_proj": self.up, f"{name}down_proj": self.down}, "_")
        for name, tensors in (("gptq", Int4(16, 256, 128, (1, 16)).gptq()), ("awq", Int4(16, 256, 128).awq()), ("compressed", Int4(16, 64, 32).compressed()),
                              ("nvfp4", compressed_nvfp4()), ("modelopt", modelopt())):
            save_file(tensors, f"layers/{name}.safetensors")

    def test_blocks_run(self):
        page = Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md"
        x, hidden, weights = torch.randn(3, 256).half(), torch.randn(5, 64).bfloat16(), torch.rand(5, 2)
        names = {"x": x, "hidden": hidden, "ids": torch.stack([torch.randperm(4)[:2] for _ in range(5)]).int(), "weights": weights}
        printed = io.StringIO()
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        self.assertEqual(len(blocks), 5)
        with contextlib.redirect_stdout(printed):
            for block in blocks:
                exec(compile(block, str(page), "exec"), names)  # pylint: disable=exec-used
        self.assertEqual(printed.getvalue(), "model.layers.0.self_attn.q_proj a16w4_int4 (16, 128) 128\n")
        for found, exact in ((names["y"], x.double() @ self.projection.values().t() + self.bias.double()),
                             (names["tokens"], self.mixture(hidden.double(), names["ids"].long(), weights.double())),
                             (names["mixed"], self.mixture_of_int4(hidden.double(), names["ids"].long(), weights.double()))):
            self.assertLess((found.double() - exact).norm(), 0.02 * exact.norm())

    def mixture_of_int4(self, x, ids, weights):
        gate, up, down = (torch.stack([self.experts[f"model.layers.1.mlp.experts.{expert}.{part}"].values() for expert in range(4)])
                          for part in ("gate_proj", "up_proj", "down_proj"))
        hidden = torch.nn.functional.silu(torch.einsum("tk,tsnk->tsn", x, gate[ids])) * torch.einsum("tk,tsnk->tsn", x, up[ids])
        return torch.einsum("ts,tsn,tskn->tk", weights, hidden, down[ids])

    def mixture(self, x, ids, weights):
        """gpt-oss's experts as its model computes them, gate and up in turns."""
        up, down = (values(checkpoints.gpt_oss_mxfp4(tensors["blocks"], tensors["scales"])) for tensors in (self.up, self.down))
        both = torch.einsum("tk,tsnk->tsn", x, up[ids]) + self.up["bias"].double()[ids]
        gate, linear = both[..., ::2].clamp(max=7), both[..., 1::2].clamp(-7, 7)
        hidden = gate * torch.sigmoid(1.702 * gate) * (linear + 1)
        return torch.einsum("ts,tsk->tk", weights, torch.einsum("tsn,tskn->tsk", hidden, down[ids]) + self.down["bias"].double()[ids])


if __name__ == "__main__":
    unittest.main()
