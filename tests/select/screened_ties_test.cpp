#include "select/screened_ties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Trial trial(const std::string& name, std::vector<double> samples, OutcomeKind kind = OutcomeKind::ok) {
  Trial trial;
  trial.candidate.family = name;
  trial.outcome.kind = kind;
  trial.outcome.microseconds = std::move(samples);
  return trial;
}

std::string name_of(const Trial& trial) { return trial.candidate.kernel_name(); }

TEST(ScreeningDeviation, is_that_of_one_sample_and_no_stall_moves_it) {
  // Consecutive samples differ by 4 %: 1.4826 · 0.0392 / √2.
  const std::vector<Trial> steady{trial("a", {100, 104, 100, 104}), trial("b", {50, 52, 50})};
  EXPECT_NEAR(screening_deviation(steady), 0.0411, 1e-4);
  std::vector<Trial> stalled = steady;
  stalled.push_back(trial("c", {100, 5000}));
  EXPECT_NEAR(screening_deviation(stalled), 0.0411, 1e-4);
  EXPECT_EQ(screening_deviation({trial("a", {100})}), 0) << "one sample says nothing of the noise";
}

TEST(ScreenedTies, are_those_that_few_samples_cannot_tell_from_the_winner) {
  const std::vector<Trial> trials{trial("winner", {100, 104, 100, 104}), trial("near", {108}),
                                  trial("far", {140}), trial("faster", {95}),
                                  trial("wrong", {100}, OutcomeKind::wrong)};
  EXPECT_THAT(screened_ties(trials, name_of(trials[0]), {1.01, 0}),
              ElementsAre(name_of(trials[1]), name_of(trials[3])));
  // More samples know it better: 8 % is then beyond the noise.
  std::vector<Trial> sure = trials;
  sure[0] = trial("winner", std::vector<double>(64, 100));
  sure[0].outcome.microseconds[1] = 104;
  sure[1] = trial("near", std::vector<double>(64, 108));
  EXPECT_THAT(screened_ties(sure, name_of(sure[0]), {1.01, 0}), ElementsAre(name_of(trials[3])));
}

TEST(ScreenedTies, without_noise_only_the_band_counts) {
  const std::vector<Trial> trials{trial("winner", {100}), trial("a", {100.9}), trial("b", {101.1})};
  EXPECT_THAT(screened_ties(trials, name_of(trials[0]), {1.01, 0}), ElementsAre(name_of(trials[1])));
  // Ratios that drift by 1 % from one batch of rounds to the next: 1.1 % is no difference then.
  EXPECT_THAT(screened_ties(trials, name_of(trials[0]), {1.01, 0.01}),
              ElementsAre(name_of(trials[1]), name_of(trials[2])));
  EXPECT_THAT(screened_ties(trials, "nobody", {1.01, 0}), IsEmpty());
}

}  // namespace
}  // namespace gemmtune
