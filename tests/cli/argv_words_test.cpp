#include "cli/shared/argv_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

Words words_of(const Words& words) { return argv_words(words); }

TEST(ArgvWords, DashesAndUnderscoresAreEqualInNamesOnly) {
  EXPECT_THAT(words_of({"tune", "--tune_file", "a_b.csv", "--tune-file=c_d.csv", "a_b"}),
              ElementsAre("tune", "--tune-file", "a_b.csv", "--tune-file=c_d.csv", "a_b"));
  EXPECT_THAT(words_of({"tune", "--input_file=x_y", "--no_splitK"}),
              ElementsAre("tune", "--input-file=x_y", "--no-splitK"));
}

TEST(ArgvWords, SingleDashWordsOfOtherTools) {
  EXPECT_THAT(words_of({"tune", "-o2", "p.csv", "-dtype_a", "fp16", "-dtype-b", "fp16", "-dtype_c=f32",
                        "-col_a", "-col_b"}),
              ElementsAre("tune", "--profile-file", "p.csv", "--dtype-a", "fp16", "--dtype-b", "fp16",
                          "--dtype-c=f32", "--col-a", "--col-b"));
}

TEST(ArgvWords, EmptyWordsAndWordsThatBeginWithAnEqualsSignStay) {
  EXPECT_THAT(words_of({"tune", "-i", "", "=", "=x", "-m", "", "-", "--", "="}),
              ElementsAre("tune", "-i", "", "=", "=x", "-m", "", "-", "--", "="));
  EXPECT_THAT(words_of({""}), ElementsAre(""));
  EXPECT_THAT(words_of({"="}), ElementsAre("="));
  EXPECT_THAT(words_of({"tune", "--=", "---", "-=x"}), ElementsAre("tune", "--=", "---", "-=x"));
}

TEST(ArgvWords, SizesKeepTheirNumber) {
  EXPECT_THAT(words_of({"tune", "-m", "3", "-n", "64", "-k", "128"}),
              ElementsAre("tune", "-m3", "-n64", "-k128"));
  EXPECT_THAT(words_of({"lookup", "-m", "-3", "-n", "1e9", "-k", "+4"}),
              ElementsAre("lookup", "-m-3", "-n1e9", "-k+4"));
}

TEST(ArgvWords, ABareKIsSplitKOfTuneOnly) {
  EXPECT_THAT(words_of({"tune", "-i", "f.csv", "-k"}), ElementsAre("tune", "-i", "f.csv", "--splitK"));
  EXPECT_THAT(words_of({"tune", "-k", "--all"}), ElementsAre("tune", "--splitK", "--all"));
  EXPECT_THAT(words_of({"tune", "-k", "-m", "1", "-n", "2", "-k", "3"}),
              ElementsAre("tune", "--splitK", "-m1", "-n2", "-k3"));
  EXPECT_THAT(words_of({"lookup", "-k"}), ElementsAre("lookup", "-k"));
}

TEST(ArgvWords, SortIsBareOrHasATruthValue) {
  EXPECT_THAT(words_of({"tune", "--sort"}), ElementsAre("tune", "--sort=true"));
  EXPECT_THAT(words_of({"tune", "--sort", "-i", "f"}), ElementsAre("tune", "--sort=true", "-i", "f"));
  EXPECT_THAT(words_of({"tune", "--sort", "False", "-v"}), ElementsAre("tune", "--sort=false", "-v"));
  EXPECT_THAT(words_of({"tune", "--sort=True"}), ElementsAre("tune", "--sort=true"));
  EXPECT_THAT(words_of({"tune", "--sort", "no"}), ElementsAre("tune", "--sort=false"));
  EXPECT_THAT(words_of({"tune", "--sort=maybe"}), ElementsAre("tune", "--sort=maybe"));
}

TEST(ArgvWords, NothingChangesAfterTwoDashes) {
  EXPECT_THAT(words_of({"check", "--err_Ratio", "0.1", "--", "--odd_file", "-o2"}),
              ElementsAre("check", "--err-Ratio", "0.1", "--", "--odd_file", "-o2"));
}

}  // namespace
}  // namespace gemmtune::cli
