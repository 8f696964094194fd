"""AITER's page on its tuner of the Triton kernel for block-scaled fp8, command by command. Usage: walk.py."""

import json
import re

from walk import ROOT, Walk, main

WAITING = {}

TUNER = "python3 aiter/ops/triton/tune/tune_a8w8_blockscale.py"
CONFIGS = "aiter/aiter/ops/triton/configs/gemm/"
LISTS = {(1024, 1024), (4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)}  # of the page, (N, K)
# One M for each bucket of M, on a weight that a CPU multiplies in a moment.
CUSTOM = "M,N,K\n128,128,256\n256,128,256\n300,128,256\n2100,128,256\n"
FILE = re.compile(r"[\w-]+-GEMM-A8W8_BLOCKSCALE-N=(\d+)-K=(\d+)\.json$")

# The page's parameters and their values.
PARAMETERS = {"BLOCK_SIZE_M": [32, 64, 128], "BLOCK_SIZE_N": [32, 64, 128], "BLOCK_SIZE_K": [128], "GROUP_SIZE_M": [1, 8, 16],
              "NUM_KSPLIT": [1, 2, 4], "num_warps": [2, 4, 8], "num_stages": [1, 2, 3, 4], "waves_per_eu": [2, 4, 8], "kpack": [2],
              "matrix_instr_nonkdim": [16], "cache_modifier": ["", ".cg"]}


class BlockScaleTuner(Walk):
    replaced = {TUNER: "gemmtune tune --op a8w8_blockscale --buckets"}

    def configs(self, folder):
        return {tuple(map(int, FILE.search(str(file)).groups())): json.loads(file.read_text())
                for file in sorted((self.top / folder).rglob("*.json")) if FILE.search(str(file))}

    def buckets(self, config):
        return {key: value for key, value in config.items() if isinstance(value, dict) and not key.startswith("_")}

    def test_01_run(self):
        # As typed it tunes 15 shapes, which take minutes on a CPU: the first one.
        self.step(TUNER, "--limit 1", said=r"1 shape in .* 0 failed")
        found = self.configs(".")
        self.assertEqual(set(found), {(1024, 1024)})
        self.assertEqual(list(self.buckets(found[1024, 1024])), ["small_M"])
        for place in self.top.rglob("*-GEMM-A8W8_BLOCKSCALE-*.json"):
            place.unlink()

    def test_02_sizes_of_the_run(self):
        sizes = self.rows(ROOT / "shapes" / "block_scale_seed.csv")
        self.assertEqual({(int(row["N"]), int(row["K"])) for row in sizes}, LISTS)
        for weight in LISTS:
            self.assertEqual([int(row["M"]) for row in sizes if (int(row["N"]), int(row["K"])) == weight], [256, 2048, 4096])

    def test_03_custom_test_configs(self):
        self.write("custom.csv", CUSTOM)
        self.step(f"{TUNER} -i custom.csv -o {CONFIGS}", said=r"4 shapes in .* 0 failed")

    def test_04_results(self):
        found = self.configs(f"work/{CONFIGS}")
        self.assertEqual(set(found), {(128, 256)})
        buckets = self.buckets(found[128, 256])
        self.assertEqual(list(buckets), ["small_M", "medium_M", "large_M"])
        for bucket in buckets.values():
            self.assertEqual(bucket["BLOCK_SIZE_K"] % 128, 0, "blocks of scales")
            self.assertIn("BLOCK_SIZE_M", bucket)

    def test_05_buckets_answer_their_m(self):
        buckets = self.buckets(self.configs(f"work/{CONFIGS}")[128, 256])
        folder = self.work / CONFIGS
        tuned = json.dumps(sorted(str(file) for file in folder.iterdir()))
        file, = folder.glob("*BLOCKSCALE-N=128-K=256.json")
        for m, key in ((1, "small_M"), (256, "small_M"), (257, "medium_M"), (2048, "medium_M"), (2049, "large_M")):
            found = self.expect_answer(f"--op a8w8_blockscale -m {m} -n 128 -k 256 --table {file}", "bucket", buckets[key]["kernelName"])
            self.assertRegex(found["rule"], key, tuned)
        self.step(f"gemmtune check {file}", on="cpu", said=r"right")
        self.step(f"GEMMTUNE_CONFIG_TRITON={CONFIGS} gemmtune lookup --op a8w8_blockscale -m 300 -n 128 -k 256", on="cpu", said="medium_M")

    def test_06_types_and_checks(self):
        found = self.answer("--op a8w8_blockscale -m 256 -n 128 -k 256")
        self.assertRegex(found["problem"], "x=f8_e4m3fn w=f8_e4m3fn y=bf16")
        self.step(f"{TUNER} -i custom.csv -o checked -o2 all.csv", said=r"4 shapes in .* 0 failed")
        candidates = self.expect_candidates("all.csv", "checked/a8w8_blockscale_tuned_gemm.csv", more_than=8)
        self.assertEqual({float(row["errRatio"]) for row in candidates if row["outcome"] == "ok"}, {0})

    def test_07_search_space(self):
        families = json.loads(self.step("gemmtune explain --op a8w8_blockscale -m 256 -n 128 -k 256 --json", on="cpu").stdout)["families"]
        default, = (family["default"] for family in families if family["name"] == "quantized")
        rows = re.search(r"_mr(\d+)_", default)[1]  # what this CPU has registers for
        self.write("space.yaml", f"quantized:\n  parameters:\n    mr: [{rows}]\n    mc: [64, 256]\n")
        listed = self.step("gemmtune explain --op a8w8_blockscale -m 256 -n 128 -k 256 --space quantized --search-space space.yaml", on="cpu").stdout
        self.assertRegex(listed, rf"(?m)^mr +parameter +\d+ +\d+ +{rows} ")
        self.step(f"{TUNER} -i custom.csv -o narrow -o2 narrow.csv --search-space space.yaml --search exhaustive", said=r"4 shapes in .* 0 failed")
        names = [row["kernelName"] for row in self.rows("narrow.csv")]
        outside = [name for name in names if not re.search(rf"_mr{rows}_.*_mc(64|256)_", name)]
        defaults = {row["default_kernel"] for row in self.rows("narrow/a8w8_blockscale_tuned_gemm.csv")}
        self.assertLessEqual(set(outside), defaults, "they are measured beside the space")
        self.assertLess(len(outside), len(names))

    def test_08_values_that_a_family_does_not_list(self):
        self.write("wide.yaml", "quantized:\n  parameters:\n    mc: [96]\n")
        self.step(f"{TUNER} -i custom.csv -o wide -o2 wide.csv --search-space wide.yaml --search exhaustive", said=r"4 shapes in .* 0 failed")
        self.assertTrue(any("_mc96_" in row["kernelName"] for row in self.rows("wide.csv")))

    def test_09_parameters_of_the_kernel(self):
        bucket = {name: values[-1] for name, values in PARAMETERS.items()}
        name = "gfx942-GEMM-A8W8_BLOCKSCALE-N=1024-K=1024.json"
        text = json.dumps({key: bucket for key in ("small_M", "medium_M", "large_M")}, indent=4)
        self.write(name, text)
        self.step(f"gemmtune audit {name}")
        self.step(f"gemmtune convert {name} --to triton_json -o same/{name}".replace("same/", "same-"))
        self.assertEqual((self.work / f"same-{name}").read_text().strip(), text)
        found = self.answer(f"--op a8w8_blockscale -m 300 -n 1024 -k 1024 --gfx gfx942 --cu_num 304 --table {name}")
        self.assertRegex(found["rule"] + found["why"], "medium_M|Triton")
        # A kernel of another program with these parameters: what is written has them all.
        few = {key: values if key in ("num_warps", "cache_modifier") else values[:1] for key, values in PARAMETERS.items()}
        parameters = [{"name": key, "values": values} for key, values in few.items()]
        hello = {"parameters": parameters, "defaults": {key: values[0] for key, values in PARAMETERS.items()}, "rules": []}
        words = " ".join(f"--hello '\\''{member}={json.dumps(value)}'\\''" for member, value in hello.items())
        evaluator = ROOT / "tests" / "support" / "evaluator.py"
        self.step(f"gemmtune tune --evaluator 'python3 {evaluator} {words}' --op a16w16 --buckets -m 3 -n 8 -k 16 --search exhaustive -o evaluated",
                  on="cpu", said=r"1 shape in .* 0 failed")
        file, = (self.work / "evaluated").glob("*-GEMM-*.json")
        written, = self.buckets(json.loads(file.read_text())).values()
        self.assertLessEqual(set(PARAMETERS), set(written))
        for key, values in PARAMETERS.items():
            self.assertIn(written[key], values)

    def test_10_blocks_are_blocks(self):
        for bucket in self.buckets(self.configs(f"work/{CONFIGS}")[128, 256]).values():
            self.assertTrue(all(value > 0 for key, value in bucket.items() if key.startswith("BLOCK_SIZE")), bucket)


if __name__ == "__main__":
    main("block_scale_tuner", WAITING)
