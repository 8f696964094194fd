"""What the quantization_config of a checkpoint says about each layer: its packing, or why it has none."""

import fnmatch
import json
import re
from typing import Callable, NamedTuple

from ..errors import InvalidArgument, Unsupported
from . import packings

_missing = object()


class Section:
    """An object of a JSON file. A value of a wrong type is refused with its place and what was expected."""

    def __init__(self, place, values):
        """place: what its keys follow in an error, "config.json: quantization_config."."""
        if not isinstance(values, dict):
            raise InvalidArgument(f"{place.rstrip('.: ')} = {_text(values)}, expected an object")
        self.place, self.values = place, values

    def has(self, key):
        return self.values.get(key) is not None

    def value(self, key, kind, word, default=_missing):
        """A value of the type `kind`, which `word` names; the default where it is absent or null."""
        value = self.values.get(key)
        if value is None and default is not _missing:
            return default
        if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool:
            raise self.refusal(key, word, InvalidArgument)
        return value

    def number(self, key, default=_missing):
        return self.value(key, int, "a number", default)

    def text(self, key, default=_missing):
        return self.value(key, str, "a text", default)

    def flag(self, key, default=_missing):
        return self.value(key, bool, "true or false", default)

    def names(self, key):
        """A list of texts; empty where absent."""
        names = self.value(key, list, "a list of names", [])
        if not all(isinstance(name, str) for name in names):
            raise self.refusal(key, "a list of names", InvalidArgument)
        return names

    def section(self, key):
        return Section(f"{self.place}{key}.", self.values.get(key))

    def optional(self, key):
        """The section, or None where it is absent or null."""
        return self.section(key) if self.has(key) else None

    def require(self, key, *allowed, default=_missing):
        """One of the allowed values, or the default where it is absent or null. Others are Unsupported: no packing is made for them."""
        value = self.values.get(key)
        if value is None and default is not _missing:
            return default
        if value not in allowed:
            raise self.refusal(key, " or ".join(map(_text, allowed)), Unsupported)
        return value

    def refusal(self, key, expected, kind):
        return kind(f"{self.place}{key} = {_text(self.values.get(key))}, expected {expected}")


def _text(value):
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


class Packing(NamedTuple):
    """How a layer lies in the files."""

    read: Callable  # of packings.py; its parameters have the tensors' names
    tensors: tuple  # names of those that must be there, behind the layer's name
    optional: tuple = ()
    arguments: dict = {}


class Method:
    """One quant_method. Its config is read when the checkpoint is opened, what concerns a layer with the layer."""

    separator = "."  # between the layer's name and a tensor's
    marker: str  # the tensor that each quantized layer has, and no other

    def __init__(self, config):
        self.config = config

    def exclusion(self, layer):
        """The entry of the config that leaves a layer unquantized, as "key has 'pattern'", or None."""
        raise NotImplementedError

    def packing(self, layer):
        """The Packing of a layer that is not excluded. Unsupported: what no packing of ours is made for."""
        raise NotImplementedError


def _listed(section, key, fits):
    """The first name of a list in the config that fits, as an exclusion, or None."""
    found = next((name for name in section.names(key) if fits(name)), None)
    return None if found is None else f"{section.place}{key} has {_text(found)}"


def _is_glob_of(pattern, layer):
    """Whether a pattern with * is the name of a layer, or of what the layer is in."""
    return fnmatch.fnmatchcase(layer, pattern) or fnmatch.fnmatchcase(layer, pattern + ".*")


class Awq(Method):
    marker = "qweight"

    def __init__(self, config):
        super().__init__(config)
        config.require("bits", 4)
        for key in ("version", "format", "checkpoint_format"):
            config.require(key, "gemm", "GEMM", default="gemm")
        config.require("zero_point", True, default=True)
        self.group = config.number("group_size")

    def exclusion(self, layer):
        return _listed(self.config, "modules_to_not_convert", lambda name: name in layer)

    def packing(self, layer):
        return Packing(packings.awq, ("qweight", "qzeros", "scales"), arguments={"group": self.group})


class Gptq(Method):
    marker = "qweight"

    def __init__(self, config):
        super().__init__(config)
        key = "checkpoint_format" if config.has("checkpoint_format") else "format"
        self.format = config.require(key, "gptq", "gptq_v2", default="gptq")
        config.require("is_marlin_format", False, default=False)
        config.require("pack_dtype", "int32", default="int32")
        self.dynamic = config.optional("dynamic")

    def _rule(self, layer):
        """The pattern of the first of GPTQModel's rules for single layers that fits, or None."""
        for pattern in self.dynamic.values if self.dynamic else ():
            if _matches(pattern[2:] if pattern.startswith(("-:", "+:")) else pattern, layer, self.dynamic.place):
                return pattern
        return None

    def exclusion(self, layer):
        pattern = self._rule(layer)
        return f"{self.config.place}dynamic has {_text(pattern)}" if pattern is not None and pattern.startswith("-:") else None

    def packing(self, layer):
        pattern = self._rule(layer)
        own = self.config
        if pattern is not None:
            own = Section(f"{self.dynamic.place}{_text(pattern)}.", {**own.values, **self.dynamic.section(pattern).values})
        own.require("bits", 4)
        needed, optional = ("qweight", "qzeros", "scales"), ("g_idx",)
        if own.flag("desc_act", False):
            needed, optional = needed + optional, ()
        return Packing(packings.gptq, needed, optional,
                       {"group": own.number("group_size"), "symmetric": own.flag("sym", False), "v2": self.format == "gptq_v2"})


class CompressedTensors(Method):
    marker = "weight_packed"

    def __init__(self, config):
        super().__init__(config)
        groups = config.section("config_groups")
        self.groups = [groups.section(name) for name in groups.values]
        self.targets = [group.names("targets") for group in self.groups]
        if config.values.get("transform_config"):
            raise config.refusal("transform_config", "none: x is not transformed here", Unsupported)

    def _picks(self, target, layer):
        return _matches(target[3:], layer, self.config.place) if target.startswith("re:") else target == layer

    def exclusion(self, layer):
        return _listed(self.config, "ignore", lambda name: self._picks(name, layer))

    def _group(self, layer):
        """The group that names a layer, else the one of all linear layers: files do not say the classes of modules."""
        for picks in (lambda target: self._picks(target, layer), lambda target: target == "Linear"):
            for group, targets in zip(self.groups, self.targets):
                if any(map(picks, targets)):
                    return group
        raise Unsupported(f"{self.config.place}config_groups: no group has {_text(layer)} or \"Linear\" among its targets")

    def packing(self, layer):
        group = self._group(layer)
        format = (group if group.has("format") else self.config).require("format", "pack-quantized", "nvfp4-pack-quantized")
        weights, x = group.section("weights"), group.optional("input_activations")
        weights.require("num_bits", 4)
        kind_of_x = None if x is None else (x.text("type"), x.number("num_bits"))
        if format == "nvfp4-pack-quantized":
            for key, value in (("type", "float"), ("strategy", "tensor_group"), ("group_size", 16)):
                weights.require(key, value)
            weights.require("symmetric", True, default=True)
            operation = self._operation(group, kind_of_x, {None: "a16w4_nvfp4", ("float", 8): "a8w4_nvfp4", ("float", 4): "a4w4_nvfp4"})
            tensors = ("weight_packed", "weight_scale", "weight_global_scale")
            if operation == "a4w4_nvfp4":
                tensors += ("input_global_scale",)
            return Packing(packings.compressed_nvfp4, tensors, arguments={"operation": operation})
        weights.require("type", "int")
        strategy = weights.require("strategy", "group", "channel")
        operation = self._operation(group, kind_of_x, {None: "a16w4_int4", ("int", 8): "a8w4_int4"})
        needed, optional = ("weight_packed", "weight_scale", "weight_shape"), ("weight_g_idx",)
        if weights.values.get("actorder") in ("group", "dynamic"):
            needed, optional = needed + optional, ()
        if not weights.flag("symmetric", True):
            needed += ("weight_zero_point",)
        size = weights.number("group_size") if strategy == "group" else -1
        return Packing(packings.compressed_int4, needed, optional, {"group": size, "operation": operation})

    @staticmethod
    def _operation(group, kind_of_x, operations):
        if kind_of_x not in operations:
            words = ["none" if kind is None else "".join(map(str, kind)) for kind in operations]
            raise group.refusal("input_activations", f"{', '.join(words[:-1])} or {words[-1]}", Unsupported)
        return operations[kind_of_x]


class ModelOpt(Method):
    marker = "weight_scale_2"

    def __init__(self, config):
        super().__init__(config)
        self.inner = config.section("quantization") if config.has("quantization") else config
        self.key = "exclude_modules" if self.inner.has("exclude_modules") else "ignore"
        self.algorithm = self.inner.text("quant_algo")
        self.layers = self.inner.section("quantized_layers") if self.algorithm == "MIXED_PRECISION" else None

    def exclusion(self, layer):
        if self.layers is not None and layer not in self.layers.values:
            return f"{self.inner.place}quantized_layers has no {_text(layer)}"
        return _listed(self.inner, self.key, lambda pattern: _is_glob_of(pattern, layer))

    def packing(self, layer):
        own = self.inner if self.layers is None else self.layers.section(layer)
        algorithm = own.require("quant_algo", "NVFP4", "W4A16_NVFP4")
        own.require("group_size", 16, default=16)
        tensors = ("weight", "weight_scale", "weight_scale_2")
        return Packing(packings.modelopt_nvfp4, tensors + (("input_scale",) if algorithm == "NVFP4" else ()))


class GptOss(Method):
    separator, marker = "_", "blocks"

    def exclusion(self, layer):
        return _listed(self.config, "modules_to_not_convert", lambda pattern: _is_glob_of(pattern, layer))

    def packing(self, layer):
        return Packing(packings.gpt_oss_mxfp4, ("blocks", "scales"))


_methods = {"awq": Awq, "gptq": Gptq, "compressed-tensors": CompressedTensors, "modelopt": ModelOpt, "mxfp4": GptOss}


def _matches(pattern, layer, place):
    """Whether a regular expression matches the beginning of a name."""
    try:
        return re.match(pattern, layer) is not None
    except re.error as error:
        raise InvalidArgument(f"{place.rstrip('.: ')}: {_text(pattern)} is no regular expression: {error}") from None


def method_of(config):
    """The Method of a quantization_config, a Section."""
    name = config.text("quant_method", "modelopt" if config.has("quantization") else _missing)
    if name not in _methods:
        raise config.refusal("quant_method", ", ".join(list(_methods)[:-1]) + f" or {list(_methods)[-1]}", Unsupported)
    return _methods[name](config)
