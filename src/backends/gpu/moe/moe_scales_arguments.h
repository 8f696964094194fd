// The scales of an operand of a mixture as arguments of kernels. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

/// The scale of element (row, k) of a matrix is values[row / row_block * columns + k / k_block]; null: none.
struct MoeScales {
  const void* values;
  long long matrix_elements;  // from expert to expert
  long long columns;
  int row_block, k_block;
};

static_assert(sizeof(MoeScales) == 32 && GEMMTUNE_OFFSET(MoeScales, row_block) == 24,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
