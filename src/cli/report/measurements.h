// What was measured on the way to the rows: every candidate of every problem, from a journal, a profile or the events of a run.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "evaluate/outcome.h"
#include "measure/quietness.h"
#include "measure/statistics.h"
#include "select/paired_rounds.h"
#include "tuned/entry.h"
#include "tuned/key.h"

namespace gemmtune::cli {

/// All outcomes of one candidate of a problem.
struct MeasuredCandidate {
  std::string kernel;
  OutcomeKind kind = OutcomeKind::ok;  // a failure, where any outcome is one
  std::string reason;
  std::vector<double> samples;  // of screening, microseconds
  std::optional<double> us;     // their median; of a profile its `us`
  std::optional<double> spread;
  double err_ratio = std::numeric_limits<double>::quiet_NaN();
  MeasuredError error;
  double second = std::numeric_limits<double>::quiet_NaN();  // UTC, of its first time
};

/// A kernel's time in paired rounds as a multiple of another's.
struct PairedRatio {
  double median = 1;
  Interval interval;  // 95 % of the median
  std::size_t rounds = 0;
};

class MeasuredProblem {
 public:
  std::vector<MeasuredCandidate> candidates;  // in the order in which they were tried
  std::vector<double> same_ratios;            // A against A, of all rounds
  std::optional<double> noise_floor;          // of these
  Quietness quietness;
  std::int64_t run = 0;                // of the journal; 0: of no journal
  std::optional<double> reference_us;  // of the kernel that every run measures

  MeasuredCandidate& candidate(const std::string& kernel);
  void add_rounds(const std::vector<std::string>& kernels, const std::vector<std::vector<double>>& times);
  /// Time of `a` over time of `b`, round by round; nullopt where no round has both. Fresh: without the first call that has
  /// both, from which finals choose whom to test, where there are others.
  enum class Rounds { all, fresh };
  std::optional<PairedRatio> ratio(const std::string& a, const std::string& b, Rounds which) const;
  /// Kernels that ran in paired rounds.
  const std::vector<std::string>& finalists() const { return finalists_; }

 private:
  struct Call {
    std::vector<std::string> kernels;
    std::vector<std::vector<double>> times;
  };
  std::unordered_map<std::string, std::size_t> index_;  // of candidates
  std::vector<Call> calls_;
  std::vector<std::string> finalists_;
};

/// Of each problem on a device what its newest run measured.
class Measurements {
 public:
  Measurements() = default;
  Measurements(Measurements&&) = default;
  Measurements& operator=(Measurements&&) = default;

  MeasuredProblem& problem(std::string_view gfx, int cu_num, const Problem& problem);
  const MeasuredProblem* find(const TunedEntry& row) const;
  /// In the order in which they were first met.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [device, problem, measured] : in_order_) visit(*device, *problem, *measured);
  }
  /// Problems that this one lacks; of others the errors of candidates that have none.
  void add_missing(const Measurements& more);
  /// The problem is no longer visited; a row of it still finds what was measured.
  void leave_out(const Problem& problem);

 private:
  using Device = std::pair<std::string, int>;
  using Problems = std::unordered_map<Problem, MeasuredProblem, SameKeyHash, SameKey>;
  struct InOrder {
    const Device* device = nullptr;
    const Problem* problem = nullptr;
    MeasuredProblem* measured = nullptr;
  };
  std::map<Device, Problems> problems_;
  std::vector<InOrder> in_order_;
};

/// The newest run of each problem; errors as open_existing_journal().
Result<Measurements> measurements_of_journal(const std::string& path);
/// A profile (`tune -o2`). Lines that cannot be read are left out, with a diagnostic each.
Result<Measurements> measurements_of_profile(const std::string& path, std::vector<std::string>& diagnostics);

}  // namespace gemmtune::cli
