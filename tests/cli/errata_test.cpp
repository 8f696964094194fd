// Errata from outside: devices and explain name them, check runs a kernel in spite of them, hunt looks for new ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace gemmtune::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ErrataProgram : public ::testing::Test {
 protected:
  SubprocessResult run_with(const std::string& errata, std::vector<std::string> arguments) const {
    SubprocessOptions options = program_.options();
    options.environment["GEMMTUNE_ERRATA"] = errata;
    return program_.run(std::move(arguments), options);
  }
  bool has_onednn() const {
    const auto shown = program_.run({"devices", "--backend", "cpu", "--json"});
    return shown.out.find("libgemmtune_onednn") == std::string::npos &&
           shown.out.find("oneDNN") != std::string::npos;
  }

  Program program_;
  const std::string errata_ = GEMMTUNE_TEST_DATA "/errata";
  const std::vector<std::string> size_ = {"-m",  "16",        "-n",  "64",        "-k",
                                          "471", "--indtype", "f32", "--backend", "cpu"};
};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(ErrataProgram, DevicesListsThem) {
  const auto text = run_with(errata_, {"devices", "--backend", "cpu"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              HasSubstr("erratum onednn-test (onednn): nothing: an erratum for tests, if k == 471"));
  const auto document = json::parse(run_with(errata_, {"devices", "--backend", "cpu", "--json"}).out);
  EXPECT_THAT(document["backends"][0]["devices"][0]["errata"].dump(), HasSubstr("onednn-test"));
  EXPECT_THAT(run_with("none", {"devices", "--backend", "cpu"}).out, Not(HasSubstr("erratum")));
}

TEST_F(ErrataProgram, AFileThatCannotBeReadIsAnErrorOfUsage) {
  const auto path = program_.file("bad.json");
  std::ofstream(path) << "{\n  \"nam\": \"x\"\n}\n";
  for (const std::string command : {"devices", "explain", "check", "hunt"}) {
    const auto failed =
        run_with(path, command == "devices" ? std::vector<std::string>{command, "--backend", "cpu"}
                       : command == "hunt"  ? std::vector<std::string>{command, "--backend", "cpu"}
                                            : with({command}, size_));
    EXPECT_EQ(failed.exit_code, 2) << command;
    EXPECT_THAT(failed.err, HasSubstr("GEMMTUNE_ERRATA: " + path + ":2: field 'nam' is unknown")) << command;
  }
}

TEST_F(ErrataProgram, ExplainNamesTheRuleThatStruck) {
  if (!has_onednn()) GTEST_SKIP() << "no oneDNN here";
  const auto text = run_with(errata_, with({"explain"}, size_));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              HasSubstr("default (speed-ups are against it): onednn_r1_wplain; erratum onednn-test"));
  EXPECT_THAT(text.out, HasSubstr("; passed over onednn_r1_wplain: erratum onednn-test"));
  EXPECT_THAT(text.out, HasSubstr("1 config of onednn: erratum onednn-test"));
  const auto document = json::parse(run_with(errata_, with({"explain", "--json"}, size_)).out);
  EXPECT_EQ(document["errata"][0]["name"], "onednn-test");
  EXPECT_NE(document["fallback"], "onednn_r1_wplain");
}

TEST_F(ErrataProgram, CheckRunsAKernelInSpiteOfItsErratum) {
  if (!has_onednn()) GTEST_SKIP() << "no oneDNN here";
  const auto text = run_with(errata_, with({"check"}, size_));
  EXPECT_EQ(text.exit_code, 0) << text.err << text.out;
  EXPECT_THAT(text.out, HasSubstr("16x64x471 f32 onednn_r1_wplain: right, err_ratio 0.0000, class fp32, "));
  EXPECT_THAT(text.out, HasSubstr("; known: erratum onednn-test"));
}

TEST_F(ErrataProgram, CheckTakesAProblemAndAKernel) {
  const auto right =
      program_.run({"check", "--backend", "cpu", "--json", "--libtype", "skinny", "--problem",
                    "a16w16 m=2 n=33 k=65 x=f32 w=f32 y=f32 bias=1 scale_ab=0 layout=plain alignment=4"});
  EXPECT_EQ(right.exit_code, 0) << right.err << right.out;
  const auto document = json::parse(right.out);
  EXPECT_EQ(document["state"], "right");
  EXPECT_THAT(document["problem"].get<std::string>(), HasSubstr("alignment=4"));
}

TEST_F(ErrataProgram, CheckNamesWhatIsMissing) {
  const auto error = [&](std::vector<std::string> words) {
    const auto failed = program_.run(std::move(words));
    EXPECT_EQ(failed.exit_code, 2) << failed.out;
    return failed.err;
  };
  EXPECT_THAT(error({"check"}), HasSubstr("expected a tuned file, or a size"));
  EXPECT_THAT(error(with({"check", "a.csv"}, size_)), HasSubstr("a file and a size"));
  EXPECT_THAT(error({"check", "a.csv", "--kernel", "x"}), HasSubstr("--kernel and --libtype go with a size"));
  EXPECT_THAT(error(with({"check", "--kernel", "gone_r1"}, size_)), HasSubstr("gone"));
  EXPECT_THAT(error(with({"check", "--libtype", "gone"}, size_)), HasSubstr("'gone' is no kernel family"));
  EXPECT_THAT(error({"check", "--problem", "a16w16 m=x"}), HasSubstr("--problem: "));
}

TEST_F(ErrataProgram, HuntCountsWhatItVerified) {
  const auto text = program_.run({"hunt", "--backend", "cpu", "--budget", "1.5", "--libtype", "tiled", "--op",
                                  "a16w16", "--max-gflop", "0.0005", "--json"});
  EXPECT_EQ(text.exit_code, 0) << text.err << text.out;
  EXPECT_THAT(text.err, IsEmpty()) << "quiet where nobody watches";
  const auto document = json::parse(text.out);
  EXPECT_GT(document["kernels"], 0);
  EXPECT_EQ(document["findings"].size(), 0U);
  EXPECT_EQ(program_.run({"hunt", "--op", "gone"}).exit_code, 2);
  EXPECT_EQ(program_.run({"hunt", "--backend", "cpu", "--libtype", "gone"}).exit_code, 2);
}

}  // namespace
}  // namespace gemmtune::test
