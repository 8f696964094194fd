// What reports of `tune` share.
#include "cli/shared/report_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Trial trial(const std::string& family, OutcomeKind kind, const std::string& reason = {}) {
  Trial one;
  one.candidate.family = family;
  one.candidate.config.set("r", std::int64_t{64});
  one.outcome.kind = kind;
  one.outcome.reason = reason;
  return one;
}

TEST(FailedFamilies, AFamilyNoneOfWhoseKernelsRanIsNamedWithTheFirstReason) {
  ItemReport first;
  first.trials = {trial("tiled", OutcomeKind::ok), trial("skinny", OutcomeKind::build_failed, "error: no")};
  ItemReport second;
  second.trials = {trial("skinny", OutcomeKind::build_failed, "another"),
                   trial("skinny", OutcomeKind::wrong)};
  EXPECT_THAT(failed_families({first, second}),
              ElementsAre("family skinny: none of 3 kernels ran (2 build_failed, 1 wrong); the first, "
                          "skinny_r1_r64: error: no"));
}

TEST(FailedFamilies, OneThatRanSomewhereOrOnlyRefusedIsNot) {
  ItemReport first;
  first.trials = {trial("skinny", OutcomeKind::crashed, "gone"), trial("naive", OutcomeKind::refused, "M")};
  ItemReport second;
  second.trials = {trial("skinny", OutcomeKind::ok), trial("slow", OutcomeKind::too_slow, "1 s")};
  EXPECT_THAT(failed_families({first, second}), IsEmpty());
}

}  // namespace
}  // namespace gemmtune::cli
