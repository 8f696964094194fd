// Which kernel runs where nothing was tuned, by the ranks of the device's families.
#pragma once

#include "backends/backend.h"
#include "backends/family_info.h"

namespace gemmtune {

/// Device::baseline() and Device::fallback(): of the families of `known` that are eligible, the first that
/// the device has and that accepts the problem, at its default config; else the Status with every family's
/// reason.
Result<Candidate> choose_baseline(FamilyInfos known, const Device& device, const Problem& problem);
Result<Candidate> choose_fallback(FamilyInfos known, const Device& device, const Problem& problem);

}  // namespace gemmtune
