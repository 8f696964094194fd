// Rows with m_from in a tuned file: new ones take over what they answer, and no two overlap, also after a
// merge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "formats/aiter/merge_tables.h"
#include "formats/aiter/tuned_csv.h"
#include "scratch_folder.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PublishRanges : public ScratchTest {
 protected:
  static TunedEntry range(std::int64_t first, std::int64_t last, double us = 5) {
    TunedEntry entry;
    entry.gfx = "x86-avx2";
    entry.cu_num = 2;
    entry.problem.m = last;
    entry.problem.n = 64;
    entry.problem.k = 64;
    entry.libtype = "tiled";
    entry.kernel_name = "tiled_r1";
    entry.us = us;
    if (first > 0) entry.m_from = first;
    if (first > 0) entry.regret = 0.01;
    return entry;
  }
  static TunedEntry exact(std::int64_t m, double us = 5) { return range(0, m, us); }
  void publish_ok(const std::vector<TunedEntry>& entries, const std::string& name = "tuned.csv") const {
    PublishOptions options;
    options.sort = true;
    const Status status = publish(path(name), entries, options);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::vector<std::string> rows(const std::string& name = "tuned.csv") const {
    const auto file = read_tuned_csv(path(name));
    EXPECT_TRUE(file.ok()) << file.message();
    std::vector<std::string> list;
    for (const TunedEntry& entry : file->entries)
      list.push_back(fmt::format("{}-{} {}", entry.m_from.value_or(0), entry.problem.m, entry.us));
    return list;
  }
};

TEST_F(PublishRanges, CoveredRangesGoAndExactRowsStay) {
  publish_ok({exact(20), range(1, 16), range(17, 64), range(65, 128)});
  publish_ok({range(1, 100, 7)});
  EXPECT_THAT(rows(), ElementsAre("0-20 5", "1-100 7", "101-128 5"));
}

TEST_F(PublishRanges, OtherGroupsAreLeftAlone) {
  TunedEntry other = range(1, 64);
  other.problem.n = 4096;
  TunedEntry device = range(1, 64);
  device.cu_num = 4;
  publish_ok({other, device, range(1, 64)});
  publish_ok({range(1, 80, 7)});
  EXPECT_THAT(rows(), ElementsAre("1-80 7", "1-64 5", "1-64 5"));
}

TEST_F(PublishRanges, RowsOfOneMInsideWinAndCutNothing) {
  publish_ok({range(1, 100)});
  publish_ok({range(50, 50, 7)});
  EXPECT_THAT(rows(), ElementsAre("50-50 7", "1-100 5"));
  publish_ok({range(1, 100, 8)});
  EXPECT_THAT(rows(), ElementsAre("1-100 8"));
}

TEST_F(PublishRanges, OfRangesPublishedTogetherTheLaterCount) {
  publish_ok({range(4, 4), range(8, 8), range(1, 8, 7), range(9, 16, 7)});
  EXPECT_THAT(rows(), ElementsAre("1-8 7", "9-16 7"));
}

TEST_F(PublishRanges, AnMThatLosesItsRangeIsSaid) {
  std::string said;
  set_log_sink([](LogLevel, std::string_view text, void* to) { *static_cast<std::string*>(to) += text; },
               &said);
  publish_ok({range(10, 50)});
  publish_ok({range(30, 80, 7)});
  set_log_sink(nullptr, nullptr);
  EXPECT_THAT(rows(), ElementsAre("30-80 7"));
  EXPECT_THAT(said, HasSubstr("M = 10 to 29"));
}

TEST_F(PublishRanges, TwiceTheSameChangesNothing) {
  publish_ok({range(1, 16), range(17, 64), exact(20)});
  const std::string before = content("tuned.csv");
  publish_ok({range(1, 16), range(17, 64), exact(20)});
  EXPECT_EQ(content("tuned.csv"), before);
}

TEST_F(PublishRanges, MergedRangesOfTwoFilesKeepTheMThatTheyAnswer) {
  publish_ok({range(1, 64)}, "a.csv");
  publish_ok({range(33, 128, 7)}, "b.csv");
  std::vector<TunedFile> files;
  for (const std::string name : {"a.csv", "b.csv"}) {
    auto file = read_tuned_csv(path(name));
    ASSERT_TRUE(file.ok()) << file.message();
    files.push_back(std::move(*file));
  }
  const auto merged = merge_tables(files, {});
  ASSERT_TRUE(merged.ok()) << merged.message();
  EXPECT_THAT(merged->notes, ElementsAre(HasSubstr("begins at M = 65, not 33")));
  write("tuned.csv", merged->text);
  EXPECT_THAT(rows(), ElementsAre("1-64 5", "65-128 7"));
}

}  // namespace
}  // namespace gemmtune
