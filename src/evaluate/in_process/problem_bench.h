// Measures the kernels of one problem. Each kernel is built and verified once; all share operands and pools.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "evaluate/evaluation_step.h"
#include "evaluate/evaluator.h"
#include "evaluate/in_process/bit_class_finder.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "evaluate/in_process/weight_pools.h"
#include "measure/sampler.h"

namespace gemmtune {

struct BuiltKernel {
  std::unique_ptr<Kernel> kernel;
  std::string thread_pool;
};

/// Builds the family's kernel for this problem into `built`; the outcome is `ok`, or why there is none.
Outcome build_kernel(Device& device, const Problem& problem, const Candidate& candidate, BuiltKernel& built);

/// What earlier benches of a problem measured: the confirmation pass measures the same problem minutes later.
struct EarlierTimes {
  std::map<std::string, double> quiet;  // microseconds in quiet rounds of finals, by kernel name
  std::set<std::string> timed;          // kernels that had a sample
};

class ProblemBench {
 public:
  /// The device, the options and the earlier times must outlive it.
  ProblemBench(Device& device, const Problem& problem, const InProcessOptions& options,
               KernelVerifier verifier, EarlierTimes& earlier);

  const Problem& problem() const { return problem_; }
  const WeightPools& pools() const { return pools_; }

  /// Builds and verifies the candidate at the first call, then takes `samples` samples. If the device times
  /// single calls, each sample is taken in turns with the drift reference (the first kernel of the
  /// candidate's thread pool) and returned as the reference's time, which is measured once, times the ratio
  /// to it: so candidates that are screened minutes apart are compared as if they had run together. A sample that
  /// the machine cannot reach, or that is 3 times off the one before, is taken again. `too_slow` is never said of the
  /// default kernel nor of one that was timed before.
  Outcome screen(const Candidate& candidate, int samples);
  Result<FinalsResult> finals(std::span<const Candidate> candidates, int rounds);
  /// The same rounds of a mixture whose tokens go elsewhere.
  Result<FinalsResult> finals_on(RoutingKind routing, std::span<const Candidate> candidates, int rounds);
  Result<FinalsResult> energy(std::span<const Candidate> candidates, int rounds);

 private:
  struct Entry {
    std::string name;
    Candidate candidate;
    Accuracy accuracy = Accuracy::fp32;
    BuiltKernel built;
    Outcome checked;  // of quick, then of full verification; no times
    bool fully_checked = false;
    std::optional<Timed> timed;  // from the first sample on
    std::unique_ptr<Buffer> workspace;
  };
  struct DriftReference {
    Entry* entry = nullptr;
    double microseconds = 0;
  };
  /// What is measured in a round: a finalist, or the first finalist a second time (the last member).
  struct RoundMember {
    Entry* entry = nullptr;
    std::size_t column = 0;
  };

  void step(Step step, std::string_view kernel_name = {}) const {
    if (options_.on_step) options_.on_step(step, kernel_name);
  }
  void pause() const {
    if (options_.on_pause) options_.on_pause();
  }
  Entry& entry_of(const Candidate& candidate);
  Status set_up_timing(Entry& entry);
  /// The outcome if no sample is to be taken: the kernel failed, or its first calls already show that it cannot
  /// win. Empty where it is ready for samples.
  std::optional<Outcome> probe(Entry& entry);
  /// Rules for losers hold for it.
  bool may_lose(const Entry& entry) const;
  Result<double> screening_sample(Entry& entry);
  /// Taken again where the machine cannot have been that fast.
  Result<double> possible_sample(Entry& entry);
  /// Adds a sample; one that is far off the sample before is taken again.
  Status add_sample(Entry& entry, std::vector<double>& samples);
  bool is_impossible(const Entry& entry, double microseconds) const;
  void measure_roof(const Entry& entry);
  /// FinalsResult::roof_microseconds.
  double memory_roof() const;
  Result<DriftReference*> drift_reference_for(Entry& entry);
  Outcome take_samples(Entry& entry, int samples);
  Status check_fully(std::span<Entry* const> entries);
  /// Of those that have none yet.
  void find_classes(std::span<Entry* const> entries);
  /// Fully verified, and ready to be timed unless there are no rounds: `entries` gets the candidates', the result those
  /// that can run.
  Result<std::vector<RoundMember>> finalists(std::span<const Candidate> candidates, int rounds,
                                             std::vector<Entry*>& entries);
  std::vector<RoundMember> make_ready(std::span<Entry* const> entries);
  /// Points what the kernels are timed on at this routing's operands.
  Status route(RoutingKind routing);
  void run_round(std::vector<RoundMember>& members, std::vector<double>& times);
  void learn_quiet_levels(std::span<Entry* const> entries, const std::vector<std::vector<double>>& rounds);
  double quiet_level_of(const Entry& entry) const;
  /// How disturbed each round was, by the second time of the first finalist (the last member) and by the
  /// first member of each other thread pool.
  std::vector<double> disturbances(std::span<const RoundMember> members,
                                   const std::vector<std::vector<double>>& rounds) const;
  std::vector<std::vector<double>> quiet_rounds(std::vector<RoundMember>& members, std::size_t columns,
                                                int wanted, Quietness& quietness);

  Device& device_;
  Problem problem_;
  const InProcessOptions& options_;
  EarlierTimes& earlier_;
  std::string default_name_;  // of the default kernel; empty: there is none
  KernelVerifier verifier_;
  Sampler sampler_;
  WeightPools pools_;
  std::map<std::string, Entry> entries_;                    // by kernel name
  std::map<std::string, DriftReference> drift_references_;  // by thread pool
  std::map<WeightLayout, double> roofs_;                    // microseconds that reading the weight takes
  double fastest_microseconds_ = 0;                         // median of the fastest candidate so far; 0: none
};

}  // namespace gemmtune
