"""A folder of a model as Hugging Face has it: config.json, and tensors in files of safetensors."""

import json
from pathlib import Path

from ..errors import Error, InputOutput, InvalidArgument, NotFound, Unsupported
from .methods import Section, method_of
from .packings import stack_experts, with_bias

_index = "model.safetensors.index.json"
_keys = ("quantization_config", "compression_config")  # the second one: of early compressed-tensors
_language_models = ("text_config", "language_config", "llm_config")  # which may have it in place of the whole


def _object(path):
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{path} is missing, expected a folder with a quantized model") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputOutput(f"{path}: {error}") from None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: no JSON: {error}") from None
    return Section(f"{path}: ", values)


class Checkpoint:
    """The quantized layers of a model.

    folder: has config.json with a quantization_config (or hf_quant_config.json), and *.safetensors. device: where tensors are read to.
    Errors: NotFound (files, layers, tensors), InputOutput (files that cannot be read), Unsupported (a quantization that no packing is
    made for, safetensors is not installed), InvalidArgument and WrongType (values, shapes, dtypes); all name file, tensor or key,
    value and what was expected."""

    def __init__(self, folder, device="cpu"):
        try:
            import safetensors
        except ImportError:
            raise Unsupported("a checkpoint's files need the package safetensors: pip install safetensors") from None
        self._safetensors, self._device, self._folder = safetensors, str(device), Path(folder)
        self._method = method_of(self._config())
        self._opened = {}
        self._files = self._files_of_tensors()

    def _config(self):
        config = _object(self._folder / "config.json")
        for holder in (config, *filter(None, map(config.optional, _language_models))):
            for key in _keys:
                if holder.has(key):
                    return holder.section(key)
        own = self._folder / "hf_quant_config.json"
        if not own.exists():
            raise Unsupported(f"{self._folder / 'config.json'} has no {_keys[0]} and there is no {own.name}, expected a quantized model")
        return _object(own)

    def _files_of_tensors(self):
        """The name of the file of each tensor."""
        path = self._folder / _index
        if path.exists():
            files = _object(path).section("weight_map").values
            wrong = next((file for file in files.values() if not isinstance(file, str) or Path(file).name != file), None)
            if wrong is not None:
                raise InvalidArgument(f"{path}: weight_map has {wrong!r}, expected names of files in this folder")
            return files
        names = sorted(path.name for path in self._folder.glob("*.safetensors"))
        if not names:
            raise NotFound(f"{self._folder} has no *.safetensors")
        return {tensor: name for name in names for tensor in self._open(name).keys()}

    def _open(self, name):
        path = self._folder / name
        if name not in self._opened:
            if not path.exists():
                raise NotFound(f"{path} is missing, {_index} names it")
            try:
                self._opened[name] = self._safetensors.safe_open(str(path), framework="pt", device=self._device)
            except (OSError, self._safetensors.SafetensorError) as error:
                raise InputOutput(f"{path}: {error}") from None
        return self._opened[name]

    def _tensor(self, name):
        file = self._files[name]
        try:
            return self._open(file).get_tensor(name)
        except self._safetensors.SafetensorError as error:
            raise InputOutput(f"{self._folder / file}: {name}: {error}") from None

    def layers(self):
        """The names of the quantized layers, in the order of the files; at least one."""
        ending = self._method.separator + self._method.marker
        names = [tensor[:-len(ending)] for tensor in self._files if tensor.endswith(ending)]
        names = [name for name in names if self._method.exclusion(name) is None]
        if not names:
            raise NotFound(f"{self._folder} has no quantized layer: no tensor LAYER{ending} that the config does not leave out")
        return names

    def read_experts(self, name, parts=("gate_proj", "up_proj", "down_proj")):
        """The QuantizedExperts of a mixture ("model.layers.1.mlp.experts") whose experts lie one by one: NAME.0.gate_proj, ... parts: the
        names of gate, up and down ("w1", "w3", "w2" of Mixtral). Errors also those of stack_experts."""
        marker = f".{parts[0]}{self._method.separator}{self._method.marker}"
        count = 0
        while f"{name}.{count}{marker}" in self._files:
            count += 1
        if count == 0:
            raise NotFound(f"{self._folder} has no tensor {name}.0{marker}, expected experts {name}.0, {name}.1, ...")
        weights = [[self.read_layer(f"{name}.{expert}.{part}") for expert in range(count)] for part in parts]
        try:
            return stack_experts(*weights)
        except InvalidArgument as error:
            raise InvalidArgument(f"{self._folder}: {name}: {error}") from None

    def read_layer(self, name):
        """The QuantizedWeight of a layer ("model.layers.0.self_attn.q_proj"), with its bias if it has one."""
        exclusion = self._method.exclusion(name)
        if exclusion is not None:
            raise NotFound(f"{name} is not quantized: {exclusion}")
        packing = self._method.packing(name)
        prefix = name + self._method.separator
        lacking = next((tensor for tensor in packing.tensors if prefix + tensor not in self._files), None)
        if lacking is not None:
            raise NotFound(f"{self._folder} has no tensor {prefix + lacking}, expected {', '.join(packing.tensors)} of {name}")
        tensors = {tensor: self._tensor(prefix + tensor) for tensor in packing.tensors + packing.optional if prefix + tensor in self._files}
        bias = self._tensor(prefix + "bias") if prefix + "bias" in self._files else None
        try:
            weight = packing.read(**tensors, **packing.arguments)
            return weight if bias is None else with_bias(weight, bias)
        except Error as error:
            blamed = getattr(error, "tensor", None)
            place = f"{self._folder / self._files[prefix + blamed]}: {prefix}" if blamed else f"{self._folder}: {name}: "
            raise type(error)(f"{place}{error}") from None
