// How device sources name data types (numbers.cuh), and what all families of dense GEMMs refuse.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/gpu/runtime.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// 0: fp32, 1: fp16, 2: bf16, 3: fp8 e4m3fn; −1 for others.
int element_code(DataType type);

/// The text of numbers.cuh: conversions for ELEMENT and OUTPUT, which type_defines() sets.
std::string_view number_source();
std::vector<std::string> type_defines(const Problem& problem);

/// ok for a16w16 on plain row-major operands of these types; else `unsupported`: "<family>: <subject>:
/// <detail>".
Status accepts_dense(std::string_view family, const Problem& problem);

}  // namespace gemmtune::gpu
