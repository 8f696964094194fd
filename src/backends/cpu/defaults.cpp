#include "backends/cpu/defaults.h"

#include <array>
#include <string_view>

#include "backends/first_accepting.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t max_skinny_rows = 8;

Status not_here(std::string_view name) { return Status::not_found("{}: not on this machine", name); }

}  // namespace

Result<Candidate> choose_baseline(std::span<const KernelFamily* const> families, const Problem& problem) {
  constexpr std::array<std::string_view, 2> order{"onednn", "openblas"};
  return first_accepting(families, order, problem, StatusCode::not_found, not_here);
}

Result<Candidate> choose_fallback(std::span<const KernelFamily* const> families, const Problem& problem) {
  constexpr std::array<std::string_view, 7> few_rows{"onednn",    "skinny",  "tiled", "streaming",
                                                     "quantized", "batched", "moe"};
  constexpr std::array<std::string_view, 7> many_rows{"onednn",    "tiled",   "skinny", "streaming",
                                                      "quantized", "batched", "moe"};
  return first_accepting(families, problem.m <= max_skinny_rows ? few_rows : many_rows, problem,
                         StatusCode::unsupported, not_here);
}

}  // namespace gemmtune::cpu
