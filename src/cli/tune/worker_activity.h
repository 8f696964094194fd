// What each evaluator of a run does, for the live view.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/evaluator.h"

namespace gemmtune::cli {

struct WorkerActivity {
  std::string worker;              // the name of its device
  std::optional<Problem> problem;  // nullopt: nothing yet
  std::string doing;               // the last call
  double since = 0;                // steady_seconds() at the first of its calls that do the same
};

/// Safe from any thread.
class WorkerActivities {
 public:
  /// The index of a new worker.
  std::size_t add(const std::string& worker);
  void begin(std::size_t worker, const Problem& problem, std::string doing);
  std::vector<WorkerActivity> all() const;

 private:
  mutable std::mutex lock_;
  std::vector<WorkerActivity> workers_;
};

/// `inner`, whose calls are noted. The activities must outlive it.
std::unique_ptr<Evaluator> make_watched_evaluator(std::unique_ptr<Evaluator> inner,
                                                  WorkerActivities& activities, const std::string& worker);

}  // namespace gemmtune::cli
