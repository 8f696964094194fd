// Whether the kernels that serve the M of a weight give a row the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/evaluator.h"

namespace gemmtune {

/// A kernel that serves a problem, and other M that it serves too.
struct ServedKernel {
  Problem problem;
  Candidate candidate;
  std::string refusal{};  // why nothing runs there; the candidate is empty then
  std::vector<std::int64_t> other_ms{};
};

struct ServedClass {
  ServedKernel served;
  BitClass bits;
};

/// All M of one weight: problems that differ in M alone.
struct InvariantReport {
  std::vector<ServedClass> kernels;  // in the order given
  std::string bits;                  // the class of all of them; empty: `difference` says why there is none
  std::string difference;
  std::string sum_order;  // that all of them promise (KernelFamily::sum_order); empty: none
  /// Of kernels that adds_in_pairs(): how many ranks, by N and by K, gave the bits of the whole weight (evaluate/in_process/rank_sums.h).
  std::vector<int> ranks_by_n;
  std::vector<int> ranks_by_k;
};

/// Verifies every kernel fully, through an evaluator that finds bit classes; `device` runs those that passed once more, to name
/// the first difference between two, and to compare ranks with the whole weight. `on_kernel` is called before each; true ends the check.
std::vector<InvariantReport> check_invariant(Device& device, Evaluator& evaluator,
                                             std::span<const ServedKernel> kernels,
                                             const std::function<bool(const ServedKernel&)>& on_kernel);

}  // namespace gemmtune
