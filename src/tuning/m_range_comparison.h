// Compares kernels of other M with each other and with the default at one M, in paired rounds, and makes the
// row that each would have there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "select/finals.h"
#include "tuning/m_range_planner.h"

namespace gemmtune {

struct MComparisonRequest {
  Problem problem;
  std::vector<std::string> kernels;  // names; the default need not be among them
  WeightLayout layout = WeightLayout::plain;
  Policy policy;
  double regret = 0.02;
  /// The default is the vendor library's kernel, none where there is none: of one kernel for many M, at some of which
  /// another one may run untuned.
  bool against_library = false;
};

struct MComparison {
  std::vector<MRegret> regrets;         // of kernels that ran, the default included
  double noise_floor = 0;               // A against A
  std::map<std::string, Settled> rows;  // by kernel, with its verdict against the default
  int finals_calls = 0;
};

/// Names that do not resolve and kernels that fail full verification have no regret. A kernel may not answer
/// if it reads another weight layout than the request's, or is slower by more than the tie band than a
/// default that could have the row. 15 rounds; if these leave open whether a kernel is within `regret` of the
/// fastest, up to 15 more of those kernels. Verdicts: `default` for the default itself; `win` if the default
/// is beaten by policy.prefer_ratio in a sign test; else `undecided`; `only` without a default. An error if
/// nothing could be measured.
Result<MComparison> compare_kernels(const Device& device, Evaluator& evaluator,
                                    const MComparisonRequest& request, const Deadline& deadline);

}  // namespace gemmtune
