// What is wrong with vLLM's and SGLang's Triton configs, beside what any Triton config may have.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "formats/triton/triton_json.h"
#include "tuned/finding.h"

namespace gemmtune {

/// Of one file of TritonScheme::nearest: a share of the keys that is missing, keys out of order, winners that are noise, a
/// name that neither program looks for.
std::vector<Finding> audit_nearest_file(const TritonFile& file, std::uint32_t source);

/// Of files beside each other: those of one name in one folder, and SGLang's down projections, whose BLOCK_SIZE_M must be
/// that of their first file at every M.
std::vector<Finding> audit_nearest_pairs(std::span<const TritonFile> files);

}  // namespace gemmtune
