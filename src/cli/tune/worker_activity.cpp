#include "cli/tune/worker_activity.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "cli/shared/console.h"
#include "evaluate/forwarding_evaluator.h"

namespace gemmtune::cli {
namespace {

class WatchedEvaluator final : public ForwardingEvaluator {
 public:
  WatchedEvaluator(std::unique_ptr<Evaluator> inner, WorkerActivities& activities, std::size_t worker)
      : ForwardingEvaluator(*inner), inner_(std::move(inner)), activities_(activities), worker_(worker) {}

  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override {
    activities_.begin(worker_, problem, "searches");
    return inner_->screen(problem, candidates, samples, stop);
  }
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override {
    std::string doing = fmt::format("{} in {}", counted(candidates.size(), "finalist"),
                                    counted(static_cast<std::size_t>(rounds), "round"));
    if (kind.routing) doing += fmt::format(" on {} routing", to_string(*kind.routing));
    if (kind.energy) doing += " of energy batches";
    activities_.begin(worker_, problem, std::move(doing));
    return inner_->take_rounds(kind, problem, candidates, rounds);
  }
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override {
    activities_.begin(worker_, problem, fmt::format("checks M = {}", m));
    return inner_->check_neighbour_m(problem, candidate, m);
  }

 private:
  std::unique_ptr<Evaluator> inner_;
  WorkerActivities& activities_;
  std::size_t worker_;
};

}  // namespace

std::size_t WorkerActivities::add(const std::string& worker) {
  const std::lock_guard guard(lock_);
  workers_.push_back({worker, std::nullopt, {}, 0});
  return workers_.size() - 1;
}

void WorkerActivities::begin(std::size_t worker, const Problem& problem, std::string doing) {
  const std::lock_guard guard(lock_);
  WorkerActivity& activity = workers_[worker];
  const bool goes_on = activity.problem == problem && activity.doing == doing;
  activity.problem = problem;
  activity.doing = std::move(doing);
  if (!goes_on) activity.since = steady_seconds();
}

std::vector<WorkerActivity> WorkerActivities::all() const {
  const std::lock_guard guard(lock_);
  return workers_;
}

std::unique_ptr<Evaluator> make_watched_evaluator(std::unique_ptr<Evaluator> inner,
                                                  WorkerActivities& activities, const std::string& worker) {
  return std::make_unique<WatchedEvaluator>(std::move(inner), activities, activities.add(worker));
}

}  // namespace gemmtune::cli
