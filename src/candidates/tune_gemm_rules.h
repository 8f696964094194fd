// The rules by which version 2 of ROCm's tune_gemm prunes its space, as its documentation states them, and that space. A set of
// rules of the search, off until it is turned on as a whole (`--rules tune_gemm_v2`).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune {

/// Whose rules of the search hold.
enum class RuleSet {
  own,           // each family's
  tune_gemm_v2,  // tune_gemm's instead, in families that have them
};
std::string_view to_string(RuleSet rules);
/// An error names the words there are.
Result<RuleSet> parse_rule_set(std::string_view text);

/// A config in tune_gemm's terms; nullopt where a family has no such thing, whose rules then say nothing.
struct TuneGemmConfig {
  std::optional<std::int64_t> block_m = {};
  std::optional<std::int64_t> block_n = {};
  std::optional<std::int64_t> block_k = {};  // elements
  std::optional<std::int64_t> group_m = {};
  std::int64_t split_k = 1;
  std::int64_t instruction = 16;  // rows and columns of the matrix instruction
};

/// Off, with names that begin with the set's: "tune_gemm_v2 group".
std::vector<Constraint> tune_gemm_v2_rules(const Problem& problem,
                                           const std::function<TuneGemmConfig(const AskedConfig&)>& read);

/// Of `own` nothing changes; of another set all other rules of the search go off, if the space has rules of the set.
void turn_set(RuleSet rules, Space& space);

/// The space of tune_gemm 2, of 33,000 points, with its rules on: what it would compile and time. The instruction has 32 rows, as
/// without MFMA_TYPE.
Space tune_gemm_v2_space(const Problem& problem);

}  // namespace gemmtune
