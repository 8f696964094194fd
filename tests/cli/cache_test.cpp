// gemmtune cache from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace gemmtune::test {
namespace {

using ::testing::HasSubstr;

/// The program with a kernel cache of its own.
class Cache : public ::testing::Test {
 protected:
  SubprocessResult run(std::vector<std::string> words) {
    words.insert(words.begin(), "cache");
    SubprocessOptions options = program.options();
    options.environment["GEMMTUNE_CACHE_DIR"] = folder();
    return program.run(words, options);
  }
  std::string folder() const { return program.file("kernels"); }

  Program program;
};

TEST_F(Cache, ListsAndClearsWhatIsThereAndNothingElse) {
  const auto none = run({"list"});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_EQ(none.out, "0 kernels, 0 bytes in " + folder() + "\n");
  std::filesystem::create_directories(folder());
  program.folder().write("kernels/0123.kernel", "cut off");
  program.folder().write("kernels/mine.txt", "mine");
  const auto json = nlohmann::json::parse(run({"list", "--json"}).out);
  ASSERT_EQ(json["kernels"].size(), 1U);
  EXPECT_EQ(json["kernels"][0]["title"], "damaged");
  EXPECT_EQ(json["kernels"][0]["bytes"], 7);
  EXPECT_EQ(run({"clear"}).out, "1 kernels removed from " + folder() + "\n");
  EXPECT_FALSE(std::filesystem::exists(folder() + "/0123.kernel"));
  EXPECT_TRUE(std::filesystem::exists(folder() + "/mine.txt"));
}

TEST_F(Cache, WarmBuildsTheRowsOfThisDeviceAndNamesThoseItCannot) {
  ASSERT_EQ(program
                .run({"tune", "-m", "1", "-n", "32", "-k", "32", "--libtype", "tiled", "--backend", "cpu",
                      "-o", program.file("t.csv")})
                .exit_code,
            0);
  const auto good = run({"warm", program.file("t.csv"), "--backend", "cpu"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_THAT(good.out, HasSubstr("1 built, 0 not"));
  std::string text = read_text(program.file("t.csv"));
  auto name = std::string::npos;  // of the row's kernel, before the default's
  for (const char* family : {"tiled_r", "onednn_r", "skinny_r"}) name = std::min(name, text.find(family));
  ASSERT_NE(name, std::string::npos) << text;
  text.replace(text.find("_r", name) + 2, 1, "9");
  const auto bad = run({"warm", program.folder().write("bad.csv", text), "--backend", "cpu"});
  EXPECT_EQ(bad.exit_code, 1) << bad.out << bad.err;
  EXPECT_THAT(bad.out, HasSubstr("bad.csv: line 2: "));
  EXPECT_THAT(bad.out, HasSubstr("revision 9"));
}

// What GEMMTUNE_PREBUILD=1 does at `make install`.
TEST_F(Cache, WarmWithoutAFileTakesTheFilesThatProgramsUse) {
  ASSERT_EQ(program
                .run({"tune", "-m", "1", "-n", "32", "-k", "32", "--libtype", "tiled", "--backend", "cpu",
                      "-o", program.file("t.csv")})
                .exit_code,
            0);
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_CONFIG_DIR"] = program.file("config");
  const auto warm = [&] { return program.run({"cache", "warm", "--backend", "cpu"}, options); };
  EXPECT_THAT(warm().out, HasSubstr("0 rows of"));
  options.environment["GEMMTUNE_CONFIG_A16W16"] = program.file("none.csv") + ":" + program.file("t.csv");
  EXPECT_THAT(warm().out, HasSubstr("1 rows of"));
  options.environment.erase("GEMMTUNE_CONFIG_A16W16");
  std::filesystem::create_directories(program.file("config"));
  program.folder().write("config/bf16_tuned_gemm.csv", read_text(program.file("t.csv")));
  const auto result = warm();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 built, 0 not"));
}

TEST_F(Cache, WrongWords) {
  for (const auto& [words, part] : {std::pair<std::vector<std::string>, std::string>{{"melt"}, "'melt'"},
                                    {{"list", "x.csv"}, "x.csv"},
                                    {{"warm", program.file("none.csv"), "--backend", "cpu"}, "none.csv"}}) {
    const auto result = run(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace gemmtune::test
