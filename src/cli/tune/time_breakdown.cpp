#include "cli/tune/time_breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "cli/shared/console.h"
#include "evaluate/forwarding_evaluator.h"

namespace gemmtune::cli {
namespace {

using Part = TimeBreakdown::Part;

/// Adds the seconds of its life.
class Stopwatch {
 public:
  Stopwatch(TimeBreakdown& breakdown, Part part) : breakdown_(breakdown), part_(part) {}
  ~Stopwatch() { breakdown_.add(part_, steady_seconds() - begin_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  TimeBreakdown& breakdown_;
  Part part_;
  double begin_ = steady_seconds();
};

class TimedEvaluator final : public ForwardingEvaluator {
 public:
  TimedEvaluator(std::unique_ptr<Evaluator> inner, TimeBreakdown& breakdown)
      : ForwardingEvaluator(*inner), inner_(std::move(inner)), breakdown_(breakdown) {}

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    const Stopwatch watch(breakdown_, Part::search);
    return inner_->screen(problem, candidates, samples, stop);
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    const Stopwatch watch(breakdown_, kind.energy ? Part::energy : Part::finals);
    return inner_->take_rounds(kind, problem, candidates, rounds);
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    const Stopwatch watch(breakdown_, Part::neighbours);
    return inner_->check_neighbour_m(problem, candidate, m);
  }

 private:
  std::unique_ptr<Evaluator> inner_;
  TimeBreakdown& breakdown_;
};

}  // namespace

void TimeBreakdown::add(Part part, double seconds) {
  const std::lock_guard guard(lock_);
  Sum& sum = sums_[static_cast<std::size_t>(part)];
  sum.seconds += seconds;
  ++sum.calls;
}

std::string TimeBreakdown::text(double reading_seconds, double run_seconds) const {
  const std::lock_guard guard(lock_);
  std::string text = fmt::format("time breakdown of {}: reading {}", duration(run_seconds + reading_seconds),
                                 duration(reading_seconds));
  double rest = run_seconds;
  for (const auto& [name, part] :
       {std::pair{"search (build, verify, sample)", Part::search},
        std::pair{"finals (verify fully, rounds)", Part::finals}, std::pair{"energy batches", Part::energy},
        std::pair{"checks at other M", Part::neighbours}}) {
    const Sum& sum = sums_[static_cast<std::size_t>(part)];
    if (part == Part::energy && sum.calls == 0) continue;
    text += fmt::format("; {} {} in {}", name, duration(sum.seconds),
                        counted(static_cast<std::size_t>(sum.calls), "call"));
    rest -= sum.seconds;
  }
  return text + fmt::format("; choosing and writing {}", duration(std::max(0.0, rest)));
}

std::unique_ptr<Evaluator> make_timed_evaluator(std::unique_ptr<Evaluator> inner, TimeBreakdown& breakdown) {
  return std::make_unique<TimedEvaluator>(std::move(inner), breakdown);
}

}  // namespace gemmtune::cli
