"""The page of ROCm's GEMM tuning script, version 2, command by command. Usage: walk.py."""

import re

from walk import Walk, main

WAITING = {}

SCRIPT = "python tune_gemm.py"
# Sizes as the script's own lists have them: w [K, N] row by row (T), and [N, K] (N).
SIZES = """\
- {'M': 16, 'N': 16, 'K': 16, 'rowMajorA': 'T', 'rowMajorB': 'N'}
- {'M': 32, 'N': 48, 'K': 64, 'rowMajorA': 'T', 'rowMajorB': 'T'}
- {'M': 32, 'N': 48, 'K': 64, 'rowMajorA': 'N', 'rowMajorB': 'N'}
"""
LINE = re.compile(r"^- (\{.*\}) # TFLOPS: ([\d.e-]+) time\(us\): ([\d.e-]+)$")


class TuneGemm(Walk):
    replaced = {SCRIPT: "gemmtune tune"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work = cls.work / "triton" / "scripts" / "amd" / "gemm"  # the page's first command: cd triton/scripts/amd/gemm/
        cls.work.mkdir(parents=True)

    def results(self, path):
        """Each line's members, and its TFLOPS and microseconds."""
        lines = (self.work / path).read_text(encoding="utf-8").splitlines()
        found = [LINE.match(line) for line in lines]
        self.assertTrue(found and all(found), lines)
        return [(dict(re.findall(r"'(\w+)': '?([^,'}]+)", one[1])), float(one[2]), float(one[3])) for one in found]

    def expect_results(self, path):
        found = self.results(path)
        self.assertEqual([(row["M"], row["N"], row["K"], row["rowMajorA"], row["rowMajorB"]) for row, _, _ in found],
                         [("16", "16", "16", "T", "N"), ("32", "48", "64", "T", "T"), ("32", "48", "64", "N", "N")])
        for row, tflops, us in found:
            self.assertGreater(us, 0)
            self.assertAlmostEqual(tflops, 2 * int(row["M"]) * int(row["N"]) * int(row["K"]) / us / 1e6, delta=0.02)
            self.assertGreaterEqual(int(row["SPLIT_K"]), 1)
            self.assertIn("kernelName", row)

    def test_01_tune_a_list_and_compare(self):
        self.write("input_gemm_sizes.yaml", SIZES)
        done = self.step(f"{SCRIPT} --gemm_size_file input_gemm_sizes.yaml --compare", said="3 shapes in .* 0 failed")
        self.assertEqual(done.stdout.count("correctness: ✅"), 3)
        self.assertEqual(len(re.findall(r"(?m)^\d+x\d+x\d+ f16 ", done.stdout)), 6, "fp16, in the table and in the checks")
        self.expect_results("tuning_results.yaml")

    def test_02_tune_one_size(self):
        self.step(f"{SCRIPT} -m 16 -n 16 -k 16", said=r"16x16x16 .*\n\n1 shape in .* 0 failed")

    def test_03_one_size_of_the_scripts_type(self):
        self.step(f"{SCRIPT} -m 16 -n 16 -k 16", "-dtype_a fp16", said=r"16x16x16 f16 .*\n\n1 shape in .* 0 failed")

    def test_04_choose_the_file_of_results(self):
        self.step(f"{SCRIPT} --gemm_size_file input_gemm_sizes.yaml --tuning_results_file output_tuning.yaml", said="output_tuning.yaml")
        self.expect_results("output_tuning.yaml")

    def test_05_check_results_without_tuning(self):
        before = (self.work / "output_tuning.yaml").read_bytes()
        done = self.step(f"{SCRIPT} --gemm_size_file output_tuning.yaml --compare_wo_tuning", on="cpu",
                         said="output_tuning.yaml: 3 results: 3 right, 0 wrong, 0 that cannot run here")
        self.assertEqual(done.stdout.count("correctness: ✅"), 3)
        self.assertEqual((self.work / "output_tuning.yaml").read_bytes(), before)

    def test_06_a_wrong_result_is_named(self):
        self.write("triton.yaml", "- {'M': 16, 'N': 16, 'K': 16, 'rowMajorA': 'T', 'rowMajorB': 'N', 'BLOCK_SIZE_M': 16, 'BLOCK_SIZE_N': 16, "
                   "'BLOCK_SIZE_K': 16, 'GROUP_SIZE_M': 1, 'SPLIT_K': 1, 'num_warps': 1, 'num_stages': 0} # TFLOPS: 0.00 time(us): 5.12\n")
        self.step(f"{SCRIPT} --gemm_size_file triton.yaml --compare_wo_tuning", on="cpu", code=1, said="0 right, 0 wrong, 1 that cannot run here",
                  err="")

    def test_07_on_a_gpu(self):
        gpu = {"on": "hip", "env": {"GEMMTUNE_CONFIG_DIR": "gpu"}, "said": "0 failed"}
        done = self.step(f"{SCRIPT} --gemm_size_file input_gemm_sizes.yaml --compare", "--libtype hipblaslt", **gpu)
        self.assertEqual(done.stdout.count("correctness: ✅"), 3)
        self.step(f"{SCRIPT} -m 16 -n 16 -k 16", "--libtype hipblaslt", **gpu)
        self.assertEqual(self.rows("gpu/bf16_tuned_gemm.csv")[0]["libtype"], "hipblaslt")
        self.step(f"{SCRIPT} --gemm_size_file input_gemm_sizes.yaml --tuning_results_file gpu.yaml", "--libtype hipblaslt", **gpu)
        self.step(f"{SCRIPT} --gemm_size_file gpu.yaml --compare_wo_tuning", on="hip", said="3 results: 3 right, 0 wrong, 0 that cannot run here")

    def test_08_kernels_are_compiled_ahead_and_kept(self):
        self.step(f"{SCRIPT} -m 16 -n 16 -k 16", "--tuning_results_file kept.yaml --libtype simt --num_threads 2 --keep", on="hip", said=" 0 failed")
        folder = self.work / "kept_keep"
        self.assertTrue(any((folder / "sources").iterdir()), "the source of each kernel")
        self.assertGreater(len(self.rows(folder / "candidates.csv")), 0)
        self.assertTrue((folder / "run.log").stat().st_size)

    def test_09_rules_of_every_space(self):
        listed = self.step("gemmtune explain -m 16 -n 16 -k 16 --indtype f16 --space mfma", on="hip").stdout
        for rule in ("tile", "LDS", "waste", "split-K", "split-K divides"):
            self.assertRegex(listed, rf"(?m)^{rule} +(build|search) rule")

    def test_10_splits_divide_k(self):
        self.write("divides.yaml", "mfma:\n  rules: {split-K divides: on}\n")
        words = "gemmtune explain -m 16 -n 16 -k 4112 --indtype f16 --space mfma"
        count = [int(re.search(r"(\d+) allowed", self.step(words + more, on="hip").stdout)[1]) for more in ("", " --search-space divides.yaml")]
        self.assertLess(count[1], count[0])

    def test_11_rules_of_the_page(self):
        self.step(f"{SCRIPT} -m 16 -n 16 -k 16 --rules tune_gemm_v2", "--tuning_results_file rules.yaml", said=" 0 failed")
        listed = self.step("gemmtune explain -m 16 -n 16 -k 16 --indtype f16 --space tune_gemm_v2", on="cpu").stdout
        points, allowed = map(int, re.search(r"(\d+) points, (\d+) allowed", listed).groups())
        print(f"the page's space at 16x16x16: {points} points, {allowed} after its rules")
        self.assertTrue(0 < allowed < points)
        on_mfma = self.step("gemmtune explain -m 16 -n 16 -k 16 --indtype f16 --space mfma --rules tune_gemm_v2", on="hip").stdout
        self.assertRegex(on_mfma, r"(?m)^tune_gemm_v2 .* search rule +\d")

    def test_12_both_orders_on_matrix_cores(self):
        for words in ("", "--w_order N", "--x_order N", "--x_order N --w_order N"):
            self.step(f"gemmtune explain -m 32 -n 48 -k 64 --indtype f16 {words}", on="hip", said=r"(?m)^mfma +[1-9]")


if __name__ == "__main__":
    main("tune_gemm", WAITING)
