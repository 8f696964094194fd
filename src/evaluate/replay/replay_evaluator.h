// An evaluator that answers from a recording, with a clock that runs as the machine's would have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "evaluate/replay/recording.h"

namespace gemmtune {

/// Samples and rounds come in the order in which they were recorded; where more are asked for, they are drawn
/// from the recorded ones with a generator seeded by problem and `seed`, so that two replays are the same.
/// Rounds are drawn whole, from those in which all the asked candidates met: pairs stay pairs. Candidates
/// that never met get samples of their own. What was not recorded is `refused`.
///
/// `shuffled`: samples of a candidate and rounds come in an order drawn from the seed, so that two seeds are
/// two runs on the same machine with the same noise.
class ReplayEvaluator final : public Evaluator {
 public:
  /// The recording must outlive this.
  ReplayEvaluator(const Recording& recording, std::uint64_t seed, bool shuffled = false);

  /// What the answers so far would have taken: recorded times, and for drawn samples their share.
  double seconds() const { return seconds_; }

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> finals(const Problem& problem, std::span<const Candidate> candidates,
                              int rounds) override;
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
    const std::vector<std::string>* asked = nullptr;
    double same_ratio = 0;  // A against A; NaN: none
    double seconds = 0;
    bool used = false;
  };
  struct Bench {
    Random random{1};
    std::map<std::string, Screened> screened;
    std::vector<Round> rounds;
    std::map<std::string, Outcome> judged;  // by the full gate, without samples
    const RecordedProblem* record = nullptr;
  };

  Result<Bench*> bench_of(const Problem& problem);
  Bench make_bench(const RecordedProblem& record) const;
  double sample_seconds(double microseconds) const;
  Outcome screen_one(Bench& bench, const std::string& candidate, int samples);
  Outcome judge(const Bench& bench, const std::string& candidate) const;
  Round next_round(Bench& bench, const std::vector<std::string>& candidates);
  Round unpaired_round(Bench& bench, const std::vector<std::string>& candidates) const;

  const Recording& recording_;
  std::uint64_t seed_;
  bool shuffled_;
  std::map<std::string, Bench> benches_;  // by problem text
  double seconds_ = 0;
};

}  // namespace gemmtune
