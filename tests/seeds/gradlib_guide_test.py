"""AITER's guide to tuned GEMMs, section by section. Usage: walk.py."""

import json
import textwrap

from walk import NUMPY, ONLINE_TIME, ROOT, Walk, main, needs_numpy, needs_torch

WAITING = {}

TUNER = "python3 gradlib/gradlib/gemm_tuner.py"
UNTUNED = "aiter/configs/bf16_untuned_gemm.csv"
TUNED = "aiter/configs/bf16_tuned_gemm.csv"
TUNE = f"""{TUNER} \\
    --tuned_file {TUNED} \\
    --input_file {UNTUNED}"""
COLUMNS = "cu_num M N K bias dtype outdtype scaleAB bpreshuffle libtype solidx splitK us kernelName err_ratio tflops bw".split()
KEY = "M N K bias dtype outdtype scaleAB bpreshuffle".split()

# A program of a user: products of 16 bits beside float64, on numpy's arrays or PyTorch's tensors.
PROGRAM = textwrap.dedent("""
    import numpy
    import gemmtune
    import gemmtune.aiter as aiter
    torch = None  # or: import torch

    random = numpy.random.default_rng(1)

    def bf16(shape):
        bits = numpy.ascontiguousarray(random.standard_normal(shape), "f4").view("u4")
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("u2")

    def array(bits):
        return torch.from_numpy(bits.view("i2")).view(torch.bfloat16) if torch else gemmtune.as_type(bits, "bf16")

    def values(found):
        if torch:
            return found.double().numpy()
        return (numpy.asarray(found).astype("u4") << 16).view("f4").astype(float)

    for m, n, k in SHAPES:
        bits = bf16((m, k)), bf16((n, k))
        x, weight = map(array, bits)
        exact = values(x if torch else bits[0]) @ values(weight if torch else bits[1]).T
        for found in PRODUCTS:
            error = abs(values(found) - exact).max() / abs(exact).max()
            assert error < 1e-2, error
        print(f"{m}x{n}x{k} right")
""")
SHAPES = "[(16, 96, 64), (3, 96, 64), (1, 64, 128), (16, 96, 64)]"

MODEL = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
 "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 256, "torch_dtype": "bfloat16"}"""

# Table of the guide: operation, variable, file, a size on the command line.
TABLES = [
    ("a16w16", "AITER_CONFIG_GEMM_BF16", "bf16_tuned_gemm.csv", "-m 3 -n 64 -k 64"),
    ("a8w8", "AITER_CONFIG_GEMM_A8W8", "a8w8_tuned_gemm.csv", "-m 3 -n 64 -k 64"),
    ("a8w8_bpreshuffle", "AITER_CONFIG_GEMM_A8W8_BPRESHUFFLE", "a8w8_bpreshuffle_tuned_gemm.csv", "-m 3 -n 64 -k 64"),
    ("a8w8_blockscale", "AITER_CONFIG_GEMM_A8W8_BLOCKSCALE", "a8w8_blockscale_tuned_gemm.csv", "-m 3 -n 64 -k 128"),
    ("a4w4_blockscale", "AITER_CONFIG_GEMM_A4W4", "a4w4_blockscale_tuned_gemm.csv", "-m 3 -n 64 -k 64"),
    ("batched_a8w8", "AITER_CONFIG_A8W8_BATCHED_GEMM", "a8w8_tuned_batched_gemm.csv", "-b 2 -m 3 -n 64 -k 64"),
    ("batched_bf16", "AITER_CONFIG_BF16_BATCHED_GEMM", "bf16_tuned_batched_gemm.csv", "-b 2 -m 3 -n 64 -k 64"),
    ("fused_moe", "AITER_CONFIG_FMOE", "tuned_fmoe.csv", "-m 4 -n 64 -k 64 --expert 4 --topk 2"),
]
MIXTURES = ("token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1\n"
            "4,64,64,4,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0\n")
# The tuners for each format: folder, untuned file, its text, tuned file.
QUANTIZED = [
    ("csrc/ck_gemm_a8w8/", "a8w8_untuned_gemm.csv", "M,N,K,q_dtype_w\n3,64,64,torch.int8\n", "a8w8_tuned_gemm.csv"),
    ("csrc/ck_gemm_a8w8_blockscale/", "a8w8_blockscale_untuned_gemm.csv", "M,N,K\n3,64,128\n", "a8w8_blockscale_tuned_gemm.csv"),
    ("csrc/ck_gemm_a8w8_bpreshuffle/", "a8w8_bpreshuffle_untuned_gemm.csv", "M,N,K,q_dtype_w\n3,64,64,torch.int8\n",
     "a8w8_bpreshuffle_tuned_gemm.csv"),
    ("csrc/ck_gemm_a4w4_blockscale/", "a4w4_blockscale_untuned_gemm.csv", "M,N,K\n3,64,64\n", "a4w4_blockscale_tuned_gemm.csv"),
    ("csrc/ck_batched_gemm_a8w8/", "a8w8_untuned_batched_gemm.csv", "B,M,N,K\n2,3,64,64\n", "a8w8_tuned_batched_gemm.csv"),
    ("csrc/ck_gemm_moe_2stages_codegen/", "untuned_fmoe.csv", MIXTURES, "tuned_fmoe.csv"),
]


def program(products, shapes=SHAPES):
    return PROGRAM.replace("PRODUCTS", f"({products},)").replace("SHAPES", shapes)


class GradlibGuide(Walk):
    replaced = {TUNER: "gemmtune tune", "/path/to/model": "model", "/path/to/my_tuned.csv": "my_tuned.csv", "/path/to/custom.csv": "one.csv",
                "/path1.csv": "one.csv", "/path2.csv": "two.csv", "path.csv": "candidates.csv"}
    variables = {"GEMMTUNE_CONFIG_DIR": "aiter/configs"}  # AITER's tree is the config folder

    def shapes(self, path=TUNED):
        return [(int(row["M"]), int(row["N"]), int(row["K"])) for row in self.rows(path)]

    # ---- quick reference, and 1

    @needs_numpy
    def test_01_use_tuned_gemm(self):
        self.write("your_workload.py", program("aiter.tuned_gemm.gemm_a16w16(x, weight), aiter.tuned_gemm.tgemm.mm(x, weight)"))
        self.step("python your_workload.py", said="16x96x64 right\n3x96x64 right\n1x64x128 right\n16x96x64 right")
        self.assertEqual(self.names(), ["your_workload.py"], "nothing is written unless it is asked for")

    @needs_torch
    def test_01_use_tuned_gemm_on_tensors(self):
        text = program("aiter.tuned_gemm.gemm_a16w16(x, weight), aiter.tuned_gemm.tgemm.mm(x, weight)")
        self.write("with_torch.py", text.replace("torch = None  # or: ", ""))
        self.step("python with_torch.py", said="16x96x64 right\n3x96x64 right\n1x64x128 right\n16x96x64 right")

    @needs_numpy
    def test_02_log_of_what_is_not_tuned(self):
        logged = self.step("AITER_LOG_TUNED_CONFIG=1 python your_workload.py", err="shape is M:16").stderr
        self.assertEqual(logged.count("shape is "), 3, "once for each problem")
        self.assertRegex(logged, r"shape is M:3, N:96, K:64, .*not found tuned config in \S*, will use default config!")

    # ---- 3

    @needs_numpy
    def test_03_capture(self):
        self.write("your_inference_script.py", program("aiter.tuned_gemm.gemm_a16w16(x, weight)"))
        self.step("AITER_TUNE_GEMM=1 python your_workload.py", said="right")
        self.step("AITER_TUNE_GEMM=1 python your_inference_script.py", said="right")
        rows = self.rows(UNTUNED)
        self.assertEqual(list(rows[0]), KEY)
        self.assertEqual([tuple(row.values()) for row in rows], [
            (*size, "False", "torch.bfloat16", "torch.bfloat16", "False", "False")
            for size in (("16", "96", "64"), ("3", "96", "64"), ("1", "64", "128"))])

    def test_04_tune(self):
        if not (self.work / UNTUNED).exists():  # without numpy nothing was captured
            self.write(UNTUNED, "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n" + "".join(
                f"{size},False,torch.bfloat16,torch.bfloat16,False,False\n" for size in ("16,96,64", "3,96,64", "1,64,128")))
        self.step(TUNE, said="3 shapes in .* 0 failed")
        self.assertEqual(self.shapes(), [(16, 96, 64), (3, 96, 64), (1, 64, 128)])
        self.expect_right(TUNED, 3)

    def test_05_columns(self):
        self.expect_columns(TUNED, COLUMNS)
        for row in self.rows(TUNED):
            m, n, k, us = int(row["M"]), int(row["N"]), int(row["K"]), float(row["us"])
            self.assertGreater(int(row["cu_num"]), 0)
            self.assertGreater(us, 0)
            self.assertEqual([row[name] for name in KEY[3:]], ["False", "torch.bfloat16", "torch.bfloat16", "False", "False"])
            self.assertEqual(row["kernelName"].split("_")[0], row["libtype"])
            self.assertEqual(row["solidx"], "0")
            self.assertGreaterEqual(int(row["splitK"]), 0)
            self.assertLessEqual(float(row["err_ratio"]), 0.05)
            self.assertEqual(float(row["tflops"]), round(2 * m * n * k / (us * 1e6), 2))
            self.assertEqual(float(row["bw"]), round(2 * (m * k + n * k + m * n) / (us * 1e-6) / 1e9, 2))

    def test_06_lookup_exact_then_padded(self):
        rows = {row["M"]: row["kernelName"] for row in self.rows(TUNED)}
        self.expect_answer("-m 16 -n 96 -k 64", "exact", rows["16"])
        self.expect_answer("-m 3 -n 96 -k 64", "exact", rows["3"])
        self.expect_answer("-m 13 -n 96 -k 64", "fine", rows["16"])
        self.step("gemmtune tune -m 512 -n 96 -k 64 -o big.csv", said="0 failed")
        self.expect_answer("-m 300 -n 96 -k 64 --table big.csv", "coarse", self.rows("big.csv")[0]["kernelName"])
        self.assertIsNone(self.answer("-m 3 -n 97 -k 64")["row"])

    @needs_numpy
    def test_07_the_workload_runs_what_was_tuned(self):
        logged = self.step("AITER_LOG_TUNED_CONFIG=1 python your_workload.py", said="16x96x64 right", err="shape is M:16").stderr
        for row in self.rows(TUNED):
            self.assertRegex(logged, rf"found padded_M: {row['M']}, N:{row['N']}, K:{row['K']} is tuned on cu_num = {row['cu_num']} in \S*{TUNED}, "
                             rf"libtype is {row['libtype']}, kernel name is {row['kernelName']}")

    def test_08_tuner_options(self):
        tuned = self.rows(TUNED)
        for option, err in (("--mp 2", "--mp 2: one worker a device"), ("--errRatio 0.05", ""), ("--batch 100", ""), ("--verbose", tuned[0]["kernelName"])):
            self.step(TUNE, f"--all {option}", said="3 shapes in .* 0 failed", err=err)
        self.step(TUNE, said="nothing to do: all 3 shapes are in")
        self.step(TUNE, "--all --profile_file path.csv", said="all candidates: candidates.csv")
        self.expect_candidates("candidates.csv", TUNED, more_than=3)

    def test_09_libtype(self):
        # float32, which the vendor's library takes on every CPU.
        self.write("f32.csv", ",".join(KEY) + "\n16,96,64,False,torch.float32,torch.float32,False,False\n")
        for word, families in (("all", {"onednn", "tiled", "skinny"}), ("asm", {"tiled", "skinny"}), ("hipblaslt", {"onednn"}), ("triton", {"tiled", "skinny"})):
            for file in self.work.glob("libtype.csv*"):
                file.unlink()
            self.step(f"{TUNER} --tuned_file libtype.csv --input_file f32.csv --libtype {word} --profile_file libtype.csv.all", said="1 shape in .* 0 failed")
            tried = {row["libtype"] for row in self.rows("libtype.csv.all")}
            self.assertLessEqual(families, tried, word)
            if word != "all":
                self.assertLessEqual(tried, families | {"onednn"}, f"{word}, and the default")

    def test_10_libtype_and_mp_on_gpus(self):
        self.step(f"{TUNER} --tuned_file hip.csv --input_file {UNTUNED} --libtype hipblaslt --mp 2", on="hip", env={"HIP_DOUBLE_DEVICES": "2"},
                  said="3 shapes in .* 0 failed", err="hip:1")
        for row in self.rows("hip.csv"):
            self.assertEqual((row["gfx"], row["cu_num"], row["libtype"]), ("gfx942", "304", "hipblaslt"))
            self.assertIn(f"_sol{row['solidx']}_", row["kernelName"])
        self.expect_answer("-m 16 -n 96 -k 64 --table hip.csv", "exact", on="hip")
        self.expect_right("hip.csv", 3, on="hip")

    def test_11_model(self):
        self.write("model/config.json", MODEL)
        self.step(f"""{TUNER} \\
    --model_dir /path/to/model \\
    --tp 8 \\
    --nsets 1,512,1024,2048,4096""", said=r"shapes in .* 0 failed")
        found = set(self.shapes())
        for n, k in ((24, 64), (64, 8), (32, 64), (64, 16)):
            for m in (1, 512, 1024, 2048, 4096):
                self.assertIn((m, n, k), found)
        self.assertIn((1, 32, 64), found, "lm_head")

    def test_12_quantized_tuners(self):
        for folder, untuned, text, tuned in QUANTIZED:
            with self.subTest(folder):
                self.write(f"aiter/configs/{untuned}", text)
                self.step(f"gemmtune tune -i aiter/configs/{untuned} -o aiter/configs/{tuned}", said="1 shape in .* 0 failed")
                self.assertEqual(len(self.rows(f"aiter/configs/{tuned}")), 1)
                self.expect_right(f"aiter/configs/{tuned}", 1)

    # ---- 2

    def test_13_config_files(self):
        for operation, _, file, size in TABLES:
            with self.subTest(file):
                self.step(f"gemmtune tune --op {operation} {size}", said=r"1 shape in .* 0 failed|nothing to do: ")
                kernel = [row["kernelName1" if operation == "fused_moe" else "kernelName"] for row in self.rows(f"aiter/configs/{file}")]
                found = self.expect_answer(f"--op {operation} {size}", "exact")
                self.assertIn(found["kernelName"], kernel)
        (self.work / "aiter" / "configs" / "model_configs").mkdir(exist_ok=True)
        self.step("gemmtune tune -m 7 -n 48 -k 64 -o aiter/configs/model_configs/dsv3_bf16_tuned_gemm.csv", said="0 failed")
        found = self.expect_answer("-m 7 -n 48 -k 64", "exact")
        self.assertRegex(found["row"]["file"], r"aiter/configs/model_configs/dsv3_bf16_tuned_gemm\.csv$")

    def test_14_lists_of_sizes_alone(self):
        for name in ("llama70B", "llama405B", "qwen32B"):
            path = f"aiter/configs/model_configs/{name}_untuned_gemm.csv"
            self.write(path, "M,N,K\n1,64,64\n\n2,64,64\n")
            self.step(f"{TUNER} --tuned_file {name}.csv --input_file {path}", said="2 shapes in .* 0 failed", err="bf16")
            self.assertEqual({row["dtype"] for row in self.rows(f"{name}.csv")}, {"torch.bfloat16"})

    def test_15_shipped_tables(self):
        place = ROOT / "configs" / "model_configs" / "llama-3.1-70b_tp8_bf16_tuned_gemm.csv"
        row = self.rows(place)[0]
        words = f"-m {row['M']} -n {row['N']} -k {row['K']} --gfx sm_90 --cu_num 132"
        found = self.answer(words, env={"GEMMTUNE_SHIPPED": str(place.parent)})
        self.assertEqual((found["level"], found["kernelName"]), ("exact", row["kernelName"]))
        self.assertIsNone(self.answer(words, env={"GEMMTUNE_SHIPPED": "0"})["row"])

    # ---- 1.5

    def test_16_fallbacks(self):
        for words, family in (("-m 300 -n 256 -k 512", "hipblaslt"), ("-m 300 -n 256 -k 512 --bpreshuffle", "mfma|hipblaslt")):
            self.step(f"gemmtune lookup {words}", on="hip", said=rf"answer: no row: .*\n  ({family})")

    def test_17_untuned_small_m(self):
        # Where a table shows it ahead (docs/lookup.md, Untuned calls).
        leads = {"x86-avx512bf16": ("bf16", "f32"), "x86-amx": ("bf16",)}
        for words, x_type in (("-m 1 -n 2048 -k 2048", "bf16"), ("-m 2 -n 2048 -k 2048", "bf16"), ("-m 1 -n 2048 -k 2048 --indtype f32", "f32")):
            explained = json.loads(self.step(f"gemmtune explain {words} --json", on="cpu").stdout)
            few = "skinny" if x_type in leads.get(explained["gfx"], ()) else explained["fallback"].partition("_")[0]
            self.step(f"gemmtune lookup {words}", on="cpu", said=rf"answer: no row: .*\n  {few}_")
        if explained["library"]:
            library = explained["library"].partition("_")[0]
            self.step("gemmtune lookup -m 600 -n 2048 -k 512", on="cpu", said=rf"answer: no row: .*\n  {library}_")
            self.step("gemmtune lookup -m 1 -n 2048 -k 2048 --indtype f32", on="cpu", env={"GEMMTUNE_CPU_ISA": "avx2"},
                      said=rf"answer: no row: .*\n  {library}_")
        self.step("gemmtune lookup -m 1 -n 2048 -k 2048", on="hip", said="answer: no row: .*\n  hipblaslt_")
        # The first call can be verified, and what is tuned is compared with the same kernel.
        self.write("few_rows.py", textwrap.dedent("""
            import numpy
            import gemmtune
            random = numpy.random.default_rng(1)
            x, weight = (random.standard_normal(shape).astype("f4") for shape in ((1, 512), (256, 512)))
            exact = x.astype(float) @ weight.T
            assert abs(gemmtune.linear(x, weight) - exact).max() < 1e-3
            print("right")
        """))
        if NUMPY:
            self.step("python few_rows.py", on="cpu", env={"GEMMTUNE_VERIFY_UNTUNED": "1"}, said="right")
        self.step("gemmtune tune -m 1 -n 256 -k 512 -o few_rows.csv --budget 20", said="1 shape")
        self.assertEqual(self.rows("few_rows.csv")[0]["default_kernel"].partition("_")[0],
                         json.loads(self.step("gemmtune explain -m 1 -n 256 -k 512 --json").stdout)["fallback"].partition("_")[0])

    # ---- 4, 5

    def test_18_phases(self):
        self.step(f"{TUNER} --tuned_file phases.csv --input_file {UNTUNED} --libtype hipblaslt --search two_phase --profile_file phases_all.csv",
                  on="hip", env={"HIP_DOUBLE_LT_SOLUTIONS": "40"}, said="3 shapes in .* 0 failed")
        candidates = [row for row in self.rows("phases_all.csv") if row["M"] == "16"]
        self.assertGreater(len(candidates), 20, "every solution that supports the problem is tried")
        self.assertTrue(all(row["libtype"] == "hipblaslt" for row in candidates))
        self.step("gemmtune tune --help-all", said=r"--prefer-ratio .*\[0\.995\]")

    @needs_numpy
    def test_19_hipb(self):
        self.write("hipb.py", textwrap.dedent("""
            import numpy
            import gemmtune.aiter as aiter
            random = numpy.random.default_rng(1)
            A, B = (random.standard_normal(shape).astype("f4") for shape in ((16, 64), (64, 96)))
            exact = A.astype(float) @ B
            aiter.hipb_create_extension()
            for solution_index in (0, -1):
                y = aiter.hipb_mm(A, B, solution_index, bias=None, out_dtype=None, scaleA=None, scaleB=None)
                assert abs(y - exact).max() < 1e-4
            print("right")
        """))
        self.step("python hipb.py", said="right")

    def test_20_solutions_by_index_on_gpus(self):
        name = self.rows("hip.csv")[0]["kernelName"]
        self.step(f"gemmtune check -m 16 -n 96 -k 64 --kernel {name}", on="hip", said="right")

    def test_21_families_of_the_guide(self):
        listed = self.step("gemmtune explain -m 16 -n 96 -k 64", on="hip").stdout
        for family in ("hipblaslt", "mfma", "skinny"):
            self.assertRegex(listed, rf"(?m)^{family} +[1-9]")

    def test_22_types_of_a_device(self):
        self.step("gemmtune explain --op a8w8_blockscale -m 16 -n 128 -k 256", on="hip", said=r"(?s)f8_e4m3fnuz.*mfma +\d")
        self.step("gemmtune lookup --op a8w8_blockscale -m 16 -n 128 -k 256", on="hip", said="x=f8_e4m3fnuz")

    # ---- 6

    def test_23_config_variables(self):
        for operation, variable, file, size in TABLES:
            with self.subTest(variable):
                lines = (self.work / "aiter" / "configs" / file).read_text().splitlines()
                wanted, = [line for line in lines[1:] if self.is_size(dict(zip(lines[0].split(","), line.split(","))), size)]
                m = "token" if operation == "fused_moe" else "M"
                cells = wanted.split(",")
                cells[lines[0].split(",").index(m)] = "8"
                other = " ".join(["--op", operation, size.replace("-m 3", "-m 8").replace("-m 4", "-m 8")])
                self.write("one.csv", f"{lines[0]}\n{wanted}\n")
                self.write("two.csv", f"{lines[0]}\n{','.join(cells)}\n")
                both = {variable: "one.csv:two.csv"}
                self.expect_answer(f"--op {operation} {size}", "exact", env=both)
                self.assertRegex(self.expect_answer(other, "exact", env=both)["row"]["file"], r"two\.csv$")
                self.assertIsNone(self.answer(other, env={variable: "one.csv"})["row"], "the variable replaces the config folder")

    @staticmethod
    def is_size(row, size):
        words = size.split()
        wanted = dict(zip(words[::2], words[1::2]))
        if "token" in row:
            return (row["token"], row["inter_dim"], row["model_dim"]) == (wanted["-m"], wanted["-n"], wanted["-k"])
        return (row["M"], row["N"], row["K"]) == (wanted["-m"], wanted["-n"], wanted["-k"]) and (
            row.get("dtype", "torch.bfloat16") == "torch.bfloat16")

    def test_24_override_and_merge(self):
        lines = (self.work / TUNED).read_text().splitlines()
        self.write("one.csv", "\n".join([lines[0], lines[1]]) + "\n")
        self.write("two.csv", "\n".join([lines[0], lines[2]]) + "\n")
        for value, levels in (("/path/to/custom.csv", ("exact", "fine")), ("/path1.csv:/path2.csv", ("exact", "exact"))):
            for m, level in zip((16, 3), levels):
                found = json.loads(self.step(f'AITER_CONFIG_GEMM_BF16="{value}" gemmtune lookup -m {m} -n 96 -k 64 --json', on="cpu").stdout)
                self.assertEqual(found["level"], level)
        if (self.work / "your_workload.py").exists():
            logged = self.step('AITER_CONFIG_GEMM_BF16="/path1.csv:/path2.csv" AITER_LOG_TUNED_CONFIG=1 python your_workload.py', said="right",
                               err="shape is").stderr
            self.assertRegex(logged, r"M:16, .*is tuned on cu_num = \d+ in \S*one\.csv")
            self.assertRegex(logged, r"M:3, .*is tuned on cu_num = \d+ in \S*two\.csv")
            self.assertRegex(logged, r"M:1, .*not found tuned config in \S*one\.csv")

    @needs_numpy
    def test_25_online_tuning(self):
        self.write("online.py", program("aiter.tuned_gemm.gemm_a16w16(x, weight)", "[(5, 80, 64)]"))
        self.step("HIP_ONLINE_TUNING=1 python online.py", said="right", env=ONLINE_TIME)
        lines = (self.work / "hip_online_tuning_res.csv").read_text().splitlines()
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[1].split(",")[4:7], ["80", "5", "64"])
        logged = self.step("HIP_ONLINE_TUNING=1 AITER_LOG_TUNED_CONFIG=1 python online.py", said="right", err="shape is").stderr
        self.assertRegex(logged, r"M:5, .*is tuned on cu_num = \d+ in \S*hip_online_tuning_res\.csv")
        self.assertEqual((self.work / "hip_online_tuning_res.csv").read_text().splitlines(), lines, "a row is tuned once")

    # ---- 7

    def test_26_custom_configs_by_a_variable(self):
        self.step("gemmtune tune -m 9 -n 48 -k 64 -o my_tuned.csv", said="0 failed")
        look_up = "\ngemmtune lookup -m {} -n {} -k 64 --json"
        export = 'export AITER_CONFIG_GEMM_BF16="/path/to/my_tuned.csv"'
        self.step(export + look_up.format(9, 48), on="cpu", said='"level": "exact"')
        self.step(export + look_up.format(16, 96), on="cpu", said='"row": null')
        export = f'export AITER_CONFIG_GEMM_BF16="/path/to/my_tuned.csv:{TUNED}"'
        self.step(export + look_up.format(9, 48), on="cpu", said='"level": "exact"')
        self.step(export + look_up.format(16, 96), on="cpu", said='"level": "exact"')

    def test_27_custom_configs_by_a_template(self):
        self.write("aiter/configs/model_configs/my_model_untuned_gemm.csv",
                   ",".join(KEY) + "\n11,48,64,False,torch.bfloat16,torch.bfloat16,False,False\n")
        self.step(f"cp aiter/configs/model_configs/my_model_untuned_gemm.csv {UNTUNED}")
        self.step(TUNE, said="1 shape in .* 0 failed")
        self.expect_answer("-m 11 -n 48 -k 64", "exact")
        self.expect_answer("-m 16 -n 96 -k 64", "exact")

    # ---- what later versions of these tuners take besides

    def test_28_model_by_variables(self):
        self.step(f"{TUNER} --nsets 2 --tuned_file variables.csv", env={"GTUNE_MODEL": "model", "GTUNE_TP": "8", "GTUNE_BATCH_SIZE": "3"},
                  said="shapes in .* 0 failed")
        self.assertIn((6, 24, 64), self.shapes("variables.csv"))

    def test_29_later_options(self):
        self.write("two.csv", ",".join(KEY) + "\n2,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n"
                   "4,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n")
        self.step(TUNER, env={"GTUNE_INPUT": "two.csv", "GTUNE_TUNED": "from_variables.csv"}, said="2 shapes in .* 0 failed")
        self.assertEqual(self.shapes("from_variables.csv"), [(2, 64, 64), (4, 64, 64)])
        self.step(f"{TUNER} --input_file two.csv --tuned_file last.csv --last --all_bias --with-hipblaslt", said="2 shapes in .* 0 failed",
                  err="--with-hipblaslt")
        self.assertEqual([(row["M"], row["bias"]) for row in self.rows("last.csv")], [("4", "False"), ("4", "True")])
        self.write("a8w8_blockscale_untuned_gemm.csv", "M,N,K\n3,128,128\n")
        self.step("gemmtune tune -i a8w8_blockscale_untuned_gemm.csv -o packed.csv --preshuffle --json", said="a8w8_blockscale_bpreshuffle")
        for option, instead in (("--libtype rocblas", "hipblaslt"), ("--blockPerCu 1,2", "--search-space"), ("--grouped-gemm", "--op fused_moe"),
                                ("--mxfp4-flydsl", "--op fused_moe")):
            self.step(f"{TUNER} --input_file two.csv --tuned_file refused.csv {option}", code=2, err=instead)


if __name__ == "__main__":
    main("gradlib_guide", WAITING)
