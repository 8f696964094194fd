// The scales of quantized operands as arguments of kernels. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

/// The scale of row m of x at element k is x[m * x_row_step], with scales of blocks x[m * x_row_step + k / 128];
/// that of row n of w is w[n * w_row_step], w[n / 128 * w_row_step + k / 128]. e8m0
/// scales are bytes, row m's at element k x[m * x_row_step + k / 32]; so are e4m3 ones, of k / 16, and those of groups, of y's
/// type.
struct ScalesArguments {
  const float* x;  // of blocks also e8m0 bytes (E8M0)
  const float* w;
  long long x_row_step;  // 0: one scale for all rows
  long long w_row_step;
};

/// What some formats have beside the scales; null where the problem's have it not.
struct FormatArguments {
  const float* x_global;  // of Scales::nv: the scale of the matrix
  const float* w_global;
  const signed char* zero_points;  // of w, as its scales
};

static_assert(sizeof(FormatArguments) == 24 && sizeof(ScalesArguments) == 32 &&
                  GEMMTUNE_OFFSET(ScalesArguments, x_row_step) == 16,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
