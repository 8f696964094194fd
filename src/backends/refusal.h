// Why a family does not take a problem: "<subject>: <detail>", without the family's name, which is added by
// those who list several families. Subjects are of a fixed vocabulary; `gemmtune explain` and tests rely on
// it.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune::refusal {

inline constexpr std::string_view operation = "operation";
inline constexpr std::string_view types = "data types";
inline constexpr std::string_view order = "operand order";
inline constexpr std::string_view batch = "batch";
inline constexpr std::string_view layout = "weight layout";
inline constexpr std::string_view rows = "rows";
inline constexpr std::string_view reduction = "k";
inline constexpr std::string_view activation = "activation";
inline constexpr std::string_view instructions = "isa";
inline constexpr std::string_view device = "device";
inline constexpr std::string_view size = "size";
inline constexpr std::string_view alignment = "alignment";

template <typename... Args>
Status refuse(std::string_view subject, fmt::format_string<Args...> detail, Args&&... args) {
  return Status::unsupported("{}: {}", subject, fmt::format(detail, std::forward<Args>(args)...));
}

/// The orders that a family takes of x and w.
enum class Orders { row_major, any_input };

/// ok for operands in these orders.
inline Status check_order(const Problem& problem, Orders taken = Orders::row_major) {
  if (taken == Orders::any_input) return {};
  const bool x = problem.x_order == Order::column_major;
  const bool w = problem.w_order == Order::column_major;
  if (x || w) return refuse(order, "column-major {}, only row-major", x && w ? "x and w" : x ? "x" : "w");
  return {};
}

/// ok for one batch of operands in these orders.
inline Status check_one_batch(const Problem& problem, Orders taken = Orders::row_major) {
  if (problem.batch != 1) return refuse(batch, "{} is not 1", problem.batch);
  return check_order(problem, taken);
}

/// ok for the activations of a mixture that kernels have.
inline Status check_activation(const Problem& problem) {
  if (problem.moe.activation == Activation::situv2)
    return refuse(activation, "Situv2 is not taken, only No, Silu, Gelu and Swiglu");
  if (problem.moe.activation == Activation::swiglu && !problem.moe.gated)
    return refuse(activation, "Swiglu of a w1 without gate");
  return {};
}

/// ok for a16w16, with or without scaleAB: operands in these orders, one batch.
inline Status check_dense_gemm(const Problem& problem, Orders taken = Orders::row_major) {
  if (problem.operation != Operation::a16w16) {
    return refuse(operation, "{} is not a16w16", to_string(form_of(problem)));
  }
  return check_one_batch(problem, taken);
}

/// ok for what all libraries of plain matrix multiplication have: a16w16 without scales.
inline Status check_plain_gemm(const Problem& problem, Orders taken = Orders::row_major) {
  GEMMTUNE_RETURN_IF_ERROR(check_dense_gemm(problem, taken));
  if (problem.scale_ab) return refuse(types, "scaled {} operands", to_string(problem.x_type));
  return {};
}

}  // namespace gemmtune::refusal
