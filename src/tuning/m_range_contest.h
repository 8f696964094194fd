// Kernels of other M against each other and the default at one M: paired rounds, and what each would have as
// a row of that M.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "select/finals.h"
#include "tuning/m_range_planner.h"

namespace gemmtune {

struct MContest {
  Problem problem;
  std::vector<std::string> kernels;  // names; the default need not be among them
  WeightLayout layout = WeightLayout::plain;
  Policy policy;
  double regret = 0.02;
};

struct MComparison {
  std::vector<MStanding> standings;     // of those that ran, the default included
  double noise_floor = 0;               // A against A
  std::map<std::string, Settled> rows;  // by kernel, with its verdict against the default
  int finals_calls = 0;
};

/// Names that do not resolve or fail the full gate have no standing. Kernels of another weight layout than
/// the contest's, and kernels slower than a default that could have the row by more than the tie band, may
/// not answer. 15 rounds; where these leave open whether a kernel is within `regret` of the fastest, up to 15
/// more of those kernels. Verdicts: `default` for the default itself; `win` and `tie` (the fastest, and
/// another) where the default is beaten by policy.prefer_ratio in a sign test; else `undecided`; `only`
/// without a default. An error where nothing could be measured.
Result<MComparison> compare_kernels(const Device& device, Evaluator& evaluator, const MContest& contest,
                                    const Deadline& deadline);

}  // namespace gemmtune
