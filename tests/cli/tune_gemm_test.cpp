// tune_gemm's mode of `tune` from outside: every flag of version 2 (the seed) and of version 3.4, used as its
// README uses it, on a CPU whose clock is simulated.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/compat/tune_gemm_mode.h"
#include "cli/program.h"
#include "cli/tune/tune_report.h"
#include "formats/json.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "support/fixtures.h"
#include "support/gemm_results.h"

namespace gemmtune::test::tune_gemm_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* two_sizes =
    "# sizes\n"
    "- {'M': 16, 'N': 16, 'K': 16, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n"
    "- {'M': 3, 'N': 64, 'K': 64, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n";
constexpr const char* triton_line =
    "- {'M': 5, 'N': 16, 'K': 16, 'rowMajorA': 'T', 'rowMajorB': 'N', 'BLOCK_SIZE_M': 16, 'num_warps': 4}\n";

class TuneGemm : public ::testing::Test {
 protected:
  SubprocessResult tune(std::vector<std::string> words) const {
    words.insert(words.begin(), "tune");
    words.insert(words.end(), {"--libtype", "tiled,skinny", "--confirmations", "1"});
    return program_.run(words);
  }
  /// A result file of 16x16x16 and 3x64x64.
  std::string results() const {
    const std::string path = program_.file("results.yaml");
    const auto tuned = tune({"--gemm_size_file", sizes(), "--tuning_results_file", path, "-q"});
    EXPECT_EQ(tuned.exit_code, 0) << tuned.err << tuned.out;
    return path;
  }
  std::string sizes() const { return program_.folder().write("sizes.yaml", two_sizes); }
  GemmResultFile read(const std::string& path) const {
    auto file = read_gemm_results(path);
    EXPECT_TRUE(file.ok()) << file.message();
    return file.ok() ? std::move(*file) : GemmResultFile();
  }
  Json json_of(const SubprocessResult& result, int code = 0) const {
    EXPECT_EQ(result.exit_code, code) << result.err << result.out;
    return parse_json(result.out);
  }

  SimulatedProgram program_;
};

// Usage 1: tune_gemm.py --gemm_size_file input_gemm_sizes.yaml --compare
TEST_F(TuneGemm, CompareOfASizeFileSaysWhetherEachBestKernelIsRight) {
  const std::string output = program_.file("tuned.csv");
  const auto result = tune({"--gemm_size_file", sizes(), "--compare", "-o", output});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out, HasSubstr("16x16x16 f16 "));
  EXPECT_THAT(result.out, HasSubstr(": correctness: ✅ err_ratio 0, error "));
  EXPECT_THAT(result.out, Not(HasSubstr("improvement"))) << "AITER's report";
  EXPECT_THAT(read_text(output), HasSubstr("torch.float16")) << "it is written, too";
  // What the output has already is checked again, not tuned.
  const Json again = json_of(tune({"--gemm_size_file", sizes(), "--compare", "-o", output, "--json", "-q"}));
  ASSERT_EQ(again["correctness"].size(), 2U);
  EXPECT_EQ(again["correctness"][0]["state"], "right");
  EXPECT_EQ(again["problems"][0]["state"], "done already");
}

// As the script's page types it: no file of results is named, and a size has a row-major B, which AITER's CSV cannot say.
TEST_F(TuneGemm, WithoutAFileOfResultsAYamlOfSizesGivesAYaml) {
  const std::string path =
      program_.folder().write("input_gemm_sizes.yaml",
                              "- {'M': 16, 'N': 16, 'K': 16, 'rowMajorA': 'T', 'rowMajorB': 'T'}\n"
                              "- {'M': 16, 'N': 32, 'K': 16, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n");
  const auto result = tune({"--gemm_size_file", path, "--compare"});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(read(program_.file("tuning_results.yaml")).results.size(), 2U);
  EXPECT_FALSE(file_exists(program_.config_folder() + "/bf16_tuned_gemm.csv"));
  const auto again = tune({"--gemm_size_file", path});
  EXPECT_THAT(again.err + again.out, HasSubstr("tuning_results.yaml"));
  // A CSV of shapes and sizes without the script's options have AITER's table.
  EXPECT_EQ(tune({"-m", "3", "-n", "64", "-k", "64", "-q"}).exit_code, 0);
  EXPECT_TRUE(file_exists(program_.config_folder() + "/bf16_tuned_gemm.csv"));
}

TEST_F(TuneGemm, AWrongWinnerIsAFinding) {
  const RunSummary summary;
  const ShapeList shapes;
  const cli::Outputs outputs;
  const DeviceInfo device;
  cli::RunEnding ending{summary, shapes, outputs, device};
  ending.correctness.emplace();
  ending.correctness->emplace_back();
  RowCheck& check = ending.correctness->back().check;
  check.state = RowCheckState::right;
  EXPECT_EQ(cli::ending_code(ending), 0);
  check.state = RowCheckState::wrong;
  check.reason = "off by one";
  EXPECT_EQ(cli::ending_code(ending), 1);
  EXPECT_THAT(cli::ending_text(ending), HasSubstr("correctness: ❌ off by one"));
  EXPECT_EQ(parse_json(cli::ending_json(ending))["correctness"][0]["state"], "wrong");
}

TEST_F(TuneGemm, CompareOfAnAiterListStaysTheReportOfTimes) {
  const std::string shapes = program_.folder().write(
      "shapes.csv", "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n16,16,16,False,bf16,bf16,False,False\n");
  const auto result = tune({"-i", shapes, "--compare", "-o", program_.file("tuned.csv")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("improvement"));
  EXPECT_THAT(result.out, Not(HasSubstr("correctness")));
  const auto kept = tune({"-i", shapes, "--compare", "--keep", "-o", program_.file("tuned.csv")});
  EXPECT_THAT(kept.out, HasSubstr("improvement")) << "also with an option of tune_gemm's";
  EXPECT_EQ(
      tune({"--gemm_size_file", sizes(), "--compare", "--update_improved", "-o", program_.file("u.yaml")})
          .exit_code,
      2)
      << "a YAML has no times to compare with";
}

// Usage 2: tune_gemm.py -m 16 -n 16 -k 16
TEST_F(TuneGemm, ASingleSizeIsFp16InItsMode) {
  const auto type_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"-m", "16", "-n", "16", "-k", "16", "--json", "-q"});
    return json_of(tune(words))["problems"][0]["problem"].get<std::string>();
  };
  EXPECT_THAT(type_of({"--tuning_results_file", program_.file("r.yaml")}), HasSubstr("x=f16 w=f16 y=f16"));
  EXPECT_THAT(type_of({"-o", program_.file("a.csv"), "--no_warmup"}), HasSubstr("x=f16"));
  EXPECT_THAT(type_of({"-o", program_.file("b.csv")}), HasSubstr("x=bf16")) << "no word of tune_gemm's";
  EXPECT_THAT(type_of({"-o", program_.file("c.yaml"), "--indtype", "bf16"}), HasSubstr("x=bf16"));
  EXPECT_THAT(
      type_of({"-o", program_.file("d.yaml"), "-dtype_a", "bf16", "-dtype_b", "bf16", "-dtype_c", "fp32"}),
      HasSubstr("x=bf16 w=bf16 y=f32"));
  EXPECT_THAT(type_of({"-o", program_.file("e.yaml"), "-dtype_c", "fp32"}), HasSubstr("x=f16 w=f16 y=f32"));
  const auto help = program_.run({"tune", "--help-all"});
  EXPECT_THAT(help.out, HasSubstr("size without a type is fp16 (else bf16)"));
}

TEST_F(TuneGemm, ASizeWithoutAFileOfResultsGivesAYaml) {
  const auto result = tune({"-m", "16", "-n", "16", "-k", "16", "--compare", "-dtype_a", "fp16"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("written: /.*/tuning_results.yaml"));
  EXPECT_THAT(result.out, HasSubstr("correctness: ✅"));
}

// Usage 3: … --tuning_results_file output_tuning.yaml
TEST_F(TuneGemm, ResultsAreReplacedByKeyAndOtherLinesKept) {
  const std::string path =
      program_.folder().write("out.yaml", fmt::format("# mine\n{}{}", triton_line, two_sizes));
  const auto result = tune({"--gemm_size_file", sizes(), "--tuning_results_file", path});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("next: gemmtune tune --gemm_size_file " + path + " --compare_wo_tuning"));
  const std::string text = read_text(path);
  EXPECT_THAT(text, StartsWith(std::string("# mine\n") + triton_line));
  const GemmResultFile file = read(path);
  ASSERT_EQ(file.results.size(), 3U) << text;
  EXPECT_EQ(file.results[1].m, 16);
  EXPECT_EQ(file.results[1].a_order, Order::row_major);
  EXPECT_EQ(file.results[1].b_order, Order::column_major);
  ASSERT_NE(file.results[1].find("kernelName"), nullptr) << text;
  EXPECT_NE(file.results[1].find("mr"), nullptr) << "its settings";
  EXPECT_TRUE(file.results[1].us && file.results[1].tflops) << text;
  EXPECT_FALSE(std::filesystem::exists(program_.config_folder()));
  // --o is the same; a second run replaces its own lines.
  const auto again = tune({"--gemm_size_file", sizes(), "--o", path, "-q"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read(path).results.size(), 3U);
}

TEST_F(TuneGemm, AnOutputThatCannotHoldTheResultsIsAnErrorBeforeTuning) {
  const std::string brackets =
      program_.folder().write("b.yaml", "[{'M': 1, 'N': 2, 'K': 3, 'BLOCK_SIZE_M': 16}]\n");
  const auto result = tune({"-m", "16", "-n", "16", "-k", "16", "-o", brackets});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("-o " + brackets + ": expected a list whose items begin with '- '"));
  EXPECT_EQ(read_text(brackets), "[{'M': 1, 'N': 2, 'K': 3, 'BLOCK_SIZE_M': 16}]\n");
  const auto quantized =
      tune({"--op", "a8w8", "-m", "16", "-n", "16", "-k", "16", "-o", program_.file("q.yaml")});
  EXPECT_EQ(quantized.exit_code, 2);
  EXPECT_THAT(quantized.err, HasSubstr("hold plain GEMMs, not a8w8"));
  EXPECT_EQ(tune({"-n", "16", "-k", "16", "--m-range", "1:4", "-o", program_.file("m.yaml")}).exit_code, 2);
  EXPECT_EQ(
      tune({"-m", "1", "-n", "16", "-k", "16", "-o", program_.file("m.yaml") + ":" + program_.file("n.yaml")})
          .exit_code,
      2);
}

// Usage 4: tune_gemm.py --gemm_size_file output_tuning.yaml --compare_wo_tuning
TEST_F(TuneGemm, CompareWithoutTuningChecksEachRow) {
  const std::string path = results();
  const std::string before = read_text(path);
  const auto right = program_.run({"tune", "--gemm_size_file", path, "--compare_wo_tuning"});
  EXPECT_EQ(right.exit_code, 0) << right.err << right.out;
  EXPECT_THAT(right.out, HasSubstr("16x16x16 f16 "));
  EXPECT_THAT(right.out, HasSubstr("correctness: ✅ err_ratio 0, error "));
  EXPECT_THAT(right.out, HasSubstr("2 results: 2 right, 0 wrong, 0 that cannot run here"));
  EXPECT_EQ(read_text(path), before) << "it writes nothing";
  program_.folder().write("results.yaml", before + triton_line);
  const auto foreign = program_.run({"tune", "--gemm_size_file", path, "--compare_wo_tuning"});
  EXPECT_EQ(foreign.exit_code, 1);
  EXPECT_THAT(foreign.out,
              HasSubstr("not run: a configuration of Triton (BM16_nW4), which only Triton can run"));
  EXPECT_THAT(foreign.out, Not(HasSubstr("❌")));
  EXPECT_THAT(foreign.out, HasSubstr("3 results: 2 right, 0 wrong, 1 that cannot run here"));
  program_.folder().write("results.yaml", before + two_sizes);
  const auto sizes_only = program_.run({"tune", "--gemm_size_file", path, "--compare_wo_tuning"});
  EXPECT_EQ(sizes_only.exit_code, 1);
  EXPECT_THAT(sizes_only.err, HasSubstr("results.yaml:4: 16x16x16 f16: a size without a result"));
}

TEST_F(TuneGemm, CompareWithoutTuningNamesWhatIsWrong) {
  const Program faulty(GEMMTUNE_FAULTY_PROGRAM);
  const std::string path = faulty.folder().write(
      "r.yaml",
      "- {M: 3, N: 64, K: 64, kernelName: good_fast_r1, dtype_a: bf16, dtype_b: bf16, dtype_c: bf16}\n"
      "- {M: 4, N: 64, K: 64, kernelName: wrong_r1, dtype_a: bf16, dtype_b: bf16, dtype_c: bf16}\n"
      "- {M: 5, N: 64, K: 64, kernelName: gone_r1, dtype_a: bf16, dtype_b: bf16, dtype_c: bf16}\n");
  const auto text = faulty.run({"tune", "--gemm_size_file", path, "--compare_wo_tuning"});
  EXPECT_EQ(text.exit_code, 1) << text.err;
  EXPECT_THAT(text.out, HasSubstr("3x64x64 bf16 good_fast_r1: correctness: ✅"));
  EXPECT_THAT(text.out, HasSubstr("4x64x64 bf16 wrong_r1: correctness: ❌ wrong: "));
  EXPECT_THAT(text.out, HasSubstr("5x64x64 bf16 gone_r1: correctness: not run: "));
  const Json json =
      json_of(faulty.run({"tune", "--gemm_size_file", path, "--compare_wo_tuning", "--json"}), 1);
  EXPECT_EQ(json["rows"][1]["state"], "wrong");
  EXPECT_EQ(json["rows"][1]["line"], 2);
  EXPECT_EQ(json["rows"][2]["state"], "not runnable");
}

TEST_F(TuneGemm, ResultsModesNeedAFileAndNothingElse) {
  for (const std::string mode : {"--compare_wo_tuning", "--benchmark"}) {
    const auto missing = program_.run({"tune", mode});
    EXPECT_EQ(missing.exit_code, 2);
    EXPECT_THAT(missing.err, HasSubstr(mode + " needs --gemm_size_file FILE"));
    EXPECT_EQ(program_.run({"tune", mode, "-m", "1", "-n", "16", "-k", "16"}).exit_code, 2);
    EXPECT_EQ(program_.run({"tune", mode, "--gemm_size_file", program_.file("gone.yaml")}).exit_code, 2);
    EXPECT_EQ(program_.run({"tune", mode, "--gemm_size_file", sizes(), "--compare"}).exit_code, 2);
  }
  EXPECT_EQ(program_.run({"tune", "--benchmark", "--compare_wo_tuning", "-i", sizes()}).exit_code, 2);
}

TEST_F(TuneGemm, TheFixturesOfTritonReadAsSizesAndAsResults) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const auto named =
      program_.run({"tune", "--gemm_size_file", folder + "/tune_gemm/fallback_tuned_configs.yaml",
                    "--compare_wo_tuning", "-q"});
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_THAT(named.out, HasSubstr("which only Triton can run"));
  EXPECT_THAT(named.out, HasSubstr("0 right, 0 wrong, "));
  const auto list = program_.run(
      {"shapes", "-i", folder + "/tune_gemm/tuning_gemm_sizes.yaml", "-o", program_.file("s.csv")});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  const std::string rows = read_text(program_.file("s.csv"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 64) << "63 sizes and the header";
}

// v3.4: --benchmark, -o
TEST_F(TuneGemm, BenchmarkWritesTuneGemmsTable) {
  const std::string path = results();
  const std::string table = program_.file("b.csv");
  const auto result =
      program_.run({"tune", "--gemm_size_file", path, "--benchmark", "--o", table, "--iters", "200"});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  const std::string text = read_text(table);
  EXPECT_THAT(text, StartsWith("trans,M,N,K,TFLOPS,us\nTN,16,16,16,"));
  EXPECT_THAT(text, HasSubstr("\nTN,3,64,64,"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  program_.folder().write("results.yaml", read_text(path) + triton_line);
  const auto partly = program_.run({"tune", "--gemm_size_file", path, "--benchmark"});
  EXPECT_EQ(partly.exit_code, 1);
  EXPECT_THAT(partly.out, HasSubstr("not run: a configuration of Triton"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(read_text(program_.file("benchmarking_results.csv")), HasSubstr("TN,16,16,16,"))
      << "the name without --o";
  EXPECT_EQ(program_.run({"tune", "--gemm_size_file", path, "--benchmark", "-o", path}).exit_code, 2)
      << "the results are not replaced by a table";
}

// v3.4: --keep, --verbose, --time_breakdown
TEST_F(TuneGemm, KeepLeavesLogAndTimesInAFolderThatItNames) {
  const std::string output = program_.file("kept.yaml");
  const auto result =
      tune({"--gemm_size_file", sizes(), "--o", output, "--keep", "--verbose", "--time_breakdown"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string folder = program_.file("kept_keep");
  EXPECT_THAT(result.err, HasSubstr("--keep: sources, log and times are left in " + folder));
  EXPECT_THAT(result.out, HasSubstr("kept: " + folder));
  EXPECT_THAT(result.err, HasSubstr("  skinny_r1_")) << "each candidate";
  EXPECT_THAT(result.err, HasSubstr("time breakdown of "));
  EXPECT_THAT(result.err, HasSubstr("search (build, verify, sample) "));
  const std::string log = read_text(folder + "/run.log");
  EXPECT_THAT(log, HasSubstr("16x16x16 f16: begins\n  "));
  EXPECT_THAT(log, HasSubstr("\n3x64x64 f16: "));
  const std::string times = read_text(folder + "/candidates.csv");
  EXPECT_THAT(times, HasSubstr(",outcome,reason\n"));
  const Json json =
      json_of(tune({"-m", "5", "-n", "16", "-k", "16", "-o", output, "--keep", "--json", "-q"}));
  EXPECT_EQ(json["kept"], folder);
  EXPECT_GE(std::count(times.begin(), times.end(), '\n'), json["candidates"].get<int>());
}

// v3.4: --ngpus, --gpu_ids
TEST_F(TuneGemm, GpusAreDevicesOfTheirBackend) {
  const auto device_of = [](std::vector<std::pair<std::string, std::string>> given) {
    cli::TuneOptions options;
    options.input = "sizes.yaml";
    for (const auto& [name, value] : given) {
      if (name == "backend") options.device.backend = value;
      if (name == "device") options.device.device = value;
      if (name == "gpu_ids") options.gpu_ids = value;
      if (name == "ngpus") options.gpus = std::stoi(value);
    }
    const Status status = cli::apply_tune_gemm(options);
    return status.ok() ? options.device.device : status.message();
  };
  EXPECT_EQ(device_of({{"backend", "cuda"}, {"gpu_ids", "0,2"}}), "cuda:0,cuda:2");
  EXPECT_EQ(device_of({{"backend", "cuda"}, {"ngpus", "3"}}), "cuda:0,cuda:1,cuda:2");
  EXPECT_THAT(device_of({{"backend", "cuda"}, {"ngpus", "2"}, {"gpu_ids", "0"}}),
              HasSubstr("--ngpus 2 and --gpu_ids 0: give one of them"));
  EXPECT_THAT(device_of({{"backend", "cuda"}, {"device", "cuda:1"}, {"gpu_ids", "0"}}),
              HasSubstr("not both"));
  EXPECT_THAT(device_of({{"backend", "cpu"}, {"gpu_ids", "0"}}), HasSubstr("--backend cpu has no GPUs"));
  EXPECT_THAT(device_of({{"backend", "cuda"}, {"gpu_ids", "0,x"}}), HasSubstr("expected numbers of GPUs"));
  // The simulated machine has a CPU alone.
  const auto absent = tune({"--gemm_size_file", sizes(), "--gpu_ids", "0,1"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("--gpu_ids 0,1: there is no GPU here"));
  const auto both = tune({"--gemm_size_file", sizes(), "--gpu_ids", "0,1", "--ngpus", "2"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("give one of them, not both"));
}

// v3.4: --jobs, --num_threads, --icache_flush, --hack_triton_compiler
TEST_F(TuneGemm, WhatHasNoMeaningHereIsAcceptedAndSaidInALine) {
  const auto result = tune({"-m", "16", "-n", "16", "-k", "16", "--o", program_.file("r.yaml"), "--jobs", "4",
                            "--num_threads", "8", "--icache_flush", "--hack_triton_compiler"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const std::string line : {"--jobs 4: one worker a device", "--num_threads 8: nothing is compiled",
                                 "--icache_flush: ", "--hack_triton_compiler: no Triton compiler"})
    EXPECT_THAT(result.err, HasSubstr(line));
  EXPECT_EQ(tune({"-m", "16", "-n", "16", "-k", "16", "--jobs", "0"}).exit_code, 2);
}

// v3.4: --init_type, --rotating_tensor, --no_warmup
TEST_F(TuneGemm, DataAndPoolsAreOfTheRunsEnvironment) {
  const auto environment_of = [&](std::vector<std::string> words, const std::string& name) {
    const std::string output = program_.file(name);
    words.insert(words.begin(), {"-m", "16", "-n", "16", "-k", "16", "-dtype_a", "fp16", "-o", output, "-q"});
    const auto result = tune(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_text(output + ".env.json");
  };
  EXPECT_THAT(environment_of({"--init_type", "hpl"}, "hpl.csv"), HasSubstr("data=hpl"));
  EXPECT_THAT(environment_of({"--init_type", "trig_float"}, "trig.csv"), HasSubstr("data=trig_float"));
  EXPECT_THAT(environment_of({"--init_type", "randn"}, "randn.csv"), HasSubstr("data=normal1"));
  EXPECT_THAT(environment_of({"--rotating_tensor", "3"}, "rotating.csv"), HasSubstr("rotating_mb=3"));
  EXPECT_THAT(environment_of({"--no_warmup"}, "cold.csv"), HasSubstr("warmup=0"));
  const auto unknown = tune({"-m", "16", "-n", "16", "-k", "16", "--init_type", "ones"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("--init_type ones: expected randn, hpl, trig_float or zeros"));
  EXPECT_EQ(tune({"-m", "16", "-n", "16", "-k", "16", "--no_warmup", "--warmup", "9"}).exit_code, 2);
  EXPECT_EQ(tune({"-m", "16", "-n", "16", "-k", "16", "--rotating_tensor", "9", "--cache", "warm"}).exit_code,
            2);
  EXPECT_EQ(tune({"--op", "a8w8", "-m", "16", "-n", "16", "-k", "16", "--init_type", "hpl"}).exit_code, 2);
}

TEST_F(TuneGemm, TimesOfZerosAreNeverWritten) {
  const auto improved = tune({"-m", "16", "-n", "16", "-k", "16", "-o", program_.file("i.csv"), "--init_type",
                              "zeros", "--compare", "--update_improved"});
  EXPECT_EQ(improved.exit_code, 2);
  EXPECT_THAT(improved.err, HasSubstr("--init_type zeros: not with --update_improved"));
  for (const std::string name : {"zeros.yaml", "zeros.csv"}) {
    const std::string output = program_.file(name);
    const auto result =
        tune({"-m", "16", "-n", "16", "-k", "16", "-o", output, "--init_type", "zeros", "--compare"});
    EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_THAT(result.err, HasSubstr("--init_type zeros: "));
    EXPECT_THAT(result.out, HasSubstr("nothing is written"));
    EXPECT_THAT(result.out, HasSubstr("correctness: ✅"));
    EXPECT_FALSE(std::filesystem::exists(output)) << name;
  }
}

// v3.4: --bias_vector, -col_a, -col_b
TEST_F(TuneGemm, BiasAndOrdersReachTheProblem) {
  const std::string output = program_.file("bias.yaml");
  const Json json =
      json_of(tune({"--gemm_size_file", sizes(), "--o", output, "--bias_vector", "--json", "-q"}));
  for (const Json& problem : json["problems"])
    EXPECT_THAT(problem["problem"].get<std::string>(), HasSubstr("bias=1"));
  EXPECT_THAT(read_text(output), HasSubstr("'bias_vector': 1}"));
  const auto checked = program_.run({"tune", "--gemm_size_file", output, "--compare_wo_tuning"});
  EXPECT_EQ(checked.exit_code, 0) << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("16x16x16 f16+bias"));
  const auto columns =
      tune({"-m", "16", "-n", "16", "-k", "16", "-col_a", "-col_b", "--o", output, "--json", "-q"});
  EXPECT_THAT(columns.out, HasSubstr("x_order=N"));
  EXPECT_THAT(columns.out, Not(HasSubstr("w_order=")));
}

TEST_F(TuneGemm, ARecordingKeepsTheDataItWasMadeWith) {
  const std::string recording = program_.file("r.jsonl");
  const std::vector<std::string> size = {"-m", "16", "-n", "16", "-k", "16"};
  auto record = size;
  record.insert(record.end(),
                {"--init_type", "hpl", "--record", recording, "-o", program_.file("a.yaml"), "-q"});
  ASSERT_EQ(tune(record).exit_code, 0);
  const auto other =
      tune({"--replay", recording, "--init_type", "trig_float", "-o", program_.file("b.yaml")});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("data=hpl"));
  const auto same = tune({"--replay", recording, "-o", program_.file("c.yaml"), "-q"});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(read(program_.file("c.yaml")).results.size(), 1U);
}

}  // namespace
}  // namespace gemmtune::test::tune_gemm_test
