// One bit class for all M of a weight: which class, and the kernel of each M.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/evaluator.h"
#include "select/finals.h"
#include "tuning/tuner.h"

namespace gemmtune {

/// One M of the weight.
struct InvariantMember {
  Problem problem;
  double calls = 1;
  WeightLayout layout = WeightLayout::plain;
  std::vector<Trial> screened;  // of candidates of this layout; gets those of a second search and of finals
};

struct InvariantChoice {
  std::string bits;  // the class; empty: there is none, for this reason
  std::string reason;
  std::vector<Settled>
      settled;  // one a member, of its finals among kernels of the class against the default kernel
};

/// Chooses the class with the smallest sum of calls times the best time among those that serve every member. Kernels that
/// promise one order of sums (KernelFamily::sum_order) are searched together; every kernel that counts is verified fully,
/// by an evaluator that finds bit classes, and one whose class is not that of its promise is logged. `decided`: the class
/// of rows that stay; empty: none.
InvariantChoice choose_invariant(const Device& device, Evaluator& evaluator, const TuneRequest& request,
                                 const std::string& decided, std::span<InvariantMember> members);

}  // namespace gemmtune
