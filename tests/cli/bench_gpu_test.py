"""tools/bench_gpu.py with stand-ins for the programs that it runs."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench_gpu.py"

# Finds a GPU unless NO_GPU is set; tunes the next two of the shapes in each call, at twice the default's speed, then
# waits if WAIT is set.
GEMMTUNE = """#!{python}
import csv, json, os, sys, time
if sys.argv[1] == "devices":
    gpu = dict(name="cuda:0", model="Fake GPU", gfx="sm_90", cu_num=132, libraries=[dict(name="NVRTC", version="13.0", missing="")])
    print(json.dumps(dict(backends=[dict(name="cuda", why="no driver", devices=[] if "NO_GPU" in os.environ else [gpu])])))
    sys.exit(0)
table, shapes = sys.argv[sys.argv.index("-o") + 1], sys.argv[sys.argv.index("-i") + 1]
rows = list(csv.DictReader(open(shapes)))
done = list(csv.DictReader(open(table))) if os.path.exists(table) else []
with open(table, "w") as file:
    file.write("gfx,M,N,K,bpreshuffle,us,kernelName,default_us,verdict,pdl_kernelName,pdl_us\\n")
    for row in rows[: len(done) + 2]:
        packed = row["bpreshuffle"] == "True"
        us, pdl = (4.0, "") if packed else (5.0, "4.0" if int(row["M"]) < 16 else "")
        default = "" if packed else "10.0"
        file.write(f"sm_90,{{row['M']}},{{row['N']}},{{row['K']}},{{row['bpreshuffle']}},{{us}},skinny_r1_c4,{{default}},win,,{{pdl}}\\n")
json.dump(dict(abc=dict(observations=dict(sm_clock_mhz=1980))), open(table + ".env.json", "w"))
if "WAIT" in os.environ:
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
"""
OVERHEAD = """#!{python}
import json
print(json.dumps(dict(call=dict(kernel="k", raw_launch_ns=2000, plan_run_ns=2200, overhead_ns=200),
                      compile=dict(median_seconds=0.3, families=dict(skinny=dict(kernels=4, median_seconds=0.3, max_seconds=0.4, slowest="s"))))))
"""
SHAPES = """M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle
1,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False
64,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False
1024,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False
"""


class BenchGpu(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.build = Path(self.folder.name)
        (self.build / "bench").mkdir()
        for name, text in [("gemmtune", GEMMTUNE), ("bench/gpu_overhead", OVERHEAD)]:
            (self.build / name).write_text(text.format(python=sys.executable), encoding="utf-8")
            (self.build / name).chmod(0o755)
        (self.build / "shapes.csv").write_text(SHAPES, encoding="utf-8")

    def tearDown(self):
        self.folder.cleanup()

    def run_bench(self, *words, **environment):
        command = [sys.executable, BENCH, self.build, "--shapes", self.build / "shapes.csv", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})

    def test_two_halves_make_a_whole(self):
        first = self.run_bench()
        self.assertEqual(first.returncode, 1, first.stderr)
        self.assertIn("1 shapes missing", first.stdout)
        second = self.run_bench("--json", str(self.build / "report.json"))
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("| 1280 | 8192 | 1 | 10.00 | 5.00 | 4.00 | 4.88 | 2.000 | 2.500 | skinny_r1_c4 |", second.stdout)
        self.assertIn("| all | 3 | 2.000 | 2.000 | 2.154 | 3 |", second.stdout)
        self.assertIn("in 2 runs, 0 shapes missing", second.stdout)
        self.assertIn("200 ns more (bar 300)", second.stdout)
        self.assertIn("sm_clock_mhz", second.stdout)
        report = json.loads((self.build / "report.json").read_text(encoding="utf-8"))
        self.assertEqual(len(report["shapes"]), 3)

    def test_the_limit_ends_a_run_and_keeps_what_it_had(self):
        done = self.run_bench("--limit-seconds", "2", "--no-overhead", WAIT="1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("| 1280 | 8192 | 64 |", done.stdout)

    def test_packed_weights_are_compared_with_plain_ones(self):
        self.run_bench("--groups", "1:64")
        done = self.run_bench("--groups", "1:64", "--packed", "--no-overhead")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| all | 2 | 1.250 |", done.stdout)

    def test_both_classes_and_their_groups_last(self):
        done = self.run_bench("--dtype", "fp8", "--accuracy", "both", "--groups", "1:64", "--no-overhead", "--json", self.build / "report.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.strip().splitlines()
        self.assertTrue(lines[-1].startswith("| fast | all | 2 | 2.000 | 2.000 |"), lines[-1])
        self.assertTrue(any(line.startswith("| default | all | 2 |") for line in lines[-8:]))
        report = json.loads((self.build / "report.json").read_text(encoding="utf-8"))
        self.assertIn("--accuracy", report["fast"]["command"])
        self.assertNotIn("--accuracy", report["default"]["command"])
        self.assertNotEqual(report["fast"]["command"], report["default"]["command"])

    def test_every_second_shape(self):
        done = self.run_bench("--every", "2", "--no-overhead")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("| 1280 | 8192 | 64 |", done.stdout)

    def test_tables_as_csv(self):
        self.run_bench("--no-overhead")
        done = self.run_bench("--no-overhead", "--csv", self.build / "tables")
        self.assertEqual(done.returncode, 0, done.stderr)
        shapes = (self.build / "tables" / "dense_bf16.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(shapes[0], "M,N,K,default_us,tuned_us,dependent_us,floor_us,speedup,speedup_dependent,kernel")
        self.assertEqual(shapes[1], "1,1280,8192,10.00,5.00,4.00,4.88,2.000,2.500,skinny_r1_c4")
        self.assertEqual(shapes[2], "64,1280,8192,10.00,5.00,,5.16,2.000,,skinny_r1_c4")
        groups = (self.build / "tables" / "dense_bf16_groups.csv").read_text(encoding="utf-8").splitlines()
        self.assertEqual(groups[1].split(",")[:7], ["bf16", "1", "1", "1", "2.000", "2.000", "2.500"])
        self.assertEqual(groups[-1].split(",")[:5], ["bf16", "1", "1024", "3", "2.000"])

    def test_results_in_the_repository_have_these_columns(self):
        self.run_bench("--no-overhead", "--csv", self.build / "tables")
        for name in ["dense_bf16.csv", "dense_bf16_groups.csv"]:
            written = (self.build / "tables" / name).read_text(encoding="utf-8").splitlines()[0]
            kept = (BENCH.parents[1] / "bench" / "results" / "h200" / name).read_text(encoding="utf-8").splitlines()[0]
            self.assertTrue(kept.startswith(written), (name, kept))

    def test_no_gpu(self):
        done = self.run_bench(NO_GPU="1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no GPU here: no driver", done.stderr)


if __name__ == "__main__":
    unittest.main()
