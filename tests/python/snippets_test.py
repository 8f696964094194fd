"""Every Python block of the README and of docs/: those of a page run in their order, in one namespace and one folder. Blocks that need what is
not here are listed, and printed as skipped."""

import contextlib
import io
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy  # noqa: F401
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

import gemmtune

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
# Page and first line of a block: what it needs.
ELSEWHERE = {
    ("README.md", "import gemmtune, gemmtune.torch, torch"): "PyTorch, a GPU and a model",
    ("python.md", 'gemmtune.tune("untuned.csv", "tuned.csv", backend="cuda", pdl="allow")'): "a GPU",
    ("coming_from_aiter.md", "import torch"): "PyTorch",
    ("invariant.md", "import gemmtune.torch"): "PyTorch and a model",
    ("checkpoints.md", "inputs = x if weight.k_order is None else x[..., weight.k_order]"): "PyTorch and checkpoints, which checkpoints_test.py makes",
    ("checkpoints.md", "import gemmtune"): "PyTorch and checkpoints, which checkpoints_test.py makes",
    ("checkpoints.md", 'experts = checkpoints.Checkpoint("gpt-oss-20b")'): "PyTorch and checkpoints, which checkpoints_test.py makes",
    ("checkpoints.md", 'experts = checkpoints.Checkpoint("Kimi-K2-Thinking").read_experts("model.layers.1.mlp.experts")'):
        "PyTorch and checkpoints, which checkpoints_test.py makes",
    ("checkpoints.md", "from safetensors.torch import load_file"): "PyTorch and checkpoints, which checkpoints_test.py makes",
    ("pytorch.md", 'with gemmtune.torch.capture("shapes.csv") as captured:      # packed=True on a CPU'): "PyTorch, a GPU and a model",
}


def quick(tune):
    """A run as documented, but of a small size and one config, which needs no budget."""
    def run(shapes, *arguments, **options):
        return tune([(3, 64, 64) for _ in shapes], *arguments, **{**options, "budget": None, "libtype": "reference", "iters": 1, "confirmations": 1})
    return run


class Snippets(unittest.TestCase):
    def test_each_block_runs(self):
        used = set()
        ran = 0
        for page in PAGES:
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                self.addCleanup(os.chdir, ROOT)
                names = {}
                for block in BLOCK.findall(page.read_text(encoding="utf-8")):
                    key = (page.name, block.splitlines()[0])
                    if key in ELSEWHERE:
                        used.add(key)
                        print(f"SKIPPED {page.name}: {key[1]}: needs {ELSEWHERE[key]}")
                        continue
                    with self.subTest(page=page.name, block=key[1]):
                        tune, gemmtune.tune = gemmtune.tune, quick(gemmtune.tune)
                        try:
                            with contextlib.redirect_stdout(io.StringIO()):
                                exec(compile(block, f"{page.name}: {key[1]}", "exec"), names)  # pylint: disable=exec-used
                        finally:
                            gemmtune.tune = tune
                        ran += 1
                os.chdir(ROOT)
        gemmtune.use()
        self.assertGreaterEqual(ran, 3)
        self.assertEqual(used, set(ELSEWHERE), "blocks that are listed and are not there")


if __name__ == "__main__":
    unittest.main()
