// --rules on the command line: the same words on tune and explain.
#pragma once

namespace gemmtune::cli {

inline constexpr const char* rules_help =
    "Rules that prune the spaces: own, each family's; tune_gemm_v2, those of tune_gemm 2 instead, in "
    "families that have such tiles";

}  // namespace gemmtune::cli
