#include <array>

#include "search/strategies.h"

namespace gemmtune {

std::span<const StrategyInfo> all_strategies() {
  static constexpr std::array<StrategyInfo, 3> list{{
      {"staged", "one sample of all, then more of the better half again and again (default)", make_staged},
      {"exhaustive", "the same samples of every candidate", make_exhaustive},
      {"random", "candidates in a seeded random order, until the budget is spent", make_random},
  }};
  return list;
}

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const SearchLimits& limits) {
  std::string known;
  for (const StrategyInfo& info : all_strategies()) {
    if (info.name == name) return info.make(limits);
    known += known.empty() ? "" : ", ";
    known += info.name;
  }
  return Status::invalid("search strategy '{}', expected one of {}", name, known);
}

}  // namespace gemmtune
