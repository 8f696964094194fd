// Wrong usage is answered in one clear line on stderr, with exit code 2 and nothing on stdout.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/environment_variables.h"
#include "cli/program.h"
#include "cli/shared/console.h"
#include "formats/aiter/schema.h"
#include "formats/json.h"
#include "tuned/entry.h"
#include "tuning/operator_bench.h"

namespace gemmtune::test::usage_test {
namespace {

using cli::width;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* key_header = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
constexpr const char* right_row = "3,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n";

void expect_one_line(const SubprocessResult& result, const std::string& part) {
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(part));
  EXPECT_EQ(result.out, "");
}

class Usage : public ::testing::Test {
 protected:
  std::string shapes(const std::string& content) const {
    return program.folder().write("shapes.csv", content);
  }
  std::string right_shapes() const { return shapes(std::string(key_header) + right_row); }
  std::string output() const { return program.file("out.csv"); }

  Program program;
};

TEST_F(Usage, UnknownCommandOptionAndNoCommand) {
  expect_one_line(program.run({"polish"}), "polish");
  expect_one_line(program.run({"tune", "--polish"}), "--polish");
  const auto none = program.run({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.out, HasSubstr("gemmtune"));
}

TEST_F(Usage, AWordThatIsNearlyRightIsAnsweredWithTheRightOne) {
  const auto said = [&](std::vector<std::string> words, const std::string& part) {
    expect_one_line(program.run(std::move(words)), part);
  };
  said({"tunee"}, "unknown command 'tunee'; did you mean tune? (known: tune, ");
  said({"benchmark"}, "did you mean bench?");
  said({"polish"}, "unknown command 'polish' (known");
  said({"tune", "--buget", "3"},
       "gemmtune tune: unknown option --buget; did you mean --budget? (see gemmtune tune --help)");
  said({"tune", "--dtype", "bf16", "-m", "1"}, "unknown option --dtype; did you mean --indtype?");
  said({"devices", "--gpu"}, "unknown option --gpu; did you mean --device cuda:0?");
  said({"tune", "--polish"}, "unknown option --polish (see");
  said({"tune", "--backend", "gpu", "-m", "1", "-n", "8", "-k", "8", "-o", output()},
       "backend 'gpu', expected one of auto, cuda, hip, cpu: cuda is for NVIDIA GPUs, hip for AMD GPUs");
  said({"tune", "--backend", "rocm", "-m", "1", "-n", "8", "-k", "8", "-o", output()}, "hip is for AMD GPUs");
}

TEST_F(Usage, HelpAndVersionAreCommandsToo) {
  EXPECT_EQ(program.run({"help"}).out, program.run({"--help"}).out);
  EXPECT_EQ(program.run({"help", "lookup"}).out, program.run({"lookup", "--help"}).out);
  EXPECT_EQ(program.run({"version"}).out, program.run({"--version"}).out);
  EXPECT_EQ(program.run({"version"}).exit_code, 0);
  expect_one_line(program.run({"help", "lokup"}), "did you mean lookup?");
}

TEST_F(Usage, HelpOfTuneIsShortAndNamesOptionsThatExist) {
  const std::string help = program.run({"tune", "--help"}).out;
  const std::string all = program.run({"tune", "--help-all"}).out;
  std::istringstream lines(help);
  int count = 0;
  int options = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(width(line), 80U) << line;
    const std::size_t dash = line.find("--");
    if (!line.starts_with("  ") || line.starts_with("  gemmtune") ||
        (dash == std::string::npos && line[2] != '-'))
      continue;
    ++options;
    const std::string name =
        dash == std::string::npos ? line.substr(2, 2) : line.substr(dash, line.find(' ', dash) - dash);
    EXPECT_THAT(all, HasSubstr(name)) << line;
  }
  EXPECT_LE(count, 80) << "two screens of 80 x 40";
  EXPECT_GE(options, 28);
  EXPECT_LE(options, 34);
  for (const char* heading : {"Shapes:", "Output:", "Search:", "Measuring:", "Device and reports:"})
    EXPECT_THAT(help, HasSubstr(std::string("\n") + heading + "\n"));
  EXPECT_THAT(help, HasSubstr("gemmtune help verdicts"));
  EXPECT_THAT(help, Not(HasSubstr("--hack-triton-compiler")));
  EXPECT_THAT(all, HasSubstr("--hack-triton-compiler"));
}

TEST_F(Usage, VerdictsAreExplained) {
  const std::string text = program.run({"help", "verdicts"}).out;
  std::vector<std::string> words = {"slower", "same kernel"};
  for (const Verdict verdict : all_verdicts()) words.emplace_back(to_string(verdict));
  for (const BenchVerdict verdict :
       {BenchVerdict::win, BenchVerdict::slower, BenchVerdict::undecided, BenchVerdict::same_kernel})
    words.emplace_back(to_string(verdict));
  for (const std::string& word : words) {
    if (word.empty()) continue;
    EXPECT_THAT(text, HasSubstr("\n  " + word + " "));
  }
  EXPECT_THAT(text, HasSubstr("\n  ties "));
}

TEST_F(Usage, ColumnsAndVariablesAreExplained) {
  const std::string columns = program.run({"help", "columns"}).out;
  for (std::size_t i = 0; i < column_count; ++i) {
    const auto column = static_cast<Column>(i);
    ASSERT_FALSE(column_names(column).empty());
    EXPECT_FALSE(describe(column).empty()) << column_names(column).front();
    EXPECT_THAT(columns, HasSubstr(fmt::format("\n  {}", fmt::join(column_names(column), ", "))));
  }
  const std::string variables = program.run({"help", "variables"}).out;
  for (const EnvironmentVariable& variable : environment_variables())
    EXPECT_THAT(variables, HasSubstr(fmt::format("\n  {}", variable.name)));
  EXPECT_THAT(variables, HasSubstr("\n  GEMMTUNE_CONFIG_FUSED_MOE, AITER_CONFIG_FMOE\n"));
  EXPECT_EQ(program.run({"help", "variable"}).out, variables);
  const std::string page = program.run({"man"}).out;
  for (const char* section : {".SH VERDICTS", ".SH COLUMNS", ".SH VARIABLES"})
    EXPECT_THAT(page, HasSubstr(section));
}

TEST_F(Usage, ErrorsUnderJsonAreJson) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"tune", "--buget", "3", "--json"},
                                                {"lookup", "-m", "x", "-n", "8", "-k", "8", "--json"},
                                                {"tune", "-i", "nofile.csv", "-o", output(), "--json"},
                                                {"audit", "nofile.csv", "--json"}}) {
    const auto result = program.run(words);
    EXPECT_EQ(result.exit_code, 2);
    const auto json = nlohmann::json::parse(result.out);
    EXPECT_EQ(json["command"], words[0]);
    EXPECT_EQ(json["exit_code"], 2);
    EXPECT_THAT(result.err, HasSubstr(json["error"].get<std::string>()));
  }
}

TEST_F(Usage, CompletionsAndTheManualPageNameEveryCommand) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto script = program.run({"completion", shell});
    EXPECT_EQ(script.exit_code, 0);
    for (const char* word : {"tune", "journal", "budget", "max-regression"})
      EXPECT_THAT(script.out, HasSubstr(word)) << shell;
  }
  expect_one_line(program.run({"completion", "csh"}), "expected bash, zsh or fish");
  const std::string script = program.folder().write(
      "complete.sh",
      "source " + program.folder().write("bash", program.run({"completion", "bash"}).out) +
          "\nCOMP_WORDS=(gemmtune \"$@\"); COMP_CWORD=$#; _gemmtune; echo \"${COMPREPLY[*]}\"\n");
  const auto completed = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/env", "bash", script});
    return run_program(words, program.options()).out;
  };
  EXPECT_EQ(completed({"jo"}), "journal\n");
  EXPECT_EQ(completed({"tune", "--budg"}), "--budget\n");
  EXPECT_EQ(completed({"help", "verd"}), "verdicts\n");
  EXPECT_EQ(completed({"completion", "z"}), "zsh\n");
  EXPECT_EQ(completed({"tune", "file"}), "\n") << "files are bash's own";
  const std::string page = program.run({"man"}).out;
  EXPECT_THAT(page, HasSubstr(".TH GEMMTUNE 1"));
  EXPECT_THAT(page, HasSubstr("\\-\\-budget"));
  EXPECT_THAT(page, HasSubstr(".SH \"gemmtune report\""));
}

TEST_F(Usage, SeveralMAndADryRun) {
  const auto plan = nlohmann::json::parse(
      program.run({"tune", "-m", "1,16", "-n", "64", "-k", "64", "-o", output(), "--dry-run", "--json"}).out);
  ASSERT_EQ(plan["shapes"].size(), 2U);
  EXPECT_THAT(plan["shapes"][1]["problem"].get<std::string>(), HasSubstr("m=16 "));
  EXPECT_GT(plan["shapes"][0]["candidates"].get<int>(), 0);
  EXPECT_GT(plan["predicted_seconds"].get<double>(), 0);
  EXPECT_FALSE(std::filesystem::exists(output()));
  EXPECT_FALSE(std::filesystem::exists(output() + ".journal"));
  expect_one_line(program.run({"tune", "-m", "1,x", "-n", "64", "-k", "64", "-o", output()}),
                  "-m x: expected a whole number");
  expect_one_line(program.run({"tune", "--problem", "a16w16 m=1 n=8 k=8", "-m", "1", "-o", output()}),
                  "--problem and -m");
  const auto one =
      nlohmann::json::parse(program.run({"lookup", "-m", "1", "-n", "64", "-k", "64", "--json"}).out);
  EXPECT_EQ(one["command"], "lookup");
  const auto two =
      nlohmann::json::parse(program.run({"lookup", "-m", "1,2", "-n", "64", "-k", "64", "--json"}).out);
  ASSERT_EQ(two["answers"].size(), 2U);
  EXPECT_EQ(two["answers"][1]["index"], 1);
}

TEST_F(Usage, FilesAreTheFirstWordEverywhere) {
  const std::string list = right_shapes();
  const auto plan = program.run({"tune", list, "-o", output(), "--dry-run", "--json"});
  EXPECT_EQ(nlohmann::json::parse(plan.out)["shapes"].size(), 1U) << plan.err;
  expect_one_line(program.run({"tune", list, "-i", "other.csv", "-o", output(), "--dry-run"}), "");
  EXPECT_THAT(program.run({"shapes", list}).out, HasSubstr("3,64,64"));
  const std::string table = program.folder().write(
      "t.csv",
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,"
      "err_ratio,tflops,bw\ngfx942,80,3,64,64,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,9,k,0,,"
      "\n");
  const std::vector<std::string> asked = {"--gfx", "gfx942", "--cu_num", "80", "--json"};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"lookup", table, "-m", "3", "-n", "64", "-k", "64"},
        {"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", table}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), asked.begin(), asked.end());
    EXPECT_EQ(nlohmann::json::parse(program.run(all).out)["level"], "exact");
  }
  std::vector<std::string> coverage = {"coverage", list, table};
  coverage.insert(coverage.end(), asked.begin(), asked.end());
  EXPECT_EQ(nlohmann::json::parse(program.run(coverage).out)["levels"]["exact"]["shapes"], 1);
}

TEST_F(Usage, MissingKeyColumn) {
  const auto result = program.run({"tune", "-i", shapes("M,N,bias\n1,2,False\n"), "-o", output()});
  expect_one_line(result, "shapes.csv");
  EXPECT_THAT(result.err, HasSubstr("K"));
}

TEST_F(Usage, SizesOutOfRangeInAFile) {
  for (const std::string m : {"0", "-3", "1099511627776"}) {
    const std::string row = m + ",64,64,False,torch.bfloat16,torch.bfloat16,False,False\n";
    const auto only = program.run({"shapes", "-i", shapes(key_header + row)});
    expect_one_line(only, "shapes.csv");
    EXPECT_THAT(only.err, HasSubstr(m));
    // Beside a right row it is reported with its line, and the rest is used.
    const auto beside = program.run({"shapes", "-i", shapes(key_header + row + right_row)});
    EXPECT_EQ(beside.exit_code, 1) << beside.err;
    EXPECT_THAT(beside.err, HasSubstr("shapes.csv:2"));
    EXPECT_THAT(beside.err, HasSubstr(m));
    EXPECT_THAT(beside.out, HasSubstr("3,64,64"));
    expect_one_line(program.run({"shapes", "--strict", "-i", shapes(key_header + row + right_row)}),
                    "shapes.csv:2");
  }
}

TEST_F(Usage, SizesOutOfRangeOnTheCommandLine) {
  for (const std::string m : {"0", "-3", "1099511627776", "1.5", "1e400"}) {
    expect_one_line(program.run({"tune", "-m", m, "-n", "64", "-k", "64", "-o", output()}), "-m " + m);
  }
  expect_one_line(program.run({"tune", "-m", "3", "-n", "64", "-o", output()}), "missing: -k");
  expect_one_line(program.run({"lookup", "-m", "3", "-n", "64"}), "-k");
}

TEST_F(Usage, UnreadableFile) {
  expect_one_line(program.run({"tune", "-i", program.file("gone.csv"), "-o", output()}), "gone.csv");
  expect_one_line(program.run({"tune", "-i", program.folder().path(), "-o", output()}),
                  program.folder().path());
  expect_one_line(program.run({"tune", "-i", shapes(""), "-o", output()}), "shapes.csv");
  if (geteuid() != 0) {
    const std::string path = right_shapes();
    std::filesystem::permissions(path, std::filesystem::perms::none);
    expect_one_line(program.run({"tune", "-i", path, "-o", output()}), "ermission");
  }
}

TEST_F(Usage, NoShapesAtAll) {
  expect_one_line(program.run({"tune", "-o", output()}), "bf16_untuned_gemm.csv");
  expect_one_line(program.run({"shapes"}), "--model_dir");
}

TEST_F(Usage, OutputThatCannotBeWritten) {
  expect_one_line(program.run({"tune", "-i", right_shapes(), "-o", program.file("no/such/folder/x.csv/y")}),
                  "no/such");
  expect_one_line(
      program.run({"tune", "-i", right_shapes(), "-o", output(), "--record", program.folder().path()}),
      "is a directory");
  expect_one_line(program.run({"tune", "-i", right_shapes(), "-o", program.file("no/such/out.csv")}),
                  "no/such");
  expect_one_line(program.run({"tune", "-i", right_shapes(), "-o", "/dev/null"}), "/dev/null");
  expect_one_line(program.run({"tune", "-i", right_shapes(), "-o", output(), "-o2", program.folder().path()}),
                  "-o2");
}

TEST_F(Usage, FullDiskIsSeenBeforeTuning) {
  SubprocessOptions options = program.options();
  options.max_file_bytes = 0;
  // The outputs of the test itself are files too: nothing arrives, the exit code says it all.
  const auto result = program.run({"tune", "-i", right_shapes(), "-o", output()}, options);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(output()));

  options.max_file_bytes = 1000;
  const auto small = program.run({"tune", "-i", right_shapes(), "-o", output()}, options);
  expect_one_line(small, "cannot be written");
  EXPECT_FALSE(std::filesystem::exists(output()));
}

TEST_F(Usage, FamiliesBackendsAndWords) {
  const std::string path = right_shapes();
  const auto family = program.run({"tune", "-i", path, "-o", output(), "--libtype", "tiled,fancy"});
  expect_one_line(family, "'fancy'");
  EXPECT_THAT(family.err, HasSubstr("skinny"));
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--backend", "fancy"}), "fancy");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--backend", "cuda"}), "cuda");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--device", "cpu:0,cpu:0"}), "twice");
  expect_one_line(program.run({"bench", path, "--device", "cpu:0,cpu:1"}), "several devices");
  if (sysconf(_SC_NPROCESSORS_ONLN) >= 2) {
    expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--device", "cpu:0-1,cpu:1,0"}),
                    "share core");
    expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--device", "cpu:0-1,cpu:1"}),
                    "not equal");
  }
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--device", "cpu:9999"}), "9999");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--search", "guess"}), "exhaustive");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--cache", "hot"}), "weights-cold");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--csv-schema", "new"}), "aiter");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--sort=maybe"}), "--sort maybe");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--op", "gemm9"}), "gemm9");
  expect_one_line(program.run({"tune", "-i", path, "-o", output(), "--indtype", "bf17"}), "bf17");
}

TEST_F(Usage, NumbersOutOfRange) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--errRatio", "1.5"}, {"--errRatio", "-1"}, {"--prefer-ratio", "0"}, {"--prefer-ratio", "2"},
      {"--budget", "-1"},    {"--iters", "0"},     {"--warmup", "-1"},      {"--limit", "0"},
      {"--batch", "0"},      {"--mp", "-1"},       {"--timeout", "soon"},   {"--timeout", "0"},
      {"--threads", "0"},    {"--threads", "many"}};
  for (const auto& [flag, value] : cases) {
    expect_one_line(program.run({"tune", "-i", right_shapes(), "-o", output(), flag + "=" + value}), flag);
  }
}

TEST_F(Usage, ValuesOfOptionsThatNothingUsesAreCheckedToo) {
  const std::string path = right_shapes();
  for (const std::string option : {"--tp", "--batch_size", "--nsets"}) {
    for (const std::string value : {"nan", "0", "-1", "1.5", "4294967297"}) {
      expect_one_line(program.run({"tune", "-i", path, "-o", output(), option + "=" + value}), option);
      expect_one_line(program.run({"shapes", "-i", path, option + "=" + value}), option);
    }
  }
  for (const std::string option :
       {"--batch-count", "--expert", "--topk", "--act_type", "--q_type", "--use_g1u1"}) {
    expect_one_line(program.run({"tune", "-i", path, "-o", output(), option + "=nan"}), "nan");
  }
  expect_one_line(
      program.run({"lookup", "-m", "3", "-n", "64", "-k", "64", "--gfx", "gfx942", "--backend", "fancy"}),
      "fancy");
}

TEST_F(Usage, NumbersAreFinite) {
  const std::string path = right_shapes();
  for (const std::string value : {"nan", "inf", "1.5", "x"}) {
    expect_one_line(program.run({"bench", path, "--errRatio", value}), "--errRatio");
    expect_one_line(program.run({"check", path, "--errRatio", value}), "--errRatio");
  }
  for (const std::string value : {"nan", "inf", "-1", "x"}) {
    expect_one_line(program.run({"bench", path, "--max-regression", value}), "--max-regression");
    expect_one_line(program.run({"diff", path, path, "--tolerance", value}), "--tolerance");
  }
}

TEST_F(Usage, CountsSayWhatIsExpected) {
  const std::string path = right_shapes();
  for (const std::string value : {"0", "-1", "1.5", "x", "99999999999999999999"}) {
    for (const std::string option : {"--limit", "--rounds", "--threads"}) {
      const auto result = program.run({"bench", path, option + "=" + value});
      expect_one_line(result, option);
      EXPECT_LT(result.err.size(), 200U) << result.err;
    }
  }
  for (const std::string value : {"-1", "1.5", "x", "99999999999999999999"}) {
    expect_one_line(program.run({"hunt", "--backend", "cpu", "--budget", "0.01", "--seed=" + value}),
                    "--seed: value " + value + ": expected a whole number of at least 0");
  }
}

TEST_F(Usage, NumbersOfVariablesAreWholeAndInRange) {
  const auto run_with = [this](const char* name, const char* value, std::vector<std::string> words) {
    SubprocessOptions options = program.options();
    options.environment[name] = value;
    return program.run(std::move(words), options);
  };
  for (const char* value : {"abc", "4294967297", "-1", "1.5"}) {
    expect_one_line(run_with("GEMMTUNE_NUM_THREADS", value, {"devices"}),
                    std::string("GEMMTUNE_NUM_THREADS ") + value);
    expect_one_line(run_with("GEMMTUNE_NUM_THREADS", value, {"explain", "-m", "3", "-n", "64", "-k", "64"}),
                    std::string("GEMMTUNE_NUM_THREADS ") + value);
  }
  expect_one_line(run_with("GEMMTUNE_TEAM", "gomp", {"devices"}), "GEMMTUNE_TEAM gomp");
  // The option answers in the variable's place, and a variable of another command is not looked at.
  EXPECT_EQ(run_with("GEMMTUNE_NUM_THREADS", "abc", {"devices", "--threads", "1"}).exit_code, 0);
  EXPECT_EQ(run_with("GTUNE_TP", "abc", {"devices"}).exit_code, 0);
}

TEST_F(Usage, AnOperationThatNoFamilyTakesIsAFinding) {
  const auto result = program.run(
      {"tune", "-m", "3", "-n", "64", "-k", "64", "--op", "a8w8", "--libtype", "skinny", "-o", output()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("1 that no family takes"));
  EXPECT_FALSE(std::filesystem::exists(output()));
  expect_one_line(program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--op", "fmoe", "-o", output()}),
                  "experts = 0");
  expect_one_line(program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--op", "fancy", "-o", output()}),
                  "unknown operation");
}

TEST_F(Usage, ContradictionsAndMissingParts) {
  const std::string path = right_shapes();
  expect_one_line(program.run({"tune", "-i", path, "-m", "3", "-n", "64", "-k", "64", "-o", output()}),
                  "not several");
  expect_one_line(program.run({"tune", "-i", path, "--update_improved", "-o", output()}), "--compare");
  expect_one_line(
      program.run({"tune", "-i", path, "--device", "cpu:0,cpu:1", "--in-process", "-o", output()}),
      "--in-process");
  expect_one_line(program.run({"tune", "-i", path, "--replay", "r.json", "-o", output()}), "--replay");
  expect_one_line(program.run({"tune", "-i", path, "--csv-schema", "seed", "-o", output()}), "gfx");
}

/// A list without the column was tuned as if the option had not been given.
TEST_F(Usage, OptionsOfOneSizeBesideAList) {
  const std::string path = right_shapes();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--bpreshuffle"},
                                                {"--bias"},
                                                {"--scaleAB"},
                                                {"--x_order", "N"},
                                                {"--w_order", "N"},
                                                {"--group", "32"},
                                                {"--zero_points"},
                                                {"-b", "2"},
                                                {"--q_dtype_w", "fp4"},
                                                {"--expert", "8"},
                                                {"--topk", "2"},
                                                {"--shared_experts", "1"},
                                                {"--act_type", "Silu"},
                                                {"--q_type", "No"},
                                                {"--use_g1u1", "1"},
                                                {"--doweight_stage1", "1"}}) {
    std::vector<std::string> all{"tune", "-i", path, "-o", output()};
    all.insert(all.end(), words.begin(), words.end());
    expect_one_line(program.run(all), "of -m -n -k alone; a list of sizes has it in its column ");
    EXPECT_FALSE(std::filesystem::exists(output())) << words.front();
  }
  EXPECT_EQ(program.run({"tune", "--bpreshuffle", "-o", output()}).exit_code, 2)
      << "the list that nobody named";
  // A model's shapes: their weights may be packed, the rest follows from config.json.
  const std::string model = GEMMTUNE_SOURCE_DIR "/tests/data/models/llama-3.1-70b";
  expect_one_line(program.run({"tune", "--model_dir", model, "--bias", "-o", output()}),
                  "--bias: of -m -n -k");
  EXPECT_EQ(
      program
          .run({"tune", "--model_dir", model, "--nsets", "1", "--bpreshuffle", "--dry-run", "-o", output()})
          .exit_code,
      0);
}

TEST_F(Usage, JoulesThatCannotBeHad) {
  const auto tune = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"tune", "-m", "3", "-n", "64", "-k", "64", "-o", output()};
    words.insert(words.end(), more.begin(), more.end());
    SubprocessOptions options = program.options();
    options.environment["GEMMTUNE_POWERCAP_DIR"] = program.file("rapl");
    return program.run(words, options);
  };
  expect_one_line(tune({"--energy"}), "--energy: " + program.file("rapl") + " has no processor package");
  std::filesystem::create_directories(
      program.file("rapl/intel-rapl:0/energy_uj"));  // a file that cannot be read
  program.folder().write("rapl/intel-rapl:0/name", "package-0\n");
  program.folder().write("rapl/intel-rapl:0/max_energy_range_uj", "1000000\n");
  expect_one_line(tune({"--objective", "edp"}), program.file("rapl/intel-rapl:0/energy_uj"));
  expect_one_line(tune({"--objective", "cost"}), "--objective cost: expected time, energy or edp");
  const std::string shape = shapes(std::string(key_header) + right_row);
  expect_one_line(program.run({"tune", "-i", shape, "-o", output(), "--energy", "--m-range", "1:8"}),
                  "--m-range");
  expect_one_line(tune({"--objective", "energy", "--confirmations", "2"}), "--confirmations 1");
  expect_one_line(tune({"--objective", "energy", "--buckets"}), "--buckets");
  expect_one_line(tune({"--energy", "--compare"}), "--compare");
  expect_one_line(tune({"--energy", "--replay", "r.jsonl"}), "a recording has no joules");
  expect_one_line(tune({"--energy", "--timeout", "1"}), "--timeout 1");
  EXPECT_FALSE(std::filesystem::exists(output()));
  EXPECT_FALSE(std::filesystem::exists(output() + ".journal"));
}

TEST_F(Usage, NothingIsWrittenByWrongUsage) {
  program.run({"tune", "-i", right_shapes(), "-o", output(), "--libtype", "fancy"});
  EXPECT_FALSE(std::filesystem::exists(output()));
  EXPECT_FALSE(std::filesystem::exists(output() + ".lock"));
}

}  // namespace
}  // namespace gemmtune::test::usage_test
