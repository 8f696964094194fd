// The families of AITER's Triton configs and the operations that they hold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "formats/triton/triton_lookup.h"
#include "problem/problem.h"

namespace gemmtune {

/// True if some family of files holds problems of the operation.
bool has_triton_family(OperationForm operation);
/// The family of files that holds a problem: GEMM-A8W8_BLOCKSCALE, MOE-FP8_W8A8 …; nullopt where AITER has none.
std::optional<std::string_view> triton_family(const Problem& problem);
/// The problem of a family without sizes; of a MOE family with types of its kind. nullopt for a family of no operation here.
std::optional<Problem> problem_of_triton_family(std::string_view family);
/// The problem of vLLM's and SGLang's files, by the types of the name; without sizes. nullopt: no operation here.
std::optional<Problem> problem_of_nearest_name(const TritonFileName& name);
/// The bounds that the family's kernel looks for.
std::span<const std::int64_t> triton_bounds(std::string_view family);
/// How the family's launch splits K.
LaunchRule triton_launch_rule(std::string_view family);
/// Of which folder of AITER's the family's kernel takes its configs on an architecture: "triton", "gluon"; empty: of triton, then
/// gluon.
std::string_view triton_backend(std::string_view arch, std::string_view family);
/// True for a family of which it is known here what its kernel reads.
bool is_known_family(std::string_view family);

}  // namespace gemmtune
