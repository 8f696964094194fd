// Out of memory, at any allocation of the program or its worker, ends with a sentence: no signal, no hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "base/file.h"
#include "base/folder.h"
#include "cli/program.h"

namespace gemmtune::test::memory_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr const char* key_header = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
constexpr const char* tuned =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw\n"
    "gfx942,304,3,64,64,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,5.0,a,0.0,0.01,0.01\n"
    "gfx942,304,8,64,64,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,6.0,b,0.0,0.01,0.01\n";

bool is_soak() { return std::getenv("GEMMTUNE_SOAK") != nullptr; }

class LittleMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    program.folder().write("tuned.csv", tuned);
    program.folder().write(
        "shapes.csv", std::string(key_header) + "3,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n");
  }
  SubprocessOptions options() const {
    SubprocessOptions options = program.options();
    options.environment["XDG_RUNTIME_DIR"] = program.folder().path();
    options.environment["GEMMTUNE_CACHE_DIR"] = program.file("cache");
    return options;
  }
  Words tune(Words more) const {
    Words words{"tune", "-i", "shapes.csv", "--libtype", "tiled", "--iters", "1", "-q", "--confirmations",
                "1",    "-o", "out.csv",    "--all"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// `timeout` kills what hangs: exit code 137.
  static Words limited(int seconds, const std::string& program, const Words& words) {
    Words all{"/usr/bin/timeout", "-s", "KILL", std::to_string(seconds), program};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

  Program program;
};

void expect_sentence(const SubprocessResult& result, const std::string& what) {
  EXPECT_EQ(result.signal, 0) << what << '\n' << result.err;
  EXPECT_THAT(result.exit_code, AnyOf(0, 1, 2)) << what << '\n' << result.err;
  if (result.exit_code != 0) {
    EXPECT_NE(result.err + result.out, "") << what;
  }
}

class FailingAllocations : public LittleMemory {
 protected:
  SubprocessResult run(const Words& words, const std::string& plan, bool in_worker) const {
    SubprocessOptions failing = options();
    failing.environment["GEMMTUNE_FAIL_NEW"] = plan;
    failing.environment["GEMMTUNE_FAIL_NEW_IN"] = in_worker ? "worker" : "";
    failing.environment["GEMMTUNE_COUNT_NEW"] = program.file("count");
    return run_program(limited(60, GEMMTUNE_FAILING_PROGRAM, words), failing);
  }
  /// The memory is full at each of `samples` allocations, until one fails and for good; at fifty times as many
  /// with GEMMTUNE_SOAK=1.
  void sweep(const Words& words, int samples, bool in_worker = false) const {
    const auto whole = run(words, "", in_worker);
    ASSERT_THAT(whole.exit_code, AnyOf(0, 1)) << words[0] << whole.err;
    const long count =
        in_worker ? 60'000 : std::strtol(read_text(program.file("count")).c_str(), nullptr, 10);
    ASSERT_GT(count, 100) << words[0];
    std::set<long> numbers;
    std::mt19937 random(7);
    if (is_soak()) samples *= 50;
    // As many early as late ones on a scale of logarithms, and the very first.
    std::uniform_real_distribution<double> exponent(0, std::log(static_cast<double>(count)));
    for (int i = 0; i < samples; ++i) {
      numbers.insert(static_cast<long>(std::exp(exponent(random))));
      numbers.insert(1 + static_cast<long>(random() % static_cast<unsigned long>(count)));
    }
    for (const long number : numbers) {
      for (const char* rest : {" once", " always"}) {
        const std::string plan = std::to_string(number) + rest;
        expect_sentence(run(words, plan, in_worker), words[0] + " " + plan);
        if (::testing::Test::HasFailure() && !is_soak()) return;
      }
    }
  }
};

TEST_F(FailingAllocations, OfCommandsThatReadAndWriteTables) {
  sweep({"shapes", "-i", "shapes.csv", "-o", "list.csv"}, 16);
  sweep({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", "tuned.csv", "--gfx", "gfx942", "--cu_num",
         "304"},
        16);
  sweep({"merge", "tuned.csv", "-o", "merged.csv"}, 16);
  sweep({"audit", "tuned.csv", "--fix", "fixed.csv"}, 16);
  sweep({"convert", "tuned.csv", "--to", "seed", "-o", "seed.csv"}, 16);
}

TEST_F(FailingAllocations, OfTheTuner) { sweep(tune({"--budget", "1"}), 5); }

TEST_F(FailingAllocations, OfTheTunerInOneProcess) { sweep(tune({"--budget", "1", "--in-process"}), 4); }

TEST_F(FailingAllocations, OfTheWorker) { sweep(tune({"--budget", "1"}), 4, true); }

/// Each allocation of a command by itself, without the reserve that main() keeps: nothing between the allocation and
/// main() ends the process, nothing takes a failure for an answer, no file is written by half.
class EachAllocation : public FailingAllocations {
 protected:
  /// Every allocation with GEMMTUNE_SOAK=1, else sixty at equal distances. `output`: the file that the command
  /// writes, if any.
  void sweep_each(const Words& words, const std::string& output = {}) const {
    const auto whole = run(words, "", false);
    ASSERT_THAT(whole.exit_code, AnyOf(0, 1)) << words[0] << whole.err;
    const long count = std::strtol(read_text(program.file("count")).c_str(), nullptr, 10);
    ASSERT_GT(count, 1000) << words[0];
    const std::string written = output.empty() ? std::string() : read_text(program.file(output));
    constexpr long samples = 60;
    const long step = is_soak() ? 1 : count / samples;
    long ended = 0;
    for (long number = 1; number <= count; number += step) {
      if (!output.empty()) std::filesystem::remove(program.file(output));
      const auto result = run(words, std::to_string(number) + " bare", false);
      const std::string what = words[0] + ", allocation " + std::to_string(number);
      EXPECT_EQ(result.signal, 0) << what << '\n' << result.err;
      if (result.exit_code != whole.exit_code) {
        ++ended;
        EXPECT_EQ(result.exit_code, 2) << what << '\n' << result.err;
        EXPECT_THAT(result.err, HasSubstr("memory")) << what;
      } else {
        EXPECT_EQ(result.out, whole.out) << what;
      }
      if (!output.empty() && (result.exit_code != 2 || file_exists(program.file(output)))) {
        EXPECT_EQ(read_text(program.file(output)), written) << what;
      }
      if (HasFailure() && !is_soak()) return;
    }
    EXPECT_GT(ended, 20) << words[0];
    for (const std::string& path : paths_in(program.folder().path())) {
      EXPECT_THAT(path, Not(HasSubstr(".tmp"))) << words[0];
    }
  }
};

TEST_F(EachAllocation, OfCommandsThatRead) {
  std::string other = tuned;
  other.replace(other.find("5.0"), 3, "7.0");
  program.folder().write("other.csv", other);
  sweep_each({"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", "tuned.csv", "--gfx", "gfx942",
              "--cu_num", "304", "--json"});
  sweep_each({"diff", "tuned.csv", "other.csv", "--json"});
  sweep_each(
      {"coverage", "--table", "tuned.csv", "shapes.csv", "--gfx", "gfx942", "--cu_num", "304", "--json"});
  sweep_each({"devices", "--backend", "cpu", "--json"});
  sweep_each({"explain", "--backend", "cpu", "-m", "3", "-n", "64", "-k", "64", "--json"});
}

TEST_F(EachAllocation, OfCommandsThatWrite) {
  sweep_each({"shapes", "-i", "shapes.csv", "-o", "list.csv", "--json"}, "list.csv");
  sweep_each({"merge", "tuned.csv", "--compress", "-o", "merged.csv", "--json"}, "merged.csv");
  sweep_each({"audit", "tuned.csv", "--fix", "fixed.csv", "--json"}, "fixed.csv");
  sweep_each({"convert", "tuned.csv", "--to", "seed", "-o", "seed.csv", "--json"}, "seed.csv");
}

/// Also of an erratum, of a model's JSON, and of the journal and the environment notes beside a tuned file.
TEST_F(EachAllocation, OfCommandsThatReadJson) {
  program.folder().write("model/config.json",
                         R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "vocab_size": 256, "torch_dtype": "bfloat16"})");
  sweep_each({"shapes", "--model_dir", "model", "--json"});
  const auto tuned_here = program.run(tune({"--budget", "1", "--in-process"}));
  ASSERT_EQ(tuned_here.exit_code, 0) << tuned_here.err;
  sweep_each(
      {"lookup", "-m", "3", "-n", "64", "-k", "64", "--table", "out.csv", "--backend", "cpu", "--json"});
  sweep_each({"journal", "list", "out.csv.journal", "--json"});
  sweep_each({"journal", "export", "out.csv.journal"});
}

/// A candidate or a shape may be lost by it, and is named then. Twenty places, fifty times as many with
/// GEMMTUNE_SOAK=1: each is a run.
TEST_F(EachAllocation, OfATuning) {
  const auto sweep_runs = [&](const Words& more, bool in_worker) {
    // A busy machine proves no row in little time.
    Words words;
    SubprocessResult whole;
    for (const char* budget : {"0.3", "3", "30"}) {
      words = tune({"--budget", budget});
      words.insert(words.end(), more.begin(), more.end());
      whole = run(words, "", false);
      if (whole.exit_code == 0) break;
    }
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const long count =
        in_worker ? 60'000 : std::strtol(read_text(program.file("count")).c_str(), nullptr, 10);
    ASSERT_GT(count, 1000);
    const long step = count / (is_soak() ? 1000 : 20);
    for (long number = 1; number <= count; number += step) {
      const std::string what = (in_worker ? "worker, allocation " : "allocation ") + std::to_string(number);
      expect_sentence(run(words, std::to_string(number) + " bare", in_worker), what);
      EXPECT_EQ(program.run({"audit", "out.csv", "--kinds", "malformed"}).exit_code, 0) << what;
      if (HasFailure() && !is_soak()) return;
    }
  };
  sweep_runs({}, false);
  sweep_runs({"--in-process"}, false);
  sweep_runs({}, true);
}

/// A limited address space: an OpenBLAS without room for its buffers hung in fork() and at the end.
TEST_F(LittleMemory, ALimitedAddressSpaceEndsWithASentence) {
  const int step = is_soak() ? 10 : 40;
  for (int mebibytes = 20; mebibytes <= 420; mebibytes += step) {
    for (const Words& words : {tune({"--budget", "1"}), Words{"devices"}}) {
      Words limited_words{"-c", "ulimit -v " + std::to_string(mebibytes * 1024) + "; exec \"$@\"", "sh",
                          GEMMTUNE_PROGRAM};
      limited_words.insert(limited_words.end(), words.begin(), words.end());
      const auto result = run_program(limited(60, "/bin/sh", limited_words), options());
      const bool loaded = result.exit_code != 127;  // the loader's own "cannot allocate memory"
      if (loaded) expect_sentence(result, words[0] + " in " + std::to_string(mebibytes) + " MiB");
    }
  }
}

TEST_F(LittleMemory, SigtermEndsATuningInALimitedAddressSpace) {
  Words words{"-c", "ulimit -v 250000; exec \"$@\"", "sh", GEMMTUNE_PROGRAM};
  for (const std::string& word : tune({"--budget", "60"})) words.push_back(word);
  words.insert(words.begin(), "/bin/sh");
  Subprocess running(words, options());
  for (int i = 0; i < 10 && running.running(); ++i) usleep(100'000);
  running.send(SIGTERM);
  for (int i = 0; i < 3000 && running.running(); ++i) usleep(100'000);
  EXPECT_FALSE(running.running());
}

}  // namespace
}  // namespace gemmtune::test::memory_test
