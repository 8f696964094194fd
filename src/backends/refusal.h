// Why a vendor family does not take a problem, in words of a fixed vocabulary: "<family>: <subject>:
// <detail>". The subjects are the members of this file; `gemmtune explain` and tests rely on them.
#pragma once

#include <string_view>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune::cpu::refusal {

inline constexpr std::string_view operation = "operation";
inline constexpr std::string_view types = "data types";
inline constexpr std::string_view order = "operand order";
inline constexpr std::string_view batch = "batch";
inline constexpr std::string_view layout = "weight layout";

template <typename... Args>
Status say(std::string_view family, std::string_view subject, fmt::format_string<Args...> detail,
           Args&&... args) {
  return Status::unsupported("{}: {}: {}", family, subject, fmt::format(detail, std::forward<Args>(args)...));
}

/// The subjects that all libraries of plain matrix multiplication have in common: a16w16 without scales,
/// row-major operands, one batch. The problem's own errors (sizes, types in disagreement) come first.
inline Status of_plain_gemm(std::string_view family, const Problem& problem) {
  if (problem.operation != Operation::a16w16) {
    return say(family, operation, "{} is not a16w16", to_string(problem.operation));
  }
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (problem.scale_ab) return say(family, types, "scaled {} operands", to_string(problem.x_type));
  if (problem.batch != 1) return say(family, batch, "{} is not 1", problem.batch);
  if (problem.x_order != Order::row_major || problem.w_order != Order::row_major ||
      problem.y_order != Order::row_major) {
    return say(family, order, "only row-major operands");
  }
  return {};
}

}  // namespace gemmtune::cpu::refusal
