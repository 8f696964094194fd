"""To be imported first: ends a test where this Python has no PyTorch that the operators take. That is a failure if GEMMTUNE_REQUIRE names
pytorch."""

import os
import sys


def _why():
    try:
        import torch
    except ImportError as error:
        return f"this Python has no PyTorch ({error}): tools/torch_environment.py makes one, GEMMTUNE_TEST_PYTHON names another"
    if tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 9):
        return f"PyTorch {torch.__version__} is older than 2.9"
    return None


if why := _why():
    required = "pytorch" in os.environ.get("GEMMTUNE_REQUIRE", "").split(",")
    print(f"{'FAILED' if required else 'SKIPPED'}: {why}")
    sys.exit(1 if required else 77)
