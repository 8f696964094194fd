// The weight layout of a known row.
#pragma once

#include <optional>

#include "backends/backend.h"
#include "problem/problem.h"
#include "tuned/entry.h"

namespace gemmtune {

/// The weight layout that the row's kernel reads; none where the name does not resolve or takes any layout.
std::optional<WeightLayout> layout_of(const TunedEntry& row, const Device& device);

}  // namespace gemmtune
