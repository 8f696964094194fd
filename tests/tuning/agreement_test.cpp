// Two runs over one machine: whether they name the same kernels, and how far the ratios that they report are
// apart. Both replay a recording, with its noise drawn anew by their seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/random.h"
#include "evaluate/forwarding_evaluator.h"
#include "evaluate/replay/replay_evaluator.h"
#include "support/recorded_spaces.h"
#include "tuning/problem_tuner.h"

namespace gemmtune::agreement_test {
namespace {

/// Two machines of one kind: each kernel is faster or slower on the second by a little, always the same.
class OtherMachine final : public ForwardingEvaluator {
 public:
  /// `deviation`: standard deviation of a kernel's time, as a share.
  OtherMachine(Evaluator& inner, std::uint64_t seed, double deviation)
      : ForwardingEvaluator(inner), seed_(seed), deviation_(deviation) {}

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    auto outcomes = inner().screen(problem, candidates, samples, stop);
    if (!outcomes.ok()) return outcomes;
    for (std::size_t i = 0; i < outcomes->size(); ++i) {
      for (double& time : (*outcomes)[i].microseconds) time *= factor(problem, candidates[i]);
    }
    return outcomes;
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    auto result = inner().take_rounds(kind, problem, candidates, rounds);
    if (!result.ok()) return result;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      for (double& time : result->outcomes[i].microseconds) time *= factor(problem, candidates[i]);
      for (auto& round : result->times) round[i] *= factor(problem, candidates[i]);
    }
    return result;
  }

 private:
  double factor(const Problem& problem, const Candidate& candidate) const {
    Random random(hash64(print(problem) + candidate.kernel_name()) ^ seed_);
    double sum = 0;  // twelve uniform numbers: nearly normal
    for (int i = 0; i < 12; ++i) sum += random.uniform();
    return std::exp(deviation_ * (sum - 6));
  }

  std::uint64_t seed_;
  double deviation_;
};

/// One cold run of one problem.
struct Run {
  Settled settled;
  std::set<std::string> tried;
  double speedup = 1;

  std::string winner() const { return settled.winner->candidate.kernel_name(); }
  bool names(const std::string& other) const {
    return other == winner() || std::count(settled.ties.begin(), settled.ties.end(), other) > 0;
  }
};

Run tune_cold(const testing::Recorded& recorded, const RecordedProblem& problem, std::uint64_t seed,
              double deviation) {
  ReplayEvaluator replay(recorded.recording, seed, true);
  OtherMachine evaluator(replay, seed, deviation);
  TuneRequest request;
  request.policy.sample_microseconds = recorded.recording.run.policy.sample_microseconds;
  request.policy.seed = seed;
  const Deadline never = Deadline::never([&] { return replay.seconds(); });
  ProblemResult result = tune_problem(recorded.device, evaluator, request, problem.problem, std::nullopt,
                                      TuningVisit(never), {[](const Trial&) {}});
  Run run;
  for (const Trial& trial : result.trials) run.tried.insert(trial.candidate.kernel_name());
  EXPECT_FALSE(result.layouts.empty()) << result.reason;
  const auto fastest = std::ranges::min_element(
      result.layouts, {}, [](const LayoutResult& each) { return each.settled.microseconds; });
  run.settled = std::move(fastest->settled);
  run.speedup = run.settled.speedup.value_or(1);
  return run;
}

struct Agreement {
  int pairs = 0;
  int same = 0;     // or a declared tie
  int close = 0;    // ratios within 2 %
  int untried = 0;  // the winner of one was not tried by the other
  double max_apart = 0;
  double candidates = 0;  // of a run, in the mean
  double ties = 0;        // declared by a run, in the mean
  double share(int of) const { return static_cast<double>(of) / pairs; }
};

Agreement agreement_of(const std::string& name, const testing::RecordedList& list, double deviation) {
  const auto seeds = testing::seeds({1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}, 3);
  Agreement all;
  for (const testing::Recorded& recorded : list) {
    for (const RecordedProblem& problem : recorded.recording.problems) {
      for (const std::uint64_t seed : seeds) {
        const Run a = tune_cold(recorded, problem, seed, deviation);
        const Run b = tune_cold(recorded, problem, seed + 100, deviation);
        ++all.pairs;
        const bool same = a.names(b.winner()) && b.names(a.winner());
        const double apart = std::abs(std::log(a.speedup / b.speedup));
        const bool untried = !a.tried.contains(b.winner()) || !b.tried.contains(a.winner());
        all.same += same ? 1 : 0;
        all.close += apart <= std::log(1.02) ? 1 : 0;
        all.untried += untried ? 1 : 0;
        all.max_apart = std::max(all.max_apart, apart);
        all.ties += 0.5 * static_cast<double>(a.settled.ties.size() + b.settled.ties.size());
        all.candidates += 0.5 * static_cast<double>(a.tried.size() + b.tried.size());
        if (!same || apart > std::log(1.02) || untried) {
          testing::say("{} seed {}: {} {:.3f} | {} {:.3f}{}{}", print(problem.problem), seed, a.winner(),
                       a.speedup, b.winner(), b.speedup, same ? "" : ", NOT THE SAME",
                       untried ? ", not tried" : "");
        }
      }
    }
  }
  all.candidates /= all.pairs;
  all.ties /= all.pairs;
  testing::say(
      "{}, machines {:.3f} apart, {} pairs: same winner or tie {:.3f}, ratios within 2 % {:.3f}, most apart "
      "{:.3f}, "
      "winner not tried by the other {:.3f}, {:.1f} candidates, {:.1f} ties",
      name, deviation, all.pairs, all.share(all.same), all.share(all.close), all.max_apart,
      all.share(all.untried), all.candidates, all.ties);
  return all;
}

TEST(TwoColdRuns, Agree) {
  const Agreement gpu = agreement_of("GPU", testing::gpu_recordings(), 0);
  EXPECT_GE(gpu.share(gpu.same), 0.98);
  EXPECT_GE(gpu.share(gpu.close), 0.95);
  EXPECT_LE(gpu.max_apart, std::log(1.05));
  EXPECT_LE(gpu.candidates, 85) << "10 % more than without what makes runs agree";
  // Rounds of the CPU's recording have neighbours: its ratios are those of the rounds that were drawn.
  const Agreement cpu = agreement_of("CPU", testing::recordings(), 0);
  EXPECT_GE(cpu.share(cpu.same), 0.97);
  EXPECT_GE(cpu.share(cpu.close), 0.7);
  EXPECT_LE(cpu.candidates, 93);
}

/// About as far apart as two H200s are: a ratio has a deviation of twice 0.3 % from one to the other.
TEST(TwoColdRuns, OnMachinesOfAKindDeclareTheWinnerOfTheOther) {
  const Agreement gpu = agreement_of("GPU", testing::gpu_recordings(), 0.003);
  EXPECT_GE(gpu.share(gpu.same), 0.97);
  EXPECT_GE(gpu.share(gpu.close), 0.95);
  EXPECT_LE(gpu.ties, 8.5) << "everything is declared a tie";
}

TEST(TwoColdRuns, OnMachinesThatDifferKnowTheWinnerOfTheOther) {
  for (auto* list : {&testing::gpu_recordings(), &testing::recordings()}) {
    const bool is_gpu = list == &testing::gpu_recordings();
    const Agreement all = agreement_of(is_gpu ? "GPU" : "CPU", *list, 0.02);
    EXPECT_LE(all.share(all.untried), 0.1) << (is_gpu ? "GPU" : "CPU");
  }
}

}  // namespace
}  // namespace gemmtune::agreement_test
