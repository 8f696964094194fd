#include "backends/cpu/defaults.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t most_skinny_rows = 8;

/// The first family of `order` that takes the problem, at its default config; else the Status with every
/// reason.
Result<Candidate> first_that_accepts(std::span<const KernelFamily* const> families,
                                     std::span<const std::string_view> order, const Problem& problem,
                                     StatusCode otherwise) {
  std::string reasons;
  for (const std::string_view name : order) {
    const auto found = std::find_if(families.begin(), families.end(),
                                    [&](const KernelFamily* family) { return family->name() == name; });
    if (!reasons.empty()) reasons += "; ";
    if (found == families.end()) {
      reasons += fmt::format("{}: not on this machine", name);
      continue;
    }
    const Status status = (*found)->accepts(problem);
    if (status.ok()) {
      return Candidate{std::string(name), (*found)->revision(), (*found)->default_config(problem)};
    }
    reasons += status.message();
  }
  return Status(otherwise, fmt::format("{}: {}", short_name(problem), reasons));
}

}  // namespace

Result<Candidate> choose_baseline(std::span<const KernelFamily* const> families, const Problem& problem) {
  constexpr std::array<std::string_view, 2> order{"onednn", "openblas"};
  return first_that_accepts(families, order, problem, StatusCode::not_found);
}

Result<Candidate> choose_fallback(std::span<const KernelFamily* const> families, const Problem& problem) {
  constexpr std::array<std::string_view, 7> few_rows{"onednn",    "skinny",  "tiled", "streaming",
                                                     "quantized", "batched", "moe"};
  constexpr std::array<std::string_view, 7> many_rows{"onednn",    "tiled",   "skinny", "streaming",
                                                      "quantized", "batched", "moe"};
  return first_that_accepts(families, problem.m <= most_skinny_rows ? few_rows : many_rows, problem,
                            StatusCode::unsupported);
}

}  // namespace gemmtune::cpu
