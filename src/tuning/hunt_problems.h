// Random problems of the kinds at which kernels of libraries were wrong.
#pragma once

#include "base/random.h"
#include "problem/problem.h"

namespace gemmtune {

struct HuntLimits {
  double max_flops = 0;  // of one problem
  double max_bytes = 0;  // of x, w and y together
};

/// Awkward, deep and small K, one row to thousands, any bias, type, alignment and orders of the operation; sizes
/// past 2^31 elements now and then, if the limits allow. May fail check(): families take what they take.
Problem random_problem(OperationForm operation, const HuntLimits& limits, Random& random);

}  // namespace gemmtune
