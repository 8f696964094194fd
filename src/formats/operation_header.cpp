#include "formats/operation_header.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <initializer_list>

#include "base/text.h"

namespace gemmtune {
namespace {

struct BaseName {
  std::string_view text;
  Operation operation;
};

// A longer name stands before any that it contains.
constexpr std::array<BaseName, 11> base_names{{
    {"a8w8_blockscale_bpreshuffle", Operation::a8w8_blockscale_bpreshuffle},
    {"a8w8_blockscale", Operation::a8w8_blockscale},
    {"a8w8_bpreshuffle", Operation::a8w8_bpreshuffle},
    {"a4w4_blockscale", Operation::a4w4_blockscale},
    {"a8w8_tuned_batched", Operation::batched_a8w8},
    {"a8w8_untuned_batched", Operation::batched_a8w8},
    {"bf16_tuned_batched", Operation::batched_bf16},
    {"bf16_untuned_batched", Operation::batched_bf16},
    {"fmoe", Operation::fused_moe},
    {"bf16", Operation::a16w16},
    {"a8w8", Operation::a8w8},
}};

bool has(const CsvCells& header, std::string_view name) {
  for (std::size_t index = 0; index < header.size(); ++index) {
    if (header[index] == name) return true;
  }
  return false;
}

bool has_any_case(const CsvCells& header, std::initializer_list<std::string_view> names) {
  for (std::size_t index = 0; index < header.size(); ++index) {
    const std::string cell = to_lower(header[index]);
    for (const std::string_view name : names) {
      if (cell == name) return true;
    }
  }
  return false;
}

std::string names_of(const std::vector<Operation>& operations) {
  std::string text;
  for (const Operation operation : operations) {
    if (!text.empty()) text += ", ";
    text += to_string(operation);
  }
  return text;
}

}  // namespace

std::vector<Operation> operations_of_header(const CsvCells& header) {
  using enum Operation;
  if (has_any_case(header, {"token", "model_dim", "inter_dim"})) return {fused_moe};
  if (has(header, "B")) return {batched_bf16, batched_a8w8};
  if (has(header, "b")) return {batched_a8w8};
  if (has_any_case(header, {"bias", "dtype", "outdtype", "scaleab", "bpreshuffle"})) return {a16w16};
  for (const std::string_view dimension : {"m", "n", "k"}) {
    if (!has_any_case(header, {dimension})) return {};
  }
  if (has_any_case(header, {"q_dtype_w"})) return {a8w8, a8w8_bpreshuffle};
  return {a16w16, a8w8, a8w8_blockscale, a8w8_blockscale_bpreshuffle, a4w4_blockscale};
}

std::optional<Operation> operation_of_file_name(const std::string& path) {
  const std::string name = to_lower(std::filesystem::path(path).filename().string());
  const bool table = name.find("tuned") != std::string::npos;  // "untuned" too
  for (const BaseName& base : base_names) {
    if (table && name.find(base.text) != std::string::npos) return base.operation;
  }
  return std::nullopt;
}

Status check_readable(const std::string& source, Operation operation) {
  if (operation == Operation::a16w16) return {};
  return Status::unsupported(
      "{}: a table of {}, which comes with a later version; this one reads a16w16 (bf16)", source,
      to_string(operation));
}

Result<Operation> detect_operation(const std::string& source, const CsvCells& header,
                                   std::optional<Operation> wanted) {
  std::optional<Operation> found = wanted;
  const auto candidates = operations_of_header(header);
  if (!found && candidates.size() == 1) found = candidates.front();
  if (!found && !candidates.empty()) found = operation_of_file_name(source);
  if (found) {
    GEMMTUNE_RETURN_IF_ERROR(check_readable(source, *found));
    return *found;
  }
  if (candidates.empty()) {
    return Status::invalid(
        "{}: the header is none of a shape list or tuned file: expected columns M, N, K, dtype", source);
  }
  return Status::invalid(
      "{}: neither the header nor the file name tells the operation; name it with --op ({})", source,
      names_of(candidates));
}

}  // namespace gemmtune
