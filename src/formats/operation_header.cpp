#include "formats/operation_header.h"

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

namespace gemmtune {
namespace {

// Longest names first: "a8w8_blockscale_bpreshuffle" holds "a8w8_blockscale". AITER names files
// <prefix>_tuned_gemm, <prefix>_untuned_gemm and puts model names around them.
constexpr std::array<std::pair<std::string_view, Operation>, 11> base_names{{
    {"a8w8_blockscale_bpreshuffle", Operation::a8w8_blockscale_bpreshuffle},
    {"a8w8_tuned_batched", Operation::batched_a8w8},
    {"a8w8_untuned_batched", Operation::batched_a8w8},
    {"bf16_tuned_batched", Operation::batched_bf16},
    {"bf16_untuned_batched", Operation::batched_bf16},
    {"a8w8_bpreshuffle", Operation::a8w8_bpreshuffle},
    {"a8w8_blockscale", Operation::a8w8_blockscale},
    {"a4w4_blockscale", Operation::a4w4_blockscale},
    {"fmoe", Operation::fused_moe},
    {"a8w8", Operation::a8w8},
    {"bf16", Operation::a16w16},
}};

std::vector<Operation> operations_of_header(const CsvHeader& header) {
  const auto has = [&](std::string_view name) { return header.find({name}).has_value(); };
  if (has("token") || has("model_dim")) return {Operation::fused_moe};
  if (has("b")) return {Operation::batched_bf16, Operation::batched_a8w8};
  if (has("outdtype") || has("scaleab") || has("dtype") || has("bias")) return {Operation::a16w16};
  if (has("q_dtype_w")) return {Operation::a8w8, Operation::a8w8_bpreshuffle};
  return {Operation::a16w16, Operation::a8w8_blockscale, Operation::a8w8_blockscale_bpreshuffle,
          Operation::a4w4_blockscale};
}

}  // namespace

Result<Operation> operation_of(const std::string& path, const CsvHeader& header,
                               std::optional<Operation> asked) {
  if (asked) return *asked;
  const auto candidates = operations_of_header(header);
  if (candidates.size() == 1) return candidates.front();
  const std::string name = std::filesystem::path(path).filename().string();
  for (const auto& [base, operation] : base_names) {
    if (name.find(base) != std::string::npos) return operation;
  }
  std::string list;
  for (const Operation operation : candidates)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", to_string(operation));
  return Status::invalid(
      "{}: neither the header nor the file name tells the operation; name it with --op ({})", path, list);
}

}  // namespace gemmtune
