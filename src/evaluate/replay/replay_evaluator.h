// An evaluator that returns the outcomes and times of a recording, with a clock of recorded seconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "evaluate/replay/recording.h"

namespace gemmtune {

/// Samples and rounds are returned in the order in which they were recorded; if more are requested, recorded
/// ones are selected by a generator seeded by problem and `seed`, so that two replays are the same. Rounds
/// are selected whole, from those in which all requested candidates were measured, so that pairs stay pairs.
/// Candidates that were never measured together get samples of their own. What was not recorded is `refused`.
///
/// `shuffled`: samples of a candidate and rounds have a random order by the seed, so that two seeds are two
/// runs on the same machine with the same noise.
class ReplayEvaluator final : public Evaluator {
 public:
  /// The recording must outlive this.
  ReplayEvaluator(const Recording& recording, std::uint64_t seed, bool shuffled = false);

  /// Seconds of the results so far: recorded ones, and their share for samples that were selected again. A
  /// problem that is asked for again after another one is set up again.
  double seconds() const { return seconds_; }

  bool compiles_ahead() const override { return false; }
  void announce(const Problem&, std::span<const Candidate>) override {}
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  /// `unsupported` but for plain times: recordings hold no others.
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

 private:
  struct Screened {
    std::vector<double> samples;
    std::vector<double> overheads;  // seconds of each call beyond its samples
    std::size_t samples_used = 0;
    std::size_t calls_used = 0;
    Outcome latest;  // without samples
  };
  struct Round {
    std::map<std::string, double> times;  // by kernel name; failed candidates are not there
    const std::vector<std::string>* candidates = nullptr;
    double same_ratio = 0;  // A against A; NaN: none
    double seconds = 0;
    bool used = false;
  };
  struct Bench {
    Random random{1};
    std::map<std::string, Screened> screened;
    std::vector<Round> rounds;
    std::map<std::string, Outcome> verified;  // by full verification, without samples
    double set_up_seconds = 0;                // that its first call took longer than others
    const RecordedProblem* record = nullptr;
  };

  Result<Bench*> bench_of(const Problem& problem);
  Bench make_bench(const RecordedProblem& record) const;
  double sample_seconds(double microseconds) const;
  Outcome screen_one(Bench& bench, const std::string& candidate, int samples);
  Outcome outcome_of(const Bench& bench, const std::string& candidate) const;
  Round next_round(Bench& bench, const std::vector<std::string>& candidates);
  Round unpaired_round(Bench& bench, const std::vector<std::string>& candidates) const;

  const Recording& recording_;
  std::uint64_t seed_;
  bool shuffled_;
  std::map<std::string, const RecordedProblem*> records_;  // by problem text
  std::map<std::string, Bench> benches_;                   // of the problems that were asked for
  const Bench* latest_ = nullptr;
  double seconds_ = 0;
};

}  // namespace gemmtune
