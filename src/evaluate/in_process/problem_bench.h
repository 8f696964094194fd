// One problem's workplace: its kernels, built and checked once each, and what they are timed over.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "measure/sampler.h"
#include "evaluate/in_process/correctness_gate.h"
#include "evaluate/evaluation_step.h"
#include "evaluate/evaluator.h"
#include "evaluate/in_process/weight_pools.h"

namespace gemmtune {

struct BuiltKernel {
  std::unique_ptr<Kernel> kernel;
  std::string thread_pool;
};

/// The family's kernel for this problem, or the outcome that says why there is none.
Outcome build_kernel(Device& device, const Problem& problem, const Candidate& candidate, BuiltKernel& built);

/// What kernels of one problem took in quiet rounds of finals, microseconds, by name. It outlives a bench:
/// the same problem is looked at again minutes later.
using QuietLevels = std::map<std::string, double>;

class ProblemBench {
 public:
  /// The device, the options and the levels must outlive it.
  ProblemBench(Device& device, const Problem& problem, const InProcessOptions& options, CorrectnessGate gate,
               QuietLevels& quiet_levels);

  const Problem& problem() const { return problem_; }
  const WeightPools& pools() const { return pools_; }

  /// Built and checked at the first request, then `samples` more samples. Where the device times single
  /// calls, each sample is taken in turns with the canary of the candidate's thread pool (the first kernel of
  /// that pool), and given as the canary's time, which is measured once, times the ratio to it: candidates
  /// that are screened minutes apart are compared as if they had run together.
  Outcome screen(const Candidate& candidate, int samples);
  Result<FinalsResult> finals(std::span<const Candidate> candidates, int rounds);

 private:
  struct Entry {
    std::string name;
    BuiltKernel built;
    Outcome checked;  // by the quick gate; then by the full one. No times.
    bool fully_checked = false;
    std::optional<Timed> timed;  // once it was looked at
    std::unique_ptr<Buffer> workspace;
  };
  struct Canary {
    Entry* entry = nullptr;
    double microseconds = 0;
  };
  /// What is measured in a round: a finalist, or the first one a second time.
  struct Entrant {
    Entry* entry = nullptr;
    std::size_t column = 0;
  };

  void step(Step step, std::string_view kernel_name = {}) const {
    if (options_.on_step) options_.on_step(step, kernel_name);
  }
  Entry& entry_of(const Candidate& candidate);
  void enter_pool(const std::string& thread_pool);
  Status set_up_timing(Entry& entry);
  /// Empty where the kernel is ready for samples.
  std::optional<Outcome> first_look(Entry& entry);
  Result<double> screening_sample(Entry& entry);
  Result<Canary*> canary_for(Entry& entry);
  Outcome take_samples(Entry& entry, int samples);
  Status check_fully(std::span<Entry* const> entries);
  std::vector<Entrant> make_ready(std::span<Entry* const> entries);
  void run_group(std::span<const Entrant> group, int turns, std::vector<double>& times);
  void run_round(std::vector<Entrant>& entrants, std::vector<double>& times);
  void learn_quiet_levels(std::span<Entry* const> entries, const std::vector<std::vector<double>>& rounds);
  double quiet_level_of(const Entry& entry) const;
  /// How disturbed each round was, by the canary (the last entrant) and by the first entrant of each other
  /// pool.
  std::vector<double> disturbances(std::span<const Entrant> entrants,
                                   const std::vector<std::vector<double>>& rounds) const;
  std::vector<std::vector<double>> quiet_rounds(std::vector<Entrant>& entrants, std::size_t columns,
                                                int wanted, Quietness& quietness);

  Device& device_;
  Problem problem_;
  const InProcessOptions& options_;
  QuietLevels& quiet_levels_;
  CorrectnessGate gate_;
  Sampler sampler_;
  WeightPools pools_;
  Random random_;
  std::map<std::string, Entry> entries_;    // by kernel name
  std::map<std::string, Canary> canaries_;  // by thread pool
  double fastest_microseconds_ = 0;         // median of the fastest candidate so far; 0: none
  std::string current_pool_;
};

}  // namespace gemmtune
