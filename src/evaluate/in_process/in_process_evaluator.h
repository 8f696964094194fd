// The evaluator that builds, verifies and measures in this process. A kernel that crashes ends the process;
// WorkerEvaluator runs this one in a process that may end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/traits.h"
#include "evaluate/evaluation_step.h"
#include "evaluate/evaluator.h"
#include "evaluate/in_process/problem_bench.h"

namespace gemmtune {

/// Threads of the float64 reference, which the host computes: the cores of a CPU device; all cores of the
/// machine for a GPU.
int reference_threads(const Device& device);
/// For measuring on this device, without a timing lock.
InProcessOptions in_process_options(const Device& device, const Policy& policy, double max_err_ratio);

/// Keeps the operands, references, buffers and kernels of the latest problem; another problem replaces them.
/// One thread at a time. A Status instead of outcomes means that no candidate of the problem can be
/// verified: its operands do not fit into memory, or it has no reference. Memory that one candidate lacks is
/// that candidate's outcome.
class InProcessEvaluator final : public Evaluator {
 public:
  /// The device must outlive the evaluator.
  InProcessEvaluator(Device& device, const InProcessOptions& options);
  ~InProcessEvaluator() override;

  bool compiles_ahead() const override { return traits_of(device_.info()).compiles_ahead; }
  void announce(const Problem& problem, std::span<const Candidate> candidates) override;
  /// A candidate that was screened before is not built or checked again: it only gets its further samples.
  Result<std::vector<Outcome>> screen(const Problem& problem, std::span<const Candidate> candidates,
                                      int samples, const std::function<bool()>& stop) override;
  Result<FinalsResult> take_rounds(const RoundsKind& kind, const Problem& problem,
                                   std::span<const Candidate> candidates, int rounds) override;
  /// Frees what is kept of the latest problem first: both would not always fit.
  Outcome check_neighbour_m(const Problem& problem, const Candidate& candidate, std::int64_t m) override;

  /// Of the latest problem's weights (the larger pool if two layouts were measured): the copies that the
  /// policy wants and those that memory allows.
  struct PoolReport {
    std::size_t wanted_copies = 0;
    std::size_t copies = 0;
    std::size_t bytes = 0;
  };
  PoolReport pool() const;

 private:
  Result<ProblemBench*> bench_for(const Problem& problem);
  /// `out_of_memory` if the problem cannot fit: nothing was allocated then.
  Status check_memory(const Problem& problem, bool timed) const;
  Outcome check_at(const Problem& problem, const Candidate& candidate);
  void step(Step step, std::string_view kernel_name = {}) const {
    if (options_.on_step) options_.on_step(step, kernel_name);
  }
  void pause() const {
    if (options_.on_pause) options_.on_pause();
  }

  Device& device_;
  InProcessOptions options_;
  std::map<std::string, EarlierTimes> earlier_;  // by problem
  std::unique_ptr<ProblemBench> bench_;
};

}  // namespace gemmtune
