// The constructors that all_strategies.cpp lists; everybody else asks make_strategy.
#pragma once

#include <memory>

#include "search/strategy.h"

namespace gemmtune {

std::unique_ptr<Strategy> make_staged(const SearchLimits& limits);
std::unique_ptr<Strategy> make_exhaustive(const SearchLimits& limits);
std::unique_ptr<Strategy> make_two_phase(const SearchLimits& limits);
std::unique_ptr<Strategy> make_random(const SearchLimits& limits);

/// StrategyInfo::expected_trials.
std::size_t staged_trials(std::size_t candidates);

}  // namespace gemmtune
