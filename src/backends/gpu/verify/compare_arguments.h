// Arguments and results of the comparison of y with its reference. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

/// RowFigures of verify/row_figures.h, which the host reads them as.
struct DeviceRowFigures {
  double error, reference, magnitude, output, product;
  double max_output, max_error, max_exact_error;
  double worst_excess, worst_output, worst_reference;
  long long worst_column, checked, misrounded, outside, not_finite, unwritten, first_not_finite,
      padding_written;
};

struct CompareArguments {
  const GEMMTUNE_OUTPUT* y;  // [m, ldy]
  const double* values;      // [m, n], of the reference
  const float* magnitudes;   // [m, n]
  DeviceRowFigures* rows;    // [m]
  long long n, ldy;
  double absolute, relative, output_epsilon, output_tiny, element_factor;  // of the Tolerance
};

static_assert(sizeof(DeviceRowFigures) == 152, "host and device layouts differ");
static_assert(GEMMTUNE_OFFSET(CompareArguments, rows) == 24 &&
                  GEMMTUNE_OFFSET(CompareArguments, absolute) == 48 &&
                  GEMMTUNE_OFFSET(CompareArguments, element_factor) == 80 && sizeof(CompareArguments) == 88,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
