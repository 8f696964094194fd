"""write_tunableop(): a tuned file for PyTorch's TunableOp."""

import os
import tempfile

import torch

from .. import commands
from ..errors import Error


def write_tunableop(table, path):
    """Writes the cuBLASLt rows of a tuned file as TunableOp's results, with the validators of this PyTorch, without which it
    refuses a file. `path` is the file itself: TunableOp puts the device's number into its own names. Returns the report
    of `gemmtune convert`: left_out names the rows that PyTorch has no kernel for. gemmtune.Error where PyTorch finds no GPU:
    from 2.14 on it reads some of its validators from one."""
    try:
        validators = "".join(f"Validator,{key},{value}\n" for key, value in torch.cuda.tunable.get_validators())
    except RuntimeError as error:
        raise Error(f"write_tunableop(): PyTorch {torch.__version__} gives no validators without a GPU: {str(error).splitlines()[0]}") from error
    with tempfile.TemporaryDirectory(prefix="gemmtune-") as folder:
        converted = os.path.join(folder, "tunableop.csv")
        report = commands.convert(table, converted, to="tunableop")
        with open(converted) as file:
            rows = file.read()
    path = os.fspath(path)
    with open(path + ".tmp", "w") as file:
        file.write(validators + rows)
    os.replace(path + ".tmp", path)
    return report
