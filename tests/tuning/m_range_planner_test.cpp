// The planner over cost landscapes on paper: where it finds the crossings, how often it asks, what it leaves
// out.
#include "tuning/m_range_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using Kind = MQuestion::Kind;

constexpr double cannot = std::numeric_limits<double>::infinity();

/// Kernels with a cost at each M; infinite: does not run.
struct Landscape {
  std::map<std::string, std::function<double(std::int64_t)>> kernels;
  std::function<bool(const std::string&, std::int64_t)> right = [](const std::string&, std::int64_t) {
    return true;
  };

  double best(std::int64_t m) const {
    double least = cannot;
    for (const auto& [name, cost] : kernels) least = std::min(least, cost(m));
    return least;
  }
  std::string winner(std::int64_t m) const {
    for (const auto& [name, cost] : kernels) {
      if (cost(m) < cannot && cost(m) == best(m)) return name;
    }
    return {};
  }
};

struct Counts {
  std::map<Kind, int> questions;
  std::set<std::pair<std::int64_t, std::vector<std::string>>> compared;
};

/// Answers one question as a machine without noise would.
void answer(MRangePlanner& planner, const MQuestion& question, const Landscape& land, double floor = 0) {
  const std::int64_t m = question.m;
  if (question.kind == Kind::tune) {
    planner.tuned(m, land.winner(m), {});
  } else if (question.kind == Kind::compare) {
    double least = cannot;
    for (const std::string& name : question.kernels) least = std::min(least, land.kernels.at(name)(m));
    std::vector<MRegret> regrets;
    for (const std::string& name : question.kernels) {
      const double cost = land.kernels.at(name)(m);
      if (cost < cannot) regrets.push_back({name, cost / least - 1, true});
    }
    planner.compared(question, regrets, floor);
  } else {
    std::optional<std::int64_t> wrong_at;
    for (const std::int64_t each : {question.m_from, m - 1, m}) {
      const bool inside = each >= question.m_from;
      if (inside && !wrong_at && !land.right(question.kernels.front(), each)) wrong_at = each;
    }
    planner.checked(question, wrong_at);
  }
}

Counts settle(MRangePlanner& planner, const Landscape& land, double floor = 0) {
  Counts counts;
  for (int asked = 0; asked < 5000; ++asked) {
    const MQuestion question = planner.next();
    if (question.kind == Kind::none) return counts;
    ++counts.questions[question.kind];
    if (question.kind == Kind::compare) {
      EXPECT_TRUE(counts.compared.emplace(question.m, question.kernels).second)
          << "asked twice at M = " << question.m;
    }
    answer(planner, question, land, floor);
  }
  ADD_FAILURE() << "no end of questions";
  return counts;
}

std::function<double(std::int64_t)> flat(double cost) {
  return [cost](std::int64_t) { return cost; };
}
/// `inside` for first ≤ M ≤ last, else `outside`.
std::function<double(std::int64_t)> within(std::int64_t first, std::int64_t last, double inside,
                                           double outside) {
  return [=](std::int64_t m) { return m >= first && m <= last ? inside : outside; };
}

MInterval interval(std::int64_t first, std::int64_t last, std::string kernel) {
  return {first, last, std::move(kernel), 0};
}

TEST(MRangePlanner, FirstMsArePowersOfTwoAndTheEnds) {
  EXPECT_THAT(first_ms({1, 16}), ElementsAre(1, 2, 4, 8, 16));
  EXPECT_THAT(first_ms({3, 20}), ElementsAre(3, 4, 8, 16, 20));
  EXPECT_THAT(first_ms({7, 7}), ElementsAre(7));
  EXPECT_THAT(first_ms({5, 6}), ElementsAre(5, 6));
  EXPECT_EQ(first_ms({1, (std::int64_t{1} << 31) - 1}).size(), 32U);
}

TEST(MRangePlanner, StepsAreThoseOfDispatch) {
  EXPECT_EQ(m_step(1), 1);
  EXPECT_EQ(m_step(16), 1);
  EXPECT_EQ(m_step(17), 16);
  EXPECT_EQ(m_step(256), 16);
  EXPECT_EQ(m_step(257), 32);
  EXPECT_EQ(m_step(1025), 64);
  EXPECT_EQ(m_step(5000), 128);
}

TEST(MRangePlanner, OneWinnerIsOneRangeVerifiedBetweenAllFirstM) {
  const Landscape land{{{"a", flat(1)}, {"b", flat(2)}}};
  MRangePlanner planner({1, 8192}, 0.02);
  EXPECT_EQ(planner.settled_share(), 0);
  const Counts counts = settle(planner, land);
  EXPECT_THAT(planner.intervals(), ElementsAre(interval(1, 8192, "a")));
  EXPECT_EQ(planner.settled_share(), 1);
  EXPECT_EQ(counts.questions.at(Kind::tune), 14);
  EXPECT_EQ(counts.questions.at(Kind::compare), 14 + 12 + 9);  // between 1 and 2 there is no M
  EXPECT_EQ(counts.questions.at(Kind::check), 1);
  for (const std::int64_t middle : {3, 6, 11, 17, 23, 33, 46, 65, 91, 129, 182, 1025, 1449, 4097, 5793}) {
    EXPECT_TRUE(counts.compared.contains({middle, {"a"}})) << middle;
  }
}

TEST(MRangePlanner, ASteepCrossingIsFoundToTheM) {
  for (const std::int64_t last : {1, 2, 5, 16, 17, 100, 333, 1500, 8000, 8191}) {
    const Landscape land{{{"a", within(1, last, 1, 2)}, {"b", within(1, last, 1.5, 1)}}};
    MRangePlanner planner({1, 8192}, 0.02);
    const Counts counts = settle(planner, land);
    EXPECT_THAT(planner.intervals(), ElementsAre(interval(1, last, "a"), interval(last + 1, 8192, "b")))
        << last;
    EXPECT_EQ(counts.questions.at(Kind::tune), 14) << last;
    EXPECT_LE(counts.questions.at(Kind::compare), 14 + 12 + 9 + 28) << last;
  }
}

TEST(MRangePlanner, AFlatCrossingNeedsNoExactBoundary) {
  // a is better by (M − 1000) / 100000: within 2 % of b from M = 1 to 3000.
  const Landscape land{
      {{"a", [](std::int64_t m) { return 1 + static_cast<double>(m - 1000) / 1e5; }}, {"b", flat(1)}}};
  MRangePlanner planner({1, 8192}, 0.02);
  const Counts counts = settle(planner, land);
  const auto rows = planner.intervals();
  ASSERT_EQ(rows.size(), 1U);  // b is within 1 % everywhere
  EXPECT_EQ(rows[0].kernel, "b");
  EXPECT_GT(rows[0].regret, 0.005);
  EXPECT_LE(rows[0].regret, 0.02);
  EXPECT_LE(counts.questions.at(Kind::compare), 14 + 12 + 9 + 2);
}

TEST(MRangePlanner, AOneOffWinnerGetsItsSmallInterval) {
  const Landscape land{{{"a", flat(1)}, {"odd", within(60, 70, 0.5, 3)}}};
  MRangePlanner planner({1, 1024}, 0.02);
  settle(planner, land);
  EXPECT_THAT(planner.intervals(),
              ElementsAre(interval(1, 59, "a"), interval(60, 70, "odd"), interval(71, 1024, "a")));
}

TEST(MRangePlanner, AMidPointWhereTheWinnerIsBadIsSearchedAndSplit) {
  // Both ends of [64, 128] say a; at 91 it costs three times as much, and b, known from M = 8, is better.
  const Landscape land{{{"a", within(80, 100, 3, 1)}, {"b", within(8, 8, 0.5, 2)}}};
  MRangePlanner planner({1, 256}, 0.02);
  const Counts counts = settle(planner, land);
  EXPECT_EQ(counts.questions.at(Kind::tune), 9 + 1);
  EXPECT_THAT(planner.intervals(), ElementsAre(interval(1, 7, "a"), interval(8, 8, "b"), interval(9, 79, "a"),
                                               interval(80, 100, "b"), interval(101, 256, "a")));
}

TEST(MRangePlanner, AFamilyOfSmallMSplits) {
  const Landscape land{{{"skinny", within(1, 16, 0.5, cannot)}, {"tiled", flat(1)}}};
  MRangePlanner planner({1, 512}, 0.02);
  settle(planner, land);
  EXPECT_THAT(planner.intervals(), ElementsAre(interval(1, 16, "skinny"), interval(17, 512, "tiled")));
}

TEST(MRangePlanner, WhereNothingRunsThereIsNoRow) {
  const Landscape land{{{"a", within(4, 700, 1, cannot)}}};
  MRangePlanner planner({1, 4096}, 0.02);
  const Counts counts = settle(planner, land);
  EXPECT_THAT(planner.intervals(), ElementsAre(interval(4, 700, "a")));
  EXPECT_LT(counts.questions.at(Kind::tune), 13 + 14);
  const Landscape none{{{"a", flat(cannot)}}};
  MRangePlanner empty({1, 4096}, 0.02);
  EXPECT_EQ(settle(empty, none).questions.at(Kind::tune), 13);
  EXPECT_TRUE(empty.intervals().empty());
}

TEST(MRangePlanner, AKernelThatIsWrongAtItsSmallestMLosesIt) {
  Landscape land{{{"a", flat(1)}, {"b", flat(1.5)}}};
  land.right = [](const std::string& kernel, std::int64_t m) { return kernel != "a" || m != 1; };
  MRangePlanner planner({1, 64}, 0.02);
  const Counts counts = settle(planner, land);
  // The search at M = 1 had passed a: the check of the row did not. What is left there is nothing known.
  EXPECT_EQ(planner.intervals().front().first, 2);
  EXPECT_THAT(planner.intervals(), ElementsAre(interval(2, 64, "a")));
  EXPECT_GE(counts.questions.at(Kind::check), 2);
}

TEST(MRangePlanner, AKernelThatIsWrongJustBelowItsRowIsLeftOutThere) {
  Landscape land{{{"a", flat(1)}, {"b", within(1, 3, 0.9, 1.5)}}};
  land.right = [](const std::string& kernel, std::int64_t m) { return kernel != "a" || m != 63; };
  MRangePlanner planner({1, 64}, 0.02);
  settle(planner, land);
  for (const MInterval& row : planner.intervals()) {
    EXPECT_FALSE(row.kernel == "a" && row.first <= 63 && row.last >= 63) << row.first << " to " << row.last;
  }
  EXPECT_EQ(planner.intervals().front().kernel, "b");
  EXPECT_EQ(planner.intervals().back().last, 64);
}

TEST(MRangePlanner, ASingleMIsOneQuestion) {
  const Landscape land{{{"a", flat(1)}}};
  MRangePlanner planner({48, 48}, 0.02);
  settle(planner, land);
  EXPECT_THAT(planner.intervals(), ElementsAre(interval(48, 48, "a")));
  EXPECT_EQ(planner.settled_share(), 1);
}

TEST(MRangePlanner, NoiseAboveTheBoundDoesNotSplitForEver) {
  // a and b differ by 4 % to and fro; where the rounds cannot tell 5 % apart, that is no reason to split.
  const auto wave = [](double sign) {
    return [sign](std::int64_t m) { return 1 + sign * (m % 2 == 0 ? 0.02 : -0.02); };
  };
  const Landscape land{{{"a", wave(1)}, {"b", wave(-1)}}};
  MRangePlanner planner({1, 8192}, 0.02);
  const Counts counts = settle(planner, land, 0.05);
  EXPECT_EQ(planner.intervals().size(), 1U);
  EXPECT_GT(planner.intervals()[0].regret, 0.03);
  EXPECT_LE(counts.questions.at(Kind::compare), 14 + 13 + 9);
}

TEST(MRangePlanner, AWildLandscapeEndsToo) {
  // Another winner at each M: no range is right, and most winners are never met.
  Landscape land;
  for (int kernel = 0; kernel < 6; ++kernel) {
    land.kernels["k" + std::to_string(kernel)] = [kernel](std::int64_t m) {
      return m % 6 == kernel ? 1.0 : 2.0;
    };
  }
  MRangePlanner planner({1, 2048}, 0.02);
  const Counts counts = settle(planner, land);
  EXPECT_LE(counts.questions.at(Kind::tune) + counts.questions.at(Kind::compare), 1000);
  EXPECT_EQ(planner.settled_share(), 1);
}

TEST(MRangePlanner, UnfinishedItGivesWhatStandsAndNoMore) {
  const Landscape land{{{"a", within(1, 100, 1, 2)}, {"b", within(1, 100, 1.5, 1)}}};
  MRangePlanner planner({1, 8192}, 0.02);
  std::set<std::int64_t> tuned;
  double share = 0;
  for (MQuestion question = planner.next(); question.kind != Kind::none; question = planner.next()) {
    answer(planner, question, land);
    if (question.kind == Kind::tune) tuned.insert(question.m);
    EXPECT_GE(planner.settled_share(), share);
    share = planner.settled_share();
    std::int64_t last = 0;
    for (const MInterval& row : planner.intervals()) {
      EXPECT_GT(row.first, last);
      last = row.last;
      for (std::int64_t m = row.first; m <= row.last; ++m) EXPECT_EQ(row.kernel, land.winner(m)) << m;
      EXPECT_TRUE(row.first < row.last || tuned.contains(row.last)) << row.last;
    }
  }
  EXPECT_EQ(share, 1);
}

}  // namespace
}  // namespace gemmtune
