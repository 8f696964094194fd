#include <array>
#include <string>

#include "base/text.h"
#include "problem/problem.h"

namespace gemmtune {
namespace {

struct OperationNames {
  Operation operation;
  std::string_view name;
  std::array<std::string_view, 4> aliases;
};

constexpr std::array<OperationNames, 9> operation_names{{
    {Operation::a16w16, "a16w16", {"bf16", "gemm_bf16", "gemm_a16w16"}},
    {Operation::a8w8, "a8w8", {"gemm_a8w8"}},
    {Operation::a8w8_bpreshuffle, "a8w8_bpreshuffle", {"gemm_a8w8_bpreshuffle", "bpreshuffle"}},
    {Operation::a8w8_blockscale, "a8w8_blockscale", {"gemm_a8w8_blockscale", "blockscale"}},
    {Operation::a8w8_blockscale_bpreshuffle,
     "a8w8_blockscale_bpreshuffle",
     {"gemm_a8w8_blockscale_bpreshuffle", "blockscale_bpreshuffle"}},
    {Operation::a4w4_blockscale, "a4w4_blockscale", {"a4w4", "gemm_a4w4", "gemm_a4w4_blockscale"}},
    {Operation::batched_bf16, "batched_bf16", {"batched_gemm_bf16", "bf16_batched"}},
    {Operation::batched_a8w8, "batched_a8w8", {"batched_gemm_a8w8", "a8w8_batched"}},
    {Operation::fused_moe, "fused_moe", {"fmoe", "moe"}},
}};

}  // namespace

std::span<const Operation> all_operations() {
  static constexpr auto list = [] {
    std::array<Operation, operation_names.size()> operations{};
    for (std::size_t index = 0; index < operation_names.size(); ++index)
      operations[index] = operation_names[index].operation;
    return operations;
  }();
  return list;
}

std::string_view to_string(Operation operation) {
  return operation_names[static_cast<std::size_t>(operation)].name;
}

std::optional<Operation> parse_operation(std::string_view text) {
  std::string word = to_lower(trim(text));
  for (char& character : word) {
    if (character == '-') character = '_';
  }
  if (word.empty()) return std::nullopt;
  for (const OperationNames& row : operation_names) {
    if (word == row.name) return row.operation;
    for (const std::string_view alias : row.aliases) {
      if (word == alias) return row.operation;
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune
