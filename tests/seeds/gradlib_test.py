"""gradlib's own page, command by command. Usage: walk.py."""

import textwrap

from walk import ONLINE_TIME, Walk, main, needs_numpy

WAITING = {}

TUNER = "python3 gradlib/gradlib/gemm_tuner.py"
UNTUNED = "aiter/configs/bf16_untuned_gemm.csv"
TUNED = "aiter/configs/bf16_tuned_gemm.csv"
TUNE = f"{TUNER} --tuned_file {TUNED}  --input_file {UNTUNED}"
COLUMNS = "cu_num M N K bias dtype outdtype scaleAB bpreshuffle libtype solidx splitK soltimes kernelName tflops bw"
EXAMPLE = f"{COLUMNS.replace(' ', ',')}\n80,128,1536,7168,False,torch.bfloat16,torch.float32,False,False,hipblast,667788,0,10.6,xxxxxxx,265.9,2300.5\n"

# A program of a user in which tgemm.mm stands where F.linear stood. Arrays of numpy: float32.
PROGRAM = textwrap.dedent("""
    import numpy
    from gemmtune.aiter.tuned_gemm import tgemm

    random = numpy.random.default_rng(1)
    for m, n, k in SHAPES:
        x, w, bias = (random.standard_normal(shape).astype("f4") for shape in ((m, k), (n, k), (n,)))
        exact = x.astype(float) @ w.T
        assert abs(tgemm.mm(x, w) - exact).max() < 1e-4
        assert abs(tgemm.mm(x, w, bias) - exact - bias).max() < 1e-4
    print("right")
""")


class Gradlib(Walk):
    replaced = {TUNER: "gemmtune tune", "{workload_tests}": "workload_tests.py", "/path/to/all_results.csv": "all_results.csv"}
    variables = {"GEMMTUNE_CONFIG_DIR": "aiter/configs"}  # AITER's tree is the config folder

    @needs_numpy
    def test_01_capture(self):
        self.write("workload_tests.py", PROGRAM.replace("SHAPES", "[(128, 96, 64), (16, 64, 128), (128, 96, 64)]"))
        self.step("AITER_TUNE_GEMM=1 python {workload_tests}", said="right")
        rows = self.rows(UNTUNED)
        self.assertEqual([(row["M"], row["N"], row["K"], row["bias"]) for row in rows], [
            ("128", "96", "64", "False"), ("128", "96", "64", "True"), ("16", "64", "128", "False"), ("16", "64", "128", "True")])
        self.assertEqual({(row["dtype"], row["outdtype"], row["scaleAB"], row["bpreshuffle"]) for row in rows},
                         {("torch.float32", "torch.float32", "False", "False")})

    def test_02_tune(self):
        if not (self.work / UNTUNED).exists():  # without numpy nothing was captured
            self.write(UNTUNED, "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n" + "".join(
                f"{size},{bias},torch.float32,torch.float32,False,False\n" for size in ("128,96,64", "16,64,128") for bias in ("False", "True")))
        self.step(TUNE, said="4 shapes in .* 0 failed")
        self.expect_columns(TUNED, COLUMNS.replace("soltimes", "us").split())
        for row in self.rows(TUNED):
            self.assertGreater(float(row["us"]), 0)
            self.assertEqual(row["libtype"], row["kernelName"].split("_")[0])
            words = f"-m {row['M']} -n {row['N']} -k {row['K']} --indtype f32" + (" --bias" if row["bias"] == "True" else "")
            self.expect_answer(words, "exact", row["kernelName"])
        self.expect_right(TUNED, 4)

    @needs_numpy
    def test_03_run_your_test(self):
        self.step("python {workload_tests}", said="right")
        logged = self.step("AITER_LOG_TUNED_CONFIG=1 python {workload_tests}", said="right", err="shape is").stderr
        self.assertEqual(logged.count("is tuned on cu_num"), 4)
        self.assertNotIn("not found tuned config", logged)

    def test_04_the_table_of_this_page_is_read(self):
        self.write("page.csv", EXAMPLE)
        found = self.answer("-m 128 -n 1536 -k 7168 --outdtype f32 --gfx gfx942 --cu_num 80 --table page.csv")
        self.assertEqual((found["level"], found["kernelName"], found["row"]["us"]), ("exact", "xxxxxxx", 10.6))
        self.assertEqual((found["libtype"], found["row"]["solidx"], found["row"]["splitK"]), ("hipblast", 667788, 0))
        self.assertIsNone(self.answer("-m 128 -n 1536 -k 7168 --outdtype f32 --gfx gfx942 --cu_num 304 --table page.csv")["row"])
        self.step("gemmtune convert page.csv --to aiter --gfx gfx942 -o today.csv")
        self.expect_columns("today.csv", ("gfx " + COLUMNS.replace("soltimes", "us").replace(" tflops", " err_ratio tflops")).split())

    def test_05_compute_units_alone(self):
        found = self.answer("-m 128 -n 1536 -k 7168 --outdtype f32 --cu_num 80 --table page.csv")
        self.assertEqual((found["level"], found["gfx"]), ("exact", "gfx942"))

    def test_06_a_file_of_this_page_as_output(self):
        refused = self.step(f"{TUNER} --tuned_file page.csv --input_file {UNTUNED}", on="cpu", code=2, err="page.csv").stderr
        self.assertIn("convert", refused)
        self.assertIn("--to aiter", refused)
        self.assertEqual((self.work / "page.csv").read_text(), EXAMPLE)

    def test_07_the_table_of_this_page_is_continued_on_an_amd_gpu(self):
        self.write("amd.csv", EXAMPLE)
        self.step(f"{TUNER} --tuned_file amd.csv --input_file {UNTUNED} --libtype hipblaslt", on="hip", env={"HIP_DOUBLE_UNITS": "80"},
                  said="4 shapes in .* 0 failed")
        text = (self.work / "amd.csv").read_text()
        self.assertIn(EXAMPLE.splitlines()[1], text, "rows of others stay")
        rows = self.rows("amd.csv")
        self.assertEqual(len(rows), 5)
        self.assertTrue(all(row["cu_num"] == "80" and row["libtype"] in ("hipblast", "hipblaslt") and float(row["soltimes"]) > 0 for row in rows))

    def test_08_profile_file(self):
        for option in ("--profile_file", "-o2"):
            (self.work / "all_results.csv").unlink(missing_ok=True)
            self.step(TUNE, f"--all {option} /path/to/all_results.csv", said="all candidates: all_results.csv")
            self.expect_candidates("all_results.csv", TUNED, more_than=8)

    def test_09_mp(self):
        self.step(TUNE, "--all --mp 1", said="4 shapes in .* 0 failed")
        self.step(f"{TUNER} --tuned_file hip.csv --input_file {UNTUNED} --libtype hipblaslt --mp 1", on="hip",
                  env={"HIP_DOUBLE_DEVICES": "2"}, said="4 shapes in .* 0 failed", err="hip:0")

    def test_10_err_ratio(self):
        for ratio in ("0.01", "0.10"):
            self.step(TUNE, f"--all --errRatio {ratio}", said="4 shapes in .* 0 failed")
            self.assertTrue(all(float(row["err_ratio"]) <= float(ratio) for row in self.rows(TUNED)))

    def test_11_sort(self):
        self.step(TUNE, "--all --sort", said="4 shapes in .* 0 failed")
        keys = [(int(row["cu_num"]), int(row["N"]), int(row["M"]), int(row["K"])) for row in self.rows(TUNED)]
        self.assertEqual(keys, sorted(keys))

    def test_12_all(self):
        self.step(TUNE, said="nothing to do: all 4 shapes are in")
        self.step(TUNE, "--all", said="4 shapes in")
        self.write("bf16_one.csv", "\n".join((self.work / UNTUNED).read_text().splitlines()[:2]) + "\n")
        self.step(f"{TUNER} --tuned_file {TUNED} --input_file bf16_one.csv --all", said="1 shape in")
        self.step(f"{TUNER} --tuned_file {TUNED} --input_file {TUNED} --all", said="4 shapes in")
        self.assertEqual(len(self.rows(TUNED)), 4)

    def test_13_verbose(self):
        for option in ("--verbose", "-v"):
            said = self.step(TUNE, f"--all {option}", said="4 shapes in").stderr
            for row in self.rows(TUNED):
                self.assertIn(row["kernelName"], said)

    # ---- online tuning

    @needs_numpy
    def test_14_online_tuning(self):
        self.write("service.py", PROGRAM.replace("SHAPES", "[(3, 80, 64)]"))
        self.step("export HIP_ONLINE_TUNING=1\npython service.py", said="right", env=ONLINE_TIME)
        lines = (self.work / "hip_online_tuning_res.csv").read_text().splitlines()
        self.assertEqual([cell.strip() for cell in lines[0].split(",")], (
            "preshuffle use_rowwise trans_a trans_b m n k A_data_type lda stride_a B_data_type ldb stride_b C_data_type ldc stride_c compute_type "
            "batch_count algo_index kernel_name").split())
        self.assertEqual(len(lines), 2, "one row answers with and without a bias")
        self.assertEqual(lines[1].split(",")[:8], ["false", "false", "T", "N", "80", "3", "64", "f32_r"])

    @needs_numpy
    def test_15_the_file_of_online_tuning_answers(self):
        logged = self.step("export HIP_ONLINE_TUNING=1\nAITER_LOG_TUNED_CONFIG=1 python service.py", said="right", err="shape is").stderr
        self.assertRegex(logged, r"is tuned on cu_num = \d+ in \S*hip_online_tuning_res\.csv")
        self.assertNotIn("tuned online in", logged)

    @needs_numpy
    def test_16_no_time_in_the_file_of_online_tuning(self):
        said = self.step("export HIP_ONLINE_TUNING=1\ngemmtune lookup -m 3 -n 80 -k 64 --indtype f32", on="cpu", said="hip_online_tuning_res").stdout
        self.assertNotIn("µs", said)


if __name__ == "__main__":
    main("gradlib", WAITING)
