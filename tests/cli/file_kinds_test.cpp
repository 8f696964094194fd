// Every command on every kind of file: what it does not take it refuses by name, in one line, and leaves as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "cli/program.h"

namespace gemmtune::test::file_kinds_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

struct FileKind {
  std::string kind;
  std::string path;
};

/// A command, and the kinds of files that it takes.
struct Taker {
  std::string name;
  std::function<Words(const std::string&)> words;
  std::set<std::string> takes;
  bool runs_taken = true;  // false: it would time kernels
};

const std::set<std::string> tuned = {"a16w16", "a8w8",         "a8w8_bpreshuffle", "blockscale",
                                     "a4w4",   "batched_bf16", "batched_a8w8",     "fused_moe",
                                     "empty",  "empty_tuned"};

std::set<std::string> and_also(std::set<std::string> kinds, const std::set<std::string>& more) {
  kinds.insert(more.begin(), more.end());
  return kinds;
}

class FileKinds : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string data = GEMMTUNE_TEST_DATA;
    a16w16_ = copy("a16w16", data + "/tuned/today_18.csv", "bf16_tuned_gemm.csv");
    copy("a8w8", data + "/tables/a8w8_tuned_gemm.csv");
    copy("a8w8_bpreshuffle", data + "/tables/a8w8_bpreshuffle_tuned_gemm.csv");
    copy("blockscale", data + "/tables/a8w8_blockscale_tuned_gemm.csv");
    copy("a4w4", data + "/tables/a4w4_blockscale_tuned_gemm.csv");
    copy("batched_bf16", data + "/tables/bf16_tuned_batched_gemm.csv");
    copy("batched_a8w8", data + "/tables/a8w8_tuned_batched_gemm.csv");
    copy("fused_moe", data + "/tables/tuned_fmoe.csv");
    sizes_ = copy("untuned", data + "/untuned/bf16_untuned_gemm.csv");
    copy("untuned_moe", data + "/untuned/untuned_fmoe.csv");
    copy("triton", data + "/triton/gfx942-GEMM-A8W8_BLOCKSCALE-N=1024-K=3072.json");
    write("size_yaml", "sizes.yaml", "- {'M': 16, 'N': 64, 'K': 128, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n");
    copy("result_yaml", data + "/tune_gemm/results_v3_4.yaml");
    copy("hipblaslt", data + "/hipblaslt/online.csv");
    copy("tunableop", data + "/tunableop/tunableop_results0.csv");
    copy("flashinfer", data + "/flashinfer/cache.json");
    copy("model", data + "/models/tiny/config.json");
    copy("search_space", data + "/search_space/narrow.yaml");
    copy("recording", data + "/recordings/cpu-amx.jsonl.gz");
    copy("routing", data + "/routing/small.routing");
    write("env", "beside.csv.env.json", R"({"0123456789": {"libraries": {"onednn": "2.6.3"}}})");
    write("calls", "beside.csv.calls.json", R"({"a16w16 m=1 n=2 k=3": {"calls": 1, "exact": 1}})");
    write("erratum", "rule.json", R"({"name": "x", "family": "onednn", "condition": "k == 3"})");
    write("requests", "requests.csv", "family,file,request\na8w8,t.csv,M=1;N=2;K=3;q_dtype_w=torch.int8\n");
    write("binary", "noise.bin", noise());
    write("binary_csv", "noise_bf16_tuned_gemm.csv", noise());
    write("binary_json", "noise.json", noise());
    write("binary_yaml", "noise.yaml", noise());
    write("empty", "nothing.csv", "");
    write("empty_tuned", "nothing_bf16_tuned_gemm.csv", "");
    write("empty_json", "nothing.json", "");
    write("empty_yaml", "nothing.yaml", "");
    write("text", "notes.txt", "Some words,\nand more of them.\n");
    std::filesystem::create_directories(program.file("folder"));
    files_.push_back({"folder", program.file("folder")});
    const std::string journal = program.file("measured.csv.journal");
    const auto tuning = program.run({"tune", "-m", "3", "-n", "64", "-k", "64", "--libtype", "skinny",
                                     "--budget", "0.2", "--iters", "2", "-o", program.file("measured.csv")});
    ASSERT_TRUE(std::filesystem::exists(journal)) << tuning.err;
    files_.push_back({"journal", journal});
  }

  std::string copy(const std::string& kind, const std::string& from, std::string name = {}) {
    if (name.empty()) name = std::filesystem::path(from).filename();
    return write(kind, name, read_text(from));
  }
  std::string write(const std::string& kind, const std::string& name, const std::string& content) {
    files_.push_back({kind, program.folder().write("files/" + name, content)});
    return files_.back().path;
  }
  static std::string noise() {
    std::string bytes;
    for (unsigned i = 0; i < 4096; ++i) bytes += static_cast<char>(i * 7919 + i * i * 31);
    return bytes;
  }

  std::vector<Taker> takers() const {
    const std::string a16w16 = a16w16_;
    const std::string sizes = sizes_;
    const std::string out = program.file("out.csv");
    const std::set<std::string> lists =
        and_also(tuned, {"untuned", "untuned_moe", "size_yaml", "result_yaml", "tunableop"});
    const auto without = [](std::set<std::string> kinds, const std::set<std::string>& gone) {
      for (const std::string& kind : gone) kinds.erase(kind);
      return kinds;
    };
    const std::set<std::string> shapes = without(lists, {"empty", "empty_tuned"});
    const std::set<std::string> dense{"a16w16", "empty", "empty_tuned"};
    return {
        {"audit",
         [](auto f) {
           return Words{"audit", "--quiet", f};
         },
         without(and_also(lists, {"triton", "hipblaslt", "flashinfer"}), {"empty"})},
        {"merge",
         [](auto f) {
           return Words{"merge", f};
         },
         and_also(tuned, {"triton"})},
        {"check",
         [](auto f) {
           return Words{"check", f};
         },
         and_also(tuned, {"triton"})},
        {"cache warm",
         [](auto f) {
           return Words{"cache", "warm", f};
         },
         and_also(tuned, {"triton"})},
        {"diff",
         [](auto f) {
           return Words{"diff", f, f};
         },
         and_also(tuned, {"triton"})},
        {"report",
         [=](auto f) {
           return Words{"report", f, "-o", out + ".html"};
         },
         tuned},
        {"report --base", [=](auto f) { return Words{"report", a16w16, "--base", f, "-o", out + ".html"}; },
         tuned},
        {"report --journal",
         [=](auto f) { return Words{"report", a16w16, "--journal", f, "-o", out + ".html"}; },
         {"journal"}},
        {"journal list",
         [](auto f) {
           return Words{"journal", "list", f};
         },
         {"journal"}},
        {"journal export",
         [](auto f) {
           return Words{"journal", "export", f};
         },
         {"journal"}},
        {"shapes -i",
         [](auto f) {
           return Words{"shapes", "-i", f};
         },
         shapes},
        {"shapes --model_dir",
         [](auto f) {
           return Words{"shapes", "--model_dir", f};
         },
         {}},
        {"coverage --table",
         [=](auto f) { return Words{"coverage", sizes, "--table", f, "--gfx", "gfx942", "--cu_num", "304"}; },
         and_also(dense, {"triton"})},
        {"coverage", [](auto f) { return Words{"coverage", f, "--gfx", "gfx942", "--cu_num", "304"}; },
         shapes},
        {"lookup --table",
         [](auto f) { return Words{"lookup", "-m", "1", "-n", "64", "-k", "64", "--table", f}; },
         and_also(dense, {"triton"})},
        {"lookup --requests",
         [](auto f) {
           return Words{"lookup", "--requests", f};
         },
         {"requests"}},
        {"bench",
         [](auto f) {
           return Words{"bench", f};
         },
         shapes, false},
        {"tune -i",
         [=](auto f) {
           return Words{"tune", "-i", f, "-o", out};
         },
         shapes, false},
        {"tune --gemm_size_file",
         [=](auto f) {
           return Words{"tune", "--gemm_size_file", f, "-o", out + ".yaml"};
         },
         shapes, false},
        {"tune -o", [](auto f) { return Words{"tune", "-m", "1", "-n", "64", "-k", "64", "-o", f}; },
         and_also(dense, {"result_yaml", "empty_yaml", "folder"}), false},
        {"tune --replay",
         [=](auto f) { return Words{"tune", "-m", "1", "-n", "64", "-k", "64", "--replay", f, "-o", out}; },
         {"recording"},
         false},
        {"tune --search-space",
         [=](auto f) {
           return Words{"tune", "-m", "1", "-n", "64", "-k", "64", "--search-space", f, "-o", out};
         },
         {"search_space", "empty", "empty_tuned", "empty_json", "empty_yaml"},
         false},
    };
  }

  Program program;
  std::vector<FileKind> files_;
  std::string a16w16_;
  std::string sizes_;
};

// Issue 18, 5.
TEST_F(FileKinds, AreTakenOrRefusedByName) {
  for (const Taker& command : takers()) {
    for (const FileKind& file : files_) {
      SCOPED_TRACE(command.name + " on " + file.kind);
      const bool takes = command.takes.count(file.kind) != 0;
      if (takes && !command.runs_taken) continue;
      const bool is_folder = std::filesystem::is_directory(file.path);
      const std::string before = is_folder ? std::string() : read_text(file.path);
      const auto result = program.run(command.words(file.path));
      EXPECT_EQ(result.signal, 0);
      if (takes) {
        EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 1)) << result.err;
      } else {
        EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
        EXPECT_THAT(result.err, HasSubstr(std::filesystem::path(file.path).filename().string()));
        EXPECT_THAT(result.err, Not(HasSubstr("out_of_range"))) << "an error of the library's";
      }
      EXPECT_EQ(is_folder ? std::string() : read_text(file.path), before) << "the file was changed";
    }
  }
}

// A refusal says what the file is, not only what its extension could mean.
TEST_F(FileKinds, AreNamedInRefusals) {
  const auto refusal = [&](const std::string& kind, Words words) {
    const auto file =
        std::find_if(files_.begin(), files_.end(), [&](const FileKind& one) { return one.kind == kind; });
    words.push_back(file->path);
    return program.run(words).err;
  };
  for (const Words& words : {Words{"merge"}, Words{"shapes", "-i"}}) {
    EXPECT_THAT(refusal("env", words), HasSubstr("is JSON, but no Triton config: no key is a bucket"));
    EXPECT_THAT(refusal("erratum", words), HasSubstr("the first is 'name'"));
    EXPECT_THAT(refusal("empty_json", words), HasSubstr("empty, expected a Triton config"));
    EXPECT_THAT(refusal("binary_yaml", words), HasSubstr("a NUL byte, expected text"));
    EXPECT_THAT(refusal("search_space", words), HasSubstr("expected a list of maps with M, N and K"));
  }
  EXPECT_THAT(
      refusal("size_yaml", {"merge"}),
      HasSubstr("is tune_gemm_sizes (tune_gemm's list of sizes), expected a tuned CSV; gemmtune tune -i"));
  EXPECT_THAT(refusal("result_yaml", {"merge"}), HasSubstr("is tune_gemm_yaml ("));
  EXPECT_THAT(refusal("triton", {"shapes", "-i"}), HasSubstr("is triton_json ("));
  EXPECT_THAT(refusal("empty_yaml", {"shapes", "-i"}), HasSubstr("empty, expected a list of maps"));
  EXPECT_THAT(refusal("size_yaml", {"tune", "-m", "1", "-n", "64", "-k", "64", "-o"}),
              HasSubstr("sizes.yaml: is a list of sizes, expected results"));
  EXPECT_THAT(
      refusal("env", {"tune", "-m", "1", "-n", "64", "-k", "64", "-o", program.file("o.csv"), "--replay"}),
      HasSubstr("no recording of gemmtune"));
  EXPECT_THAT(refusal("empty", {"journal", "list"}), HasSubstr("empty, expected a journal of gemmtune"));
}

}  // namespace
}  // namespace gemmtune::test::file_kinds_test
