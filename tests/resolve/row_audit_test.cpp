#include "resolve/row_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// "kind:line" of rows in lines 1, 2 …
std::vector<std::string> found(std::vector<TunedEntry> entries) {
  const test::FakeDevice device;
  std::vector<EnvironmentNotes> environments(1);
  environments[0].add("here", R"({"device": ")" + device.info().model + R"("})");
  environments[0].add("there", R"({"device": "another machine"})");
  for (std::size_t index = 0; index < entries.size(); ++index) entries[index].line = index + 1;
  std::vector<std::string> texts;
  for (const Finding& finding : check_rows_on_device(rows_of(entries), environments, device)) {
    texts.push_back(std::string(to_string(finding.kind)) + ":" + std::to_string(finding.line));
  }
  return texts;
}

TEST(RowAudit, NamesThatResolveAreKnown) {
  EXPECT_THAT(found({row(small_problem(4), "alpha_r1_a2")}), IsEmpty());
}

TEST(RowAudit, NamesOfOtherToolsAndOldRevisionsAreNot) {
  EXPECT_THAT(found({row(small_problem(4), "nobody_r1_a2"), row(small_problem(4), "alpha_r9_a2")}),
              ElementsAre("unknown_kernel:1", "unknown_kernel:2"));
}

TEST(RowAudit, RowsOfAnotherEnvironmentAreStale) {
  TunedEntry here = row(small_problem(4), "alpha_r1_a2");
  here.env = "here";
  TunedEntry there = here;
  there.env = "there";
  TunedEntry unknown = here;
  unknown.env = "lost";
  EXPECT_THAT(found({here, there, unknown}), ElementsAre("stale:2", "stale:3"));
}

TEST(RowAudit, OtherDevicesAreNotAsked) {
  TunedEntry other = row(small_problem(4), "nobody_r1_a2");
  other.cu_num += 1;
  TunedEntry amd = row(small_problem(4), "nobody_r1_a2");
  amd.gfx = "gfx942";
  amd.env = "there";
  EXPECT_THAT(found({other, amd}), IsEmpty());
}

}  // namespace
}  // namespace gemmtune
