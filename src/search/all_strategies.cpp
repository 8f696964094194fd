#include <algorithm>
#include <array>

#include "base/text.h"
#include "search/strategies.h"

namespace gemmtune {

namespace {
std::size_t all_of(std::size_t candidates) { return candidates; }
}  // namespace

std::span<const StrategyInfo> all_strategies() {
  static constexpr std::array<StrategyInfo, 4> list{{
      {"staged", "few candidates, each chosen by what the times so far promise (default)", make_staged,
       staged_trials},
      {"exhaustive", "the same samples of every candidate", make_exhaustive, all_of, true},
      {"two_phase", "one sample of every candidate, then more of the best 20", make_two_phase, all_of, true},
      {"random", "candidates in a seeded random order, until the budget is spent", make_random, all_of},
  }};
  return list;
}

bool tries_whole_libraries(std::string_view name) {
  return std::ranges::any_of(
      all_strategies(), [&](const StrategyInfo& info) { return info.name == name && info.whole_libraries; });
}

std::size_t expected_trials(std::string_view name, std::size_t candidates) {
  for (const StrategyInfo& info : all_strategies()) {
    if (info.name == name) return info.expected_trials(candidates);
  }
  return candidates;
}

Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const SearchLimits& limits) {
  for (const StrategyInfo& info : all_strategies())
    if (info.name == name) return info.make(limits);
  return Status::invalid("search strategy '{}', expected one of {}", name,
                         joined(all_strategies(), ", ", &StrategyInfo::name));
}

}  // namespace gemmtune
