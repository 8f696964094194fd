// Arguments of the mxfp4_skinny kernel. The host includes this file; its text comes before the kernel's source.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct Mxfp4SkinnyArguments {
  const unsigned char* w;       // plain, or with PACKED in the layout fragment64
  const unsigned char* scales;  // e8m0 [features, scale_columns]
  const unsigned short* x;      // bf16 [rows, x_row]
  const GEMMTUNE_OUTPUT* bias;  // [features]; null: none
  GEMMTUNE_OUTPUT* y;           // [rows, y_row]
  long long x_row;              // elements
  long long y_row;              // elements
  int rows;                     // of x
  int strips;                   // of 16 rows of w
  int units;                    // of 64 of k
  int scale_columns;
  int split_k;           // blocks of a cluster
  int max_owned;         // strips that a block of a cluster has to add, at most
  int dependent_launch;  // 1: the kernel may load the weight and its scales before the previous kernel has ended
  int prefetch_units;  // of a warp's first strip, into L2, before griddepcontrol.wait returns
};

static_assert(GEMMTUNE_OFFSET(Mxfp4SkinnyArguments, rows) == 56 &&
                  GEMMTUNE_OFFSET(Mxfp4SkinnyArguments, dependent_launch) == 80 &&
                  sizeof(Mxfp4SkinnyArguments) == 88,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
