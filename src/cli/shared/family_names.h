// --libtype: kernel families by name, and AITER's words for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune::cli {

/// "all" or an empty text: an empty list, which means all families. Aliases are resolved for the device's
/// backend: hipblaslt, hipblast: its vendor library; triton, ck, cktile: its tunable families; asm: its
/// hand-tuned ones; torch: what a user without gemmtune gets. An unknown or missing family is an error that
/// lists the known ones and, where its library is missing, says why.
Result<std::vector<std::string>> resolve_families(std::string_view text, const Device& device);

/// The help of --rules.
inline constexpr const char* rules_help =
    "Rules that prune the spaces: own, each family's; tune_gemm_v2, those of tune_gemm 2 instead, in "
    "families that have such tiles";

}  // namespace gemmtune::cli
