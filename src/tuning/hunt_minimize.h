// From a problem at which a kernel fails to the smallest one, and to a condition on sizes.
#pragma once

#include <functional>
#include <string>

#include "problem/problem.h"

namespace gemmtune {

/// True if the kernel fails for the problem as it did before.
using FailsAt = std::function<bool(const Problem& problem)>;

/// A problem at which the kernel fails still, with sizes that cannot be made smaller by the steps that are
/// tried (to 1, by halves, by 64, 8 and 1), without a bias and with row-major operands if it fails so. At most `max_tries` calls.
Problem minimize(const Problem& problem, const FailsAt& fails, int max_tries);

/// The sizes at which the kernel fails, as a condition of an erratum: for m, n and k each `k >= 63`,
/// `k % 2 == 1` and the like if larger sizes fail alike, `k == 63` otherwise, nothing if every size from 1 on
/// fails. A guess from a few sizes (at most 25 calls for each of the three).
std::string failing_sizes(const Problem& minimal, const FailsAt& fails);

}  // namespace gemmtune
