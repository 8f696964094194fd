// What devices can compute at most: times that beat it were not measured.
#pragma once

#include <string_view>

#include "problem/problem.h"

namespace gemmtune {

/// For devices that are not in the table: more than any of them computes, TFLOP/s.
inline constexpr double unknown_device_peak = 12000;

/// Dense peak in TFLOP/s of the tensor cores for the problem's types (the narrower operand counts), scaled by
/// the share of compute units. An empty gfx stands for the one of its cu_num.
double peak_tflops(std::string_view gfx, int cu_num, const Problem& problem);

/// Microseconds that no device of this architecture and number of compute units falls below. Of a CPU: by its cores, what an
/// instruction set computes in a cycle, and what caches and memory deliver, each twice what is known or more. Of others: by the
/// peak above.
double shortest_microseconds(std::string_view gfx, int cu_num, const Problem& problem);

}  // namespace gemmtune
