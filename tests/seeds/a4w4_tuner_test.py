"""AITER's page on its tuner of MXFP4 products, command by command. Usage: walk.py."""

import shutil
import textwrap

from walk import ROOT, Walk, main, needs_numpy, settled

WAITING = {}

TUNER = "python3 csrc/ck_gemm_a4w4_blockscale/gemm_a4w4_blockscale_tune.py"
CLANG = "GEMM_A4W4_BLOCKWISE_HIP_CLANG_PATH=LLVM_BUILD/bin/"
UNTUNED = "aiter/configs/a4w4_blockscale_untuned_gemm.csv"
TUNED = "aiter/configs/a4w4_blockscale_tuned_gemm.csv"
TUNE = f"{CLANG} {TUNER} -i {UNTUNED} -o {TUNED}"
COLUMNS = "cu_num M N K kernelId splitK us kernelName tflops bw errRatio".split()
SHAPES = "M,N,K\n128,96,256\n16,96,256\n16,64,256\n"

# A test of a user: MXFP4 products beside float64.
PRODUCT = textwrap.dedent("""
    import numpy
    import gemmtune

    VALUES = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    random = numpy.random.default_rng(1)

    def values(bits, scale):
        elements = numpy.stack([VALUES[bits & 15], VALUES[bits >> 4]], -1).reshape(len(bits), -1)
        return elements * numpy.repeat(2.0 ** (scale.astype(int) - 127), 32, 1)

    for m, n, k in SHAPES:
        x, w = (random.integers(0, 256, (rows, k // 2), dtype=numpy.uint8) for rows in (m, n))
        x_scale, w_scale = (random.integers(120, 130, (rows, k // 32), dtype=numpy.uint8) for rows in (m, n))
        bits = numpy.empty((m, n), "u2")
        gemmtune.a4w4_blockscale(x, w, x_scale, w_scale, out=gemmtune.as_type(bits, "bf16"))
        y = (bits.astype("u4") << 16).view("f4").astype(float)
        exact = values(x, x_scale) @ values(w, w_scale).T
        error = abs(y - exact).max() / abs(exact).max()
        assert error < 1e-2, error
        print(f"{m}x{n}x{k} right")
""")


class A4W4Tuner(Walk):
    replaced = {TUNER: "gemmtune tune"}
    variables = {"GEMMTUNE_CONFIG_DIR": "aiter/configs"}  # AITER's tree is the config folder

    def tune(self, more="", **expected):
        """The page's command with one of its options, on an output that has nothing."""
        for file in (self.work / "aiter" / "configs").glob("a4w4_blockscale_tuned_gemm.csv*"):
            file.unlink()
        return self.step(TUNE, more, **{"said": rf"3 shapes in .*: {settled(3)}, 0 failed", **expected})

    def test_02_add_shapes(self):
        self.write(UNTUNED, SHAPES)
        self.step(f"gemmtune shapes -i {UNTUNED}", said=r"(?m)^128,96,256,1$")

    def test_03_tune(self):
        self.step(TUNE, said=rf"3 shapes in .*: {settled(3)}, 0 failed")
        self.expect_columns(TUNED, COLUMNS)
        rows = self.rows(TUNED)
        self.assertEqual([(row["M"], row["N"], row["K"]) for row in rows], [("128", "96", "256"), ("16", "96", "256"), ("16", "64", "256")])
        for row in rows:
            m, n, k, us = int(row["M"]), int(row["N"]), int(row["K"]), float(row["us"])
            self.assertGreater(int(row["cu_num"]), 0)
            self.assertGreater(us, 0)
            self.assertEqual(float(row["tflops"]), round(2 * m * n * k / (us * 1e6), 2))
            self.assertEqual(float(row["bw"]), round((m * k / 2 + n * k / 2 + 2 * m * n) / (us * 1e-6) / 1e9, 2))
            self.assertLessEqual(float(row["errRatio"]), 0.05)
            self.assertEqual((row["kernelId"], row["splitK"]), ("0", "0"))
            self.expect_answer(f"--op a4w4_blockscale -m {m} -n {n} -k {k}", "exact", row["kernelName"])
        self.expect_answer("--op a4w4_blockscale -m 13 -n 96 -k 256", "fine", rows[1]["kernelName"])
        self.expect_right(TUNED, 3)

    def test_04_model_configs_are_merged(self):
        place = "aiter/configs/model_configs/my_a4w4_blockscale_tuned_gemm_model.csv"
        self.write(place, "")
        (self.work / place).unlink()
        self.step(f"gemmtune tune --op a4w4_blockscale -m 32 -n 64 -k 512 -o {place}", said=settled(1))
        self.expect_answer("--op a4w4_blockscale -m 32 -n 64 -k 512", "exact", self.rows(place)[0]["kernelName"])

    @needs_numpy
    def test_05_test_of_the_tuned_kernels(self):
        self.write("op_tests/test_gemm_a4w4_blockscale.py", PRODUCT.replace("SHAPES", "[(128, 96, 256), (32, 64, 512)]"))
        command = f"{CLANG} python3 op_tests/test_gemm_a4w4_blockscale.py"
        self.step(command, said="128x96x256 right\n32x64x512 right")
        logged = self.step(f"AITER_LOG_TUNED_CONFIG=1 {command}", err="shape is M:128").stderr
        self.assertRegex(logged, rf"found padded_M: 128, N:96, K:256 is tuned on cu_num = \d+ in \S*{TUNED}")
        self.assertRegex(logged, r"found padded_M: 32, N:64, K:512 is tuned .*model_configs/my_a4w4_blockscale_tuned_gemm_model\.csv")

    @needs_numpy
    def test_06_rebuild(self):
        self.step("AITER_REBUILD=1 python3 op_tests/test_gemm_a4w4_blockscale.py", said="128x96x256 right")

    def test_07_rebuild_compiles_gpu_kernels_again(self):
        log = {"HIP_DOUBLE_LOG": str(self.top / "calls")}
        self.step("gemmtune tune --op a4w4_blockscale -m 16 -n 64 -k 128 --libtype simt -o hip.csv", on="hip", said=settled(1))
        self.assertEqual(self.rows("hip.csv")[0]["cu_num"], "304")
        self.step("gemmtune check hip.csv --op a4w4_blockscale", on="hip", said="1 right", env=log)
        self.assertEqual(self.compiled("calls"), 0, "they are in the cache")
        self.step("AITER_REBUILD=1 gemmtune check hip.csv --op a4w4_blockscale", on="hip", said="1 right", env=log)
        self.assertGreater(self.compiled("calls"), 0)

    def test_08_the_variable_replaces_the_default(self):
        self.step("gemmtune tune --op a4w4_blockscale -m 8 -n 64 -k 256 -o mine_a4w4_blockscale_tuned_gemm.csv", said=settled(1))
        mine = {"AITER_CONFIG_GEMM_A4W4": "mine_a4w4_blockscale_tuned_gemm.csv"}
        self.expect_answer("--op a4w4_blockscale -m 8 -n 64 -k 256", "exact", env=mine)
        self.assertEqual(self.answer("--op a4w4_blockscale -m 128 -n 96 -k 256", env=mine)["row"], None)

    def test_09_profile_file(self):
        for option in ("--profile_file", "-o2"):
            profile = "aiter/configs/profile_a4w4_blockscale_all.csv"
            (self.work / profile).unlink(missing_ok=True)
            self.tune(f"{option} {profile}")
            self.expect_candidates(profile, TUNED, more_than=3)

    def test_10_sort(self):
        self.tune("--sort")
        self.assertEqual([(row["N"], row["M"]) for row in self.rows(TUNED)], [("64", "16"), ("96", "16"), ("96", "128")])

    def test_11_err_ratio(self):
        self.tune("--errRatio 0.01")
        self.assertTrue(all(float(row["errRatio"]) <= 0.01 for row in self.rows(TUNED)))

    def test_12_mp(self):
        self.tune("--mp 4", err=r"--mp 4: one worker a device, and one is here")
        self.assertEqual(len(self.rows(TUNED)), 3)

    def test_13_mp_on_gpus(self):
        self.step(f"{CLANG} {TUNER} -i {UNTUNED} -o gpus.csv --mp 4 --op a4w4_blockscale --libtype simt", "--timeout 300", on="hip",
                  env={"HIP_DOUBLE_DEVICES": "4"}, said="3 shapes in", err="hip:3")
        self.assertEqual(len(self.rows("gpus.csv")), 3)

    def test_14_batch(self):
        self.tune("--batch 50")

    def test_15_all(self):
        first = self.rows(TUNED)
        self.step(TUNE, said="nothing to do: all 3 shapes are in")
        self.step(TUNE, "--all", said=f"3 shapes in .*: {settled(3)}")
        self.write("two_a4w4_blockscale_untuned_gemm.csv", "M,N,K\n16,96,256\n16,64,256\n")
        self.step(f"{TUNER} -i two_a4w4_blockscale_untuned_gemm.csv -o {TUNED}", "--all", said=f"2 shapes in .*: {settled(2)}")
        self.step(f"{TUNER} -i {TUNED} -o {TUNED}", "--all", said=f"3 shapes in .*: {settled(3)}")
        self.assertEqual([row["M"] + row["N"] for row in self.rows(TUNED)], [row["M"] + row["N"] for row in first])

    def test_15_all_of_a_list_whose_name_says_nothing(self):
        self.write("u.csv", "M,N,K\n16,96,256\n")
        self.step(f"{TUNER} -i u.csv -o {TUNED}", "--all", said=f"1 shape in .*: {settled(1)}")
        self.write("neutral.csv", (self.work / TUNED).read_text())
        self.write("neutral.csv.env.json", (self.work / f"{TUNED}.env.json").read_text())
        self.step(f"{TUNER} -i neutral.csv -o neutral.csv", "--all", said=f"3 shapes in .*: {settled(3)}")

    def test_16_warmup_iters_timeout(self):
        for option, kept in (("--warmup 10", "warmup=10 iters=101"), ("--iters 200", "warmup=5 iters=200"), ("--timeout 300", "warmup=5 iters=101")):
            self.tune(option)
            self.assertIn(kept, (self.work / f"{TUNED}.env.json").read_text())

    def test_17_timeout_none(self):
        self.tune("--timeout None")

    def test_18_verbose(self):
        for option in ("-v", "--verbose"):
            said = self.tune(option).stderr
            for row in self.rows(TUNED):
                self.assertIn(f"  {row['kernelName']} ", said)

    def test_19_prebuilt_kernels(self):
        log = {"HIP_DOUBLE_LOG": str(self.top / "prebuilt"), "AITER_CONFIG_GEMM_A4W4": "hip.csv"}
        check = "gemmtune check hip.csv --op a4w4_blockscale"
        self.forget_kernels()
        self.step(check, on="hip", env=log, said="1 right")
        without = self.compiled("prebuilt")
        self.forget_kernels()
        self.step(f"PREBUILD_KERNELS=1 {ROOT / 'tools' / 'prebuild_kernels.sh'} gemmtune", on="hip", env=log)
        built = self.compiled("prebuilt") - without
        self.assertGreater(built, 0)
        self.step(check, on="hip", env=log, said="1 right")
        self.assertEqual(self.compiled("prebuilt"), 2 * without, "the row's kernels are not compiled again")

    def forget_kernels(self):
        shutil.rmtree(self.top / "home" / ".cache")


if __name__ == "__main__":
    main("a4w4_tuner", WAITING)
