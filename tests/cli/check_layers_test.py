"""tools/check_layers.py sees each kind of violation in a small tree of its own, and nothing in a right one."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"
LAYERS = "# comment\nbase\nnumbers  verify\nbackends\ntuning  dispatch\ncapi\ncli\n"
RIGHT = {
    "src/base/file.h": "#pragma once\n#include <string>\n",
    "src/numbers/half.h": '#include "base/file.h"\n',
    "src/verify/gate.cpp": '#include "base/file.h"\n',
    "src/backends/backend.h": '#include "numbers/half.h"\n',
    "src/backends/all_backends.cpp": '#include "backends/cpu/cpu.h"\n',
    "src/backends/cpu/cpu.h": '#include "backends/backend.h"\n',
    "src/backends/gpu/jit.h": "",
    "src/backends/cuda/cuda.cpp": '#include "backends/gpu/jit.h"\n',
    "src/capi/plan.cpp": '#include <gemmtune/c.h>\n#include "backends/backend.h"\n',
    "src/cli/main.cpp": '#include "dispatch/plan.h"\n#include <CLI/CLI.hpp>\n',
    "src/dispatch/plan.h": "",
    "include/gemmtune/c.h": "#include <stdint.h>\n",
    "include/gemmtune/gemmtune.h": "#include <vector>\n#include <gemmtune/c.h>\n",
}


def run(changes):
    """The check's exit status and output over RIGHT with `changes` on top."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {"src/LAYERS": LAYERS, **RIGHT, **changes}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class CheckLayers(unittest.TestCase):
    def red(self, changes, line):
        code, output = run(changes)
        self.assertEqual(code, 1, output)
        self.assertEqual([text for text in output.splitlines() if text.startswith(line)], output.splitlines())
        self.assertTrue(output, "no finding")

    def test_right_tree_is_green(self):
        self.assertEqual(run({}), (0, ""))

    def test_upward_include(self):
        self.red({"src/base/file.cpp": "\n#include \"numbers/half.h\"\n"}, "src/base/file.cpp:2: base/ may not")

    def test_include_on_the_same_line(self):
        self.red({"src/verify/x.cpp": '#include "numbers/half.h"\n'}, "src/verify/x.cpp:1: verify/ may not")

    def test_backend_subfolder_from_outside(self):
        self.red({"src/cli/x.cpp": '#include "backends/cpu/cpu.h"\n'}, "src/cli/x.cpp:1: outside backends/")

    def test_json_beside_the_header_that_wraps_it(self):
        self.red({"src/cli/x.cpp": "#include <nlohmann/json.hpp>\n"}, 'src/cli/x.cpp:1: include "formats/json.h"')

    def test_sibling_backends(self):
        self.red({"src/backends/cpu/x.cpp": '#include "backends/gpu/jit.h"\n'}, "src/backends/cpu/x.cpp:1: backends/cpu")

    def test_backend_header_sees_a_backend(self):
        self.red({"src/backends/x.h": '#include "backends/cpu/cpu.h"\n'}, "src/backends/x.h:1: backends/*.h")

    def test_public_header_sees_the_inside(self):
        self.red({"include/gemmtune/x.h": '#include "base/file.h"\n'}, "include/gemmtune/x.h:1: a public header")

    def test_public_header_sees_a_library(self):
        self.red({"include/gemmtune/x.h": "#include <fmt/format.h>\n"}, "include/gemmtune/x.h:1: a public header")

    def test_inside_sees_public_header(self):
        self.red({"src/base/x.h": "#include <gemmtune/c.h>\n"}, "src/base/x.h:1: base/ may not include public")

    def test_unnamed_folder(self):
        self.red({"src/extra/x.cpp": ""}, "src/extra/x.cpp:1: folder 'extra'")

    def test_missing_file(self):
        self.red({"src/cli/x.cpp": '#include "base/gone.h"\n'}, "src/cli/x.cpp:1: 'base/gone.h' does not exist")

    def test_long_file(self):
        self.red({"src/base/x.cpp": "\n" * 801}, "src/base/x.cpp:801: 801 lines")

    def test_vague_name(self):
        self.red({"src/base/utils.h": ""}, "src/base/utils.h:1: a name")


if __name__ == "__main__":
    unittest.main()
