#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cuda/families/hopper.h"
#include "backends/gpu/families/element_code.h"
#include "backends/refusal.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

Status accepts_transposing(const Problem& problem) {
  if (all_row_major(problem) || bits(problem.x_type) == 16) return {};
  return refusal::refuse(refusal::order,
                         "column-major {}: the tensor cores transpose elements of two bytes only",
                         to_string(problem.x_type));
}

Status accepts_addresses(const Problem& problem) {
  if (problem.alignment % 16 == 0) return {};
  return refusal::refuse(refusal::alignment, "operands at multiples of {} bytes, 16 are needed",
                         problem.alignment);
}

Status accepts_weight_rows(const Problem& problem) {
  for (const auto& [name, elements] : {std::pair{"k", problem.k}, std::pair{"n", problem.n}})
    if (bytes_of(problem.w_type, elements) % 16 != 0)
      return refusal::refuse(refusal::alignment, "rows of {} = {} {} are no multiple of 16 bytes", name,
                             elements, to_string(problem.w_type));
  return accepts_addresses(problem);
}

Status accepts_alignment(const Problem& problem) {
  const auto check_line = [&](const MatrixShape& shape, std::string_view columns_of) -> Status {
    const std::int64_t elements = shape.line_elements();
    if (bytes_of(shape.type, elements) % 16 == 0) return {};
    const bool rows = shape.order == Order::row_major;
    return refusal::refuse(refusal::alignment, "{} of {} = {} {} are no multiple of 16 bytes",
                           rows ? "rows" : "columns", rows ? "k" : columns_of, elements,
                           to_string(shape.type));
  };
  const OperandShapes shapes = operand_shapes(problem);
  GEMMTUNE_RETURN_IF_ERROR(check_line(shapes.x, "m"));
  GEMMTUNE_RETURN_IF_ERROR(check_line(shapes.w, "n"));
  return accepts_addresses(problem);
}

Status check_alignment(const void* x, std::int64_t x_row_bytes, std::initializer_list<const void*> others) {
  const auto address = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data); };
  std::uintptr_t together = address(x) | static_cast<std::uintptr_t>(x_row_bytes);
  for (const void* data : others) together |= address(data);
  if (together % 16 == 0) return {};
  return Status::unsupported(
      "x, weights and scales need pointers and rows at multiples of 16 bytes: x at {}, rows of {} bytes", x,
      x_row_bytes);
}

std::string_view leads_few_rows(const Problem& problem, std::string_view architecture) {
  if (architecture != "sm_90" || problem.operation != Operation::a16w16 || problem.m > 16) return {};
  if (problem.x_type != DataType::bf16 && problem.x_type != DataType::f16) return {};
  if (problem.y_type != problem.x_type || is_packed(problem) || !all_row_major(problem)) return {};
  // Above 40 million elements both kernels are bound by the same bytes and 1 % apart either way.
  constexpr std::int64_t narrow = 256;
  constexpr std::int64_t wide = 1280;
  constexpr std::int64_t many = 40'000'000;
  if (problem.n <= narrow) return "skinny";
  return problem.n >= wide && problem.n * problem.k <= many ? "wgmma" : "";
}

PackedWeight packed_weight(const Problem& problem, const void* data) {
  const Tile64 tiles = gpu::tiles_of(problem);
  return {static_cast<const unsigned char*>(data), static_cast<int>(tiles.tiles()),
          static_cast<int>(tiles.row_chunks())};
}

Parameter block_k_parameter(DataType element, std::initializer_list<std::int64_t> atoms) {
  Parameter parameter{"bk", {}, "", "block_k: elements of k in a stage"};
  for (const std::int64_t count : atoms)
    parameter.values.push_back(std::to_string(block_k_of(element, count)));
  parameter.absent = parameter.values.front();
  return parameter;
}

std::int64_t k_atoms_of(const Config& config, DataType element) {
  const std::int64_t one = block_k_of(element, 1);
  return std::max<std::int64_t>(1, config.number("bk", one) / one);
}

std::string refuse_block_k(const Config& config, DataType element) {
  const std::int64_t one = block_k_of(element, 1);
  return config.number("bk", one) % one == 0 ? "" : "bk is no multiple of 128 bytes";
}

std::int64_t block_k_of(DataType element, std::int64_t atoms) {
  return atoms * atom_bytes * 8 / bits(element);
}

Parameter cluster_split_parameter() {
  Parameter parameter{"csk", {}, "1", "split-K within the cluster: blocks that divide k"};
  for (std::int64_t blocks = 1; blocks <= max_cluster; ++blocks)
    parameter.values.push_back(std::to_string(blocks));
  return parameter;
}

Parameter pipeline_parameter(std::vector<std::string> values, std::string absent, std::int64_t least) {
  return {"smem", std::move(values), std::move(absent), "KiB of shared memory, which the stages fill",
          NumberRange{least, 227}};
}

Parameter dependent_parameter() {
  return {"pdl",
          {"0", "1"},
          "0",
          "1: programmatic dependent launch, starts before the previous kernel has ended"};
}

bool accumulates_fewer_bits(DataType element) { return traits(element).fp8; }

Parameter promotion_parameter(DataType element, std::initializer_list<std::int64_t> sets) {
  Parameter parameter{
      "prom", {}, "0", "promotion: sets of partial sums, added to float32 registers every 128 of k"};
  if (!accumulates_fewer_bits(element)) return parameter;
  parameter.values.push_back(parameter.absent);
  for (const std::int64_t count : sets) parameter.values.push_back(std::to_string(count));
  return parameter;
}

Accuracy hopper_accuracy(const Problem& problem, const Config& config) {
  return accumulates_fewer_bits(problem.x_type) && config.number("prom", 0) == 0 ? Accuracy::tensor_core
                                                                                 : Accuracy::fp32;
}

std::string ends_of_splits(std::int64_t atoms, std::int64_t k_tiles, std::int64_t k_atoms,
                           std::int64_t split_k) {
  std::vector<std::int64_t> ends;
  for (std::int64_t split = 1; split <= split_k; ++split) {
    const std::int64_t tiles = split * (k_tiles / split_k) + std::min(split, k_tiles % split_k);
    const std::int64_t end = std::min(tiles * k_atoms, atoms);
    if (ends.empty() || end > ends.back()) ends.push_back(end);
  }
  return fmt::format("{}", fmt::join(ends, ", "));
}

std::string hopper_sum_order(const Problem& problem, std::int64_t k_tiles, std::int64_t k_atoms,
                             std::int64_t split_k, std::int64_t promotion) {
  // Atoms past the end of k are zeros. They change no float32 sum; a sum of fewer bits is rounded once more.
  const bool keeps_sums = promotion > 0 || !accumulates_fewer_bits(problem.x_type);
  const std::int64_t atoms =
      keeps_sums ? ceil_div(bytes_of(problem.x_type, problem.k), atom_bytes) : k_tiles * k_atoms;
  return fmt::format("wgmma{} to {}", promotion > 0 ? " promoted" : "",
                     ends_of_splits(atoms, k_tiles, k_atoms, split_k));
}

}  // namespace gemmtune::cuda
