// audit, merge, convert, diff and coverage from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/fixtures.h"

namespace gemmtune::test::table_commands_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string every_kind = GEMMTUNE_TEST_DATA "/audit/every_kind_bf16_tuned_gemm.csv";
const std::string header =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw\n";

std::string row(int m, const std::string& us, const std::string& kernel) {
  return "gfx950,256," + std::to_string(m) +
         ",64,128,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0," + us + "," + kernel + ",0.0,,\n";
}

class TableCommands : public ::testing::Test {
 protected:
  /// `audit --quiet` of a file, run once for all tests.
  const SubprocessResult& audited(const std::string& path) const {
    static std::map<std::string, SubprocessResult> results;
    const auto known = results.find(path);
    if (known != results.end()) return known->second;
    return results.emplace(path, program.run({"audit", "--quiet", path})).first->second;
  }
  std::string write(const std::string& name, const std::string& content) const {
    return program.folder().write(name, content);
  }
  Program program;
};

TEST_F(TableCommands, AuditSaysPlaceKindAndReason) {
  const auto result = program.run({"audit", every_kind});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr(every_kind + ":3: failed_time: a time of -1 µs\n"));
  EXPECT_THAT(result.out, HasSubstr("15 rows in 1 file, 11 findings\n"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("duplicate_key +1  error +another row"));
}

TEST_F(TableCommands, AuditOfOtherFormatsTellsWhatIsMalformed) {
  const std::string list = write("a4w4_blockscale_untuned_gemm.csv", "M,N,K\n1,512,512\n0,512,512\n");
  const std::string config = GEMMTUNE_TEST_DATA "/triton/unknown_keys.json";
  const auto result = program.run({"audit", list, config});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr(list + ":3: malformed: "));
  EXPECT_THAT(result.out, HasSubstr(config + ":"));
  EXPECT_EQ(program.run({"audit", write("clean_a4w4_untuned_gemm.csv", "M,N,K\n1,512,512\n")}).exit_code, 0);
  const auto fix = program.run({"audit", list, "--fix", program.file("fixed.csv")});
  EXPECT_EQ(fix.exit_code, 2);
  EXPECT_THAT(fix.err, HasSubstr("only tuned files"));
  const auto broken = program.run({"audit", GEMMTUNE_TEST_DATA "/triton/truncated.json"});
  EXPECT_EQ(broken.exit_code, 2);
  EXPECT_THAT(broken.err, HasSubstr("truncated.json:"));
}

TEST_F(TableCommands, AuditReadsEveryFixture) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  int files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (!file.is_regular_file() || name == "MANIFEST.csv" || name.starts_with("oracle_")) continue;
    const auto& result = audited(file.path().string());
    EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 1)) << file.path() << result.err;
    ++files;
  }
  EXPECT_EQ(files, 48);
}

TEST_F(TableCommands, AuditShowsTheKindsThatWereAskedFor) {
  const auto quiet = program.run({"audit", every_kind, "--kinds", "dominated,stale", "--quiet"});
  EXPECT_EQ(quiet.exit_code, 0) << "no error";
  EXPECT_THAT(quiet.out, StartsWith("15 rows in 1 file, 1 finding\n"));
  EXPECT_EQ(program.run({"audit", every_kind, "--kinds", "dominated", "--dominated", "150"}).exit_code, 0);
  EXPECT_EQ(program.run({"audit", every_kind, "--kinds", "over_tolerance", "--errRatio", "0.2"}).exit_code,
            0);
  const auto wrong = program.run({"audit", every_kind, "--kinds", "ugly"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("--kinds ugly: no kind (known: malformed,"));
}

TEST_F(TableCommands, AuditAsJson) {
  const json report = json::parse(program.run({"audit", every_kind, "--json"}).out);
  EXPECT_EQ(report["summary"]["wrong_rate"], 1);
  EXPECT_EQ(report["summary"]["unknown_kernel"], 0);
  EXPECT_EQ(report["findings"].size(), 11U);
  EXPECT_EQ(report["findings"][0]["line"], 2);
  EXPECT_TRUE(report["fix"].is_null());
}

TEST_F(TableCommands, AuditFixesIntoAnotherFile) {
  const auto result =
      program.run({"audit", every_kind, "--quiet", "--fix", program.file("clean_bf16_tuned_gemm.csv")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("1 row dropped (duplicate_key)"));
  EXPECT_THAT(result.err, HasSubstr("rates of 1 row computed again"));
  const auto again = program.run({"audit", program.file("clean_bf16_tuned_gemm.csv"), "--quiet"});
  EXPECT_THAT(again.out, StartsWith("10 rows in 1 file, 4 findings"));
  const std::string input = write("bf16_tuned_gemm.csv", header + row(1, "5.0", "a"));
  const auto refused = program.run({"audit", input, "--fix", input});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is an input"));
  EXPECT_EQ(program.run({"audit", input, "--fix-kinds", "stale"}).exit_code, 2);
}

TEST_F(TableCommands, AuditMergesWhatItFixes) {
  const std::string a = write("a_bf16_tuned_gemm.csv", header + row(1, "5.0", "a") + row(2, "0.0", "a"));
  const std::string b = write("b_bf16_tuned_gemm.csv", header + row(1, "4.0", "b"));
  const auto result = program.run({"audit", a + ":" + b, "--fix", program.file("clean.csv")});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  // Rows without a time stay unless --fix-kinds failed_time names them.
  EXPECT_EQ(read_text(program.file("clean.csv")), header + row(1, "4.0", "b") + row(2, "0.0", "a"));
  EXPECT_EQ(read_text(a), header + row(1, "5.0", "a") + row(2, "0.0", "a"));
}

TEST_F(TableCommands, AuditAsksThePresentDeviceForItsKernels) {
  const json devices = json::parse(program.run({"devices", "--json"}).out);
  const auto lookup = json::parse(
      program.run({"lookup", "-m", "1", "-n", "64", "-k", "128", "--device", "cpu:0", "--json"}).out);
  const std::string gfx = lookup["gfx"];
  const std::string start = gfx + ",1,";
  const auto device_row = [&](int m, const std::string& kernel, const std::string& env) {
    return start + std::to_string(m) + ",64,128,False,bf16,bf16,False,False," +
           kernel.substr(0, kernel.find("_r1")) + ",0,0,5.0," + kernel + ",0.0,,," + env + "\n";
  };
  const std::string with_env = header.substr(0, header.size() - 1) + ",env\n";
  const std::string file = write("bf16_tuned_gemm.csv", with_env + device_row(1, "reference_r1", "") +
                                                            device_row(2, "gone_r1_a1", "") +
                                                            device_row(4, "reference_r1", "abc"));
  write("bf16_tuned_gemm.csv.env.json", R"({"abc": {"device": "another machine"}})");
  const json report = json::parse(program.run({"audit", file, "--device", "cpu:0", "--json"}).out);
  ASSERT_EQ(report["findings"].size(), 2U) << report.dump(2);
  EXPECT_EQ(report["findings"][0]["kind"], "unknown_kernel");
  EXPECT_EQ(report["findings"][0]["line"], 3);
  EXPECT_EQ(report["findings"][1]["kind"], "stale");
  EXPECT_EQ(report["findings"][1]["line"], 4);
}

TEST_F(TableCommands, MergeWritesStdoutOrAFile) {
  const std::string a = write("a_bf16_tuned_gemm.csv", header + row(1, "5.0", "a"));
  const std::string b = write("b_bf16_tuned_gemm.csv", header + row(1, "4.0", "b") + row(2, "4.0", "b"));
  const auto result = program.run({"merge", a, b});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, header + row(1, "4.0", "b") + row(2, "4.0", "b"));
  EXPECT_THAT(result.err, HasSubstr("a_bf16_tuned_gemm.csv:2: left out: 5 µs, but 4 µs"));
  write("b_bf16_tuned_gemm.csv.env.json", R"({"abc": {"device": "x"}})");
  EXPECT_EQ(program.run({"merge", a + ":" + b, "-o", program.file("m.csv")}).exit_code, 0);
  EXPECT_EQ(read_text(program.file("m.csv")), result.out);
  EXPECT_THAT(read_text(program.file("m.csv.env.json")), HasSubstr("abc"));
  EXPECT_EQ(program.run({"merge", a, b, "-o", b}).exit_code, 2);
  EXPECT_EQ(program.run({"merge", a, program.file("absent.csv")}).exit_code, 2);
}

TEST_F(TableCommands, MergeCompresses) {
  const std::string file =
      write("bf16_tuned_gemm.csv", header + row(1, "5.0", "a") + row(2, "6.0", "a") + row(4, "7.0", "b"));
  const auto result = program.run({"merge", file, "--compress", "-o", program.file("ranges.csv")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("3 rows became 2: 1 row saved"));
  const json hit =
      json::parse(program
                      .run({"lookup", "-m", "1", "-n", "64", "-k", "128", "--table",
                            program.file("ranges.csv"), "--gfx", "gfx950", "--cu_num", "256", "--json"})
                      .out);
  EXPECT_EQ(hit["level"], "range");
  EXPECT_EQ(hit["kernelName"], "a");
}

TEST_F(TableCommands, MergeListsItsRangesInJson) {
  const std::string file = write("bf16_tuned_gemm.csv", header + row(1, "5.0", "a") + row(2, "6.0", "a") +
                                                            row(4, "7.0", "b") + row(8, "7.0", "c"));
  const std::string out = program.file("ranges.csv");
  const json merged = json::parse(program.run({"merge", file, "--compress", "-o", out, "--json"}).out);
  const json& made = merged["compressed"];
  EXPECT_EQ(made["rows_before"], 4);
  EXPECT_EQ(made["rows_after"], 3);
  ASSERT_EQ(made["ranges"].size(), 1U) << made;
  EXPECT_EQ(made["ranges"][0]["m_from"], 1);
  EXPECT_EQ(made["ranges"][0]["M"], 2);
  EXPECT_EQ(made["ranges"][0]["rows"], 2);
  EXPECT_EQ(made["ranges"][0]["kernelName"], "a");
  EXPECT_EQ(made["ranges"][0]["line"], 2);
  EXPECT_TRUE(json::parse(program.run({"merge", file, "-o", out, "--json"}).out)["compressed"].is_null());
}

TEST_F(TableCommands, AuditSaysThatADeviceThatWasNamedIsNotHere) {
  for (const std::vector<std::string>& named :
       {std::vector<std::string>{"--backend", "hip"}, {"--device", "cpu:100000"}, {"--backend", "abacus"}}) {
    std::vector<std::string> words{"audit", every_kind};
    words.insert(words.end(), named.begin(), named.end());
    const auto result = program.run(words);
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(named[1] == "hip" ? "AMD GPU" : named[1].substr(0, 6)));
  }
}

/// The only row of a key may not be chosen: it is named, in words and in JSON.
TEST_F(TableCommands, LookupNamesARowThatIsNeverChosen) {
  const std::string file = write("bf16_tuned_gemm.csv", header + row(1, "0.0", "a"));
  const std::vector<std::string> words{"lookup",  "-m", "1",     "-n",     "64",       "-k", "128",
                                       "--table", file, "--gfx", "gfx950", "--cu_num", "256"};
  const auto result = program.run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("never chosen: no valid time"));
  EXPECT_THAT(result.out, HasSubstr("bf16_tuned_gemm.csv:2, M = 1, kernel 'a': no valid time"));
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const json answer = json::parse(program.run(as_json).out);
  EXPECT_TRUE(answer["row"].is_null());
  EXPECT_EQ(answer["levels"][0]["never_chosen"]["kernelName"], "a");
  EXPECT_EQ(answer["levels"][0]["why"], "never chosen: no valid time");
  EXPECT_THAT(std::string(answer["why"]), HasSubstr("no row of this problem may be chosen"));
}

TEST_F(TableCommands, DiffAnswersByItsExitCode) {
  const std::string a = write("a_bf16_tuned_gemm.csv", header + row(1, "5.0", "a") + row(2, "5.0", "a"));
  const std::string b = write("b_bf16_tuned_gemm.csv", header + row(1, "4.0", "a") + row(2, "5.1", "a"));
  EXPECT_EQ(program.run({"diff", a, a}).exit_code, 0);
  const auto result = program.run({"diff", a, b});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("faster: gfx950 cu_num=256 a16w16 m=1"));
  EXPECT_THAT(result.out, HasSubstr("4 µs, before 5 µs (-20.0 %)"));
  EXPECT_THAT(result.out, HasSubstr("1 difference, 1 key as before"));
  const json report = json::parse(program.run({"diff", a, b, "--tolerance", "1", "--json"}).out);
  EXPECT_EQ(report["summary"]["a16w16"]["slower"], 1);
  EXPECT_EQ(report["changes"].size(), 2U);
}

TEST_F(TableCommands, CoverageWeighsCalls) {
  const std::string table = write("bf16_tuned_gemm.csv", header + row(1, "5.0", "a") + row(16, "6.0", "a"));
  const std::string capture = write("bf16_untuned_gemm.csv",
                                    "M,N,K,dtype,calls\n1,64,128,bf16,90\n3,64,128,bf16,9\n"
                                    "3,96,128,bf16,1\n");
  const std::vector<std::string> words{"coverage", capture,  "--table",  table,
                                       "--gfx",    "gfx950", "--cu_num", "256"};
  const auto result = program.run(words);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("n=96"));
  EXPECT_THAT(result.out, HasSubstr("to tune them (on gfx950 with 256 compute units): gemmtune tune -i " +
                                    capture + " -o " + table + "\n"));
  auto as_json = words;
  as_json.emplace_back("--json");
  const json report = json::parse(program.run(as_json).out);
  EXPECT_EQ(report["levels"]["exact"]["calls_percent"], 90);
  EXPECT_EQ(report["levels"]["exact"]["us"], 450);
  EXPECT_EQ(report["levels"]["fine"]["us"], 54);
  EXPECT_EQ(report["misses"].size(), 1U);
  EXPECT_EQ(program
                .run({"coverage", capture, "--table", program.file("absent.csv"), "--gfx", "gfx950",
                      "--cu_num", "256"})
                .exit_code,
            2);
}

TEST_F(TableCommands, CoverageTakesTheCallsThatCaptureCounted) {
  const std::string capture = write("bf16_untuned_gemm.csv", "M,N,K,dtype\n1,64,128,bf16\n3,96,128,bf16\n");
  write("bf16_untuned_gemm.csv.calls.json",
        R"({"a16w16 m=1 n=64 k=128 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain": )"
        R"({"calls": 99, "exact": 0, "range": 0, "fine": 0, "coarse": 0, "untuned": 99, "last_seen": ""}})");
  const std::string table = write("bf16_tuned_gemm.csv", header + row(1, "5.0", "a"));
  const std::vector<std::string> words{"coverage", capture,    "--table", table,   "--gfx",
                                       "gfx950",   "--cu_num", "256",     "--json"};
  const json report = json::parse(program.run(words).out);
  EXPECT_EQ(report["levels"]["exact"]["calls"], 99);
  EXPECT_EQ(report["levels"]["exact"]["us"], 495);
}

TEST_F(TableCommands, ConvertListsFormatsAndSaysWhatItLeavesOut) {
  const auto list = program.run({"convert", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  for (const char* name : {"aiter", "seed", "untuned", "triton_json", "tune_gemm_yaml_v2", "hipblaslt_csv"}) {
    EXPECT_THAT(list.out, HasSubstr(name));
  }
  const std::string file = write("bf16_tuned_gemm.csv", header + row(1, "5.0", "a"));
  const auto sizes = program.run({"convert", file, "--to", "untuned"});
  EXPECT_EQ(sizes.exit_code, 0) << sizes.err;
  EXPECT_THAT(sizes.out, HasSubstr("1,64,128,False,torch.bfloat16,torch.bfloat16,False,False,1\n"));
  const auto lossy = program.run({"convert", file, "--to", "hipblaslt_csv"});
  EXPECT_EQ(lossy.exit_code, 1);
  EXPECT_THAT(lossy.err, HasSubstr("bf16_tuned_gemm.csv:2: libtype 'asm', expected hipblaslt"));
  const auto strict =
      program.run({"convert", file, "--to", "hipblaslt_csv", "--strict", "-o", program.file("h.csv")});
  EXPECT_EQ(strict.exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(program.file("h.csv")));
  EXPECT_EQ(program.run({"convert", file}).exit_code, 2);
  EXPECT_EQ(program.run({"convert", file, "--to", "untuned", "-o", file}).exit_code, 2);
}

// Issue 19, 13: rows of a table without cu_num answer no device; the clean table would be empty.
TEST_F(TableCommands, OutputsReplaceNoSideFileOfATable) {
  const std::string table = write("t.csv", header + row(1, "5", "k"));
  const std::string list = write("list.csv", "M,N,K,dtype\n1,64,64,torch.bfloat16\n");
  const std::vector<std::vector<std::string>> commands = {
      {"merge", table, "-o"},
      {"audit", every_kind, "--fix"},
      {"convert", table, "--to", "aiter", "-o"},
      {"convert", table, "--to", "listing", "-o"},
      {"shapes", "-i", list, "-o"},
      {"report", table, "-o"},
      {"tune", "-i", list, "-o"},
      {"tune", "-i", list, "-o", program.file("new.csv"), "-o2"},
      {"tune", "-i", list, "-o", program.file("new.csv"), "--record"},
      {"tune", "-i", list, "-o", program.file("new.csv"), "--events"}};
  for (const auto& command : commands) {
    for (const char* ending : {".journal", ".env.json", ".lock", ".shard.json"}) {
      std::vector<std::string> words = command;
      words.push_back(table + ending);
      const auto result = program.run(words);
      EXPECT_EQ(result.exit_code, 2) << command.front() << ending;
      EXPECT_THAT(result.err, HasSubstr(table + ending + ": is the name of the ")) << command.front();
      EXPECT_FALSE(std::filesystem::exists(table + ending)) << command.front();
    }
  }
}

TEST_F(TableCommands, OutputsReplaceFilesOfTheirOwnKindAlone) {
  const std::string table = write("t.csv", header + row(1, "5", "k"));
  const std::string list = write("list.csv", "M,N,K,dtype\n1,64,64,torch.bfloat16\n");
  for (const auto& [name, content] :
       std::map<std::string, std::string>{{"notes.txt", "mine\n"},
                                          {"a.csv", "name,age\nme,3\n"},
                                          {"a.json", "{\"a\": 1}\n"},
                                          {"old.csv", header + row(1, "5", "k")}}) {
    const std::string path = write(name, content);
    const auto result = program.run({"shapes", "-i", list, "-o", path});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, HasSubstr(path + ": is there and is not a list of shapes"));
    EXPECT_EQ(read_text(path), content);
  }
  // Of an operation whose header another one has too.
  const std::string int4 = write("int4.csv", "M,N,K,group\n1,64,64,32\n");
  for (int time = 0; time < 2; ++time) {
    const auto result =
        program.run({"shapes", "-i", int4, "--op", "a16w4_int4", "-o", program.file("again.csv")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  const auto merged = program.run({"merge", table, "-o", program.file("notes.txt")});
  EXPECT_EQ(merged.exit_code, 2);
  EXPECT_THAT(merged.err, HasSubstr("notes.txt: is there and is not a tuned file"));
  // An empty file, a list and a table are replaced.
  write("empty.csv", "\n");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(program.run({"shapes", "-i", list, "-o", program.file("empty.csv")}).exit_code, 0);
    EXPECT_EQ(program.run({"merge", table, "-o", program.file("merged.csv")}).exit_code, 0);
  }
}

TEST_F(TableCommands, AuditWritesNoTableWithoutRows) {
  const std::string old =
      write("a8w8_tuned_gemm.csv", "M,N,K,kernelId,splitK,us,kernelName\n1,512,512,0,0,5.0,a\n");
  const auto result = program.run({"audit", old, "--fix", program.file("fixed.csv")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("none of 1 row in " + old + " would be left"));
  EXPECT_FALSE(std::filesystem::exists(program.file("fixed.csv")));
}

// Issue 19, 18: what AMD's own reader would choose, and serve hundreds of times slower.
TEST_F(TableCommands, AnImpossibleRowIsNeverChosen) {
  const std::string bad = write("a_bf16_tuned_gemm.csv", header + row(1, "0.000001", "reference"));
  const std::string good = write("b_bf16_tuned_gemm.csv", header + row(1, "5.0", "asm_a"));
  const auto merged = program.run({"merge", bad, good});
  EXPECT_THAT(merged.out, HasSubstr("asm_a"));
  EXPECT_THAT(merged.out, Not(HasSubstr("reference")));
  EXPECT_THAT(merged.err, HasSubstr("faster than the device can compute"));
  const auto answer = program.run({"lookup", "-m", "1", "-n", "64", "-k", "128", "--table", bad + ":" + good,
                                   "--gfx", "gfx950", "--cu_num", "256", "--json"});
  EXPECT_EQ(json::parse(answer.out)["kernelName"], "asm_a") << answer.err;
  EXPECT_THAT(program.run({"audit", bad}).out, HasSubstr(bad + ":2: impossible_rate: "));
}

// Nothing is lost in silence: rows of another packed weight are named and counted, and the exit code is 1.
TEST_F(TableCommands, MergeNamesTheLayoutsThatItLeavesOut) {
  const auto packed = [](int m, const std::string& libtype, const std::string& kernel) {
    return "gfx950,256," + std::to_string(m) + ",1024,1024,False,torch.bfloat16,torch.bfloat16,False,True," +
           libtype + ",0,0,5.0," + kernel + ",0.0,,\n";
  };
  const std::string table =
      write("bf16_tuned_gemm.csv",
            header + packed(1, "tiled", "tiled_r1_mr8_wpanel16") + packed(2, "onednn", "onednn_r1_wonednn"));
  const auto result = program.run({"merge", table, "-o", program.file("m.csv"), "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(json::parse(result.out)["left_out"][table].size(), 1U);
}

// A list of sizes has no place for other columns: they are named, and the exit code is 1.
TEST_F(TableCommands, ShapesNameWhatTheyLeaveOut) {
  const std::string list = write("a.csv", "M,N,K,dtype,mood\n1,64,128,bf16,fine\n");
  const auto result = program.run({"shapes", "-i", list, "-o", program.file("u.csv"), "--json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("not used: mood (1 row)"));
  EXPECT_EQ(json::parse(result.out)["left_out"][0]["name"], "mood");
}

// Issue 19, 12: colon lists work in every command that takes a table or a list of sizes.
TEST_F(TableCommands, ColonListsWorkEverywhere) {
  const std::string a = write("a_bf16_tuned_gemm.csv", header + row(1, "5.0", "asm_a"));
  const std::string b = write("b_bf16_tuned_gemm.csv", header + row(8, "6.0", "asm_b"));
  const std::string tables = a + ":" + b;
  const std::string sizes = write("a.csv", "M,N,K,dtype\n1,64,128,bf16\n") + ":" +
                            write("b.csv", "M,N,K,dtype\n8,64,128,bf16\n1,64,128,bf16\n");
  EXPECT_THAT(program.run({"audit", tables}).out, HasSubstr("2 rows in 2 files"));
  EXPECT_THAT(program.run({"merge", tables}).err, HasSubstr("2 rows of 2 files merged"));
  EXPECT_THAT(program.run({"diff", tables, tables}).out, HasSubstr("2 keys as before"));
  EXPECT_THAT(program.run({"convert", tables, "--to", "aiter"}).out, HasSubstr("asm_b"));
  EXPECT_THAT(program.run({"convert", sizes, "--to", "untuned"}).err, HasSubstr("3 rows read"));
  EXPECT_THAT(program.run({"shapes", "-i", sizes}).out,
              HasSubstr("1,64,128,False,torch.bfloat16,torch.bfloat16,False,False,2\n"));
  const auto coverage =
      program.run({"coverage", sizes, "--table", tables, "--gfx", "gfx950", "--cu_num", "256", "--json"});
  EXPECT_EQ(json::parse(coverage.out)["levels"]["exact"]["shapes"], 2) << coverage.err;
  EXPECT_THAT(program.run({"check", tables}).out, HasSubstr("2 of other devices"));
  EXPECT_THAT(program.run({"bench", tables}).err, HasSubstr(tables + ": no row of this device"));
  EXPECT_THAT(program.run({"cache", "warm", tables}).out, HasSubstr("0 rows of"));
  EXPECT_THAT(program.run({"bench", a + ":" + program.file("a.csv")}).err, HasSubstr("expected one kind"));
  EXPECT_THAT(
      program.run({"shapes", "-i", write("u_a8w8_untuned_gemm.csv", "M,N,K\n1,2,3\n") + ":" + sizes}).err,
      HasSubstr("expected one operation"));
}

// Issue 18, 5: a file of another format is refused by name, whatever the command.
TEST_F(TableCommands, OtherFormatsAreRefusedByName) {
  const std::string config = GEMMTUNE_TEST_DATA "/triton/unknown_keys.json";
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"coverage", config, "--gfx", "gfx950", "--cu_num", "256"},
                                             {"shapes", "-i", config},
                                             {"tune", "-i", config, "-o", program.file("t.csv")}}) {
    const auto result = program.run(command);
    EXPECT_EQ(result.exit_code, 2) << command.front();
    EXPECT_THAT(result.err, HasSubstr("is triton_json")) << command.front();
  }
  const std::string yaml = GEMMTUNE_TEST_DATA "/lost/stream_k.yaml";
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"merge", yaml},
           {"diff", yaml, yaml},
           {"check", yaml},
           {"cache", "warm", yaml},
           {"lookup", "-m", "1", "-n", "64", "-k", "64", "--table", yaml}}) {
    const auto result = program.run(command);
    EXPECT_EQ(result.exit_code, 2) << command.front();
    EXPECT_THAT(result.err, HasSubstr("is tune_gemm_yaml")) << command.front();
  }
}

TEST_F(TableCommands, EveryTunedFixtureCanBeAudited) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(fixtures)) {
    const std::string path = entry.path().string();
    const bool tuned = path.find("tuned") != std::string::npos && path.find("untuned") == std::string::npos;
    if (!path.ends_with(".csv") || !tuned) continue;
    const auto& result = audited(path);
    EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 1)) << path << result.err;
    ++files;
  }
  EXPECT_GT(files, 20U);
}

}  // namespace
}  // namespace gemmtune::test::table_commands_test
