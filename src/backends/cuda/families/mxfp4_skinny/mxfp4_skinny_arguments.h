// What the mxfp4_skinny kernel is compiled for, and its arguments. The host includes this file too.
#pragma once

#include "backends/cuda/families/weight_format_arguments.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

struct Mxfp4SkinnyConfig {
  int warps;
  int units;        // of 64 of k, of a warp
  bool tail;        // some warp has fewer
  int groups;       // of eight rows of x
  int pieces;       // in the pipeline: a divisor of `units`, or whole strips
  bool split;       // a cluster divides k
  bool x_fp4;       // x is MXFP4 too
  bool packed;      // the weight has the layout fragment64
  int scale_bytes;  // of a row, that a load takes
  WeightFormat weight;
  int group;         // of int4: elements of k with a scale: 32, 64, 128; 0: all of a row
  bool zero_points;  // of int4
};

struct Mxfp4SkinnyArguments {
  TensorMap x_map;                // without X_FP4: boxes of all rows x 128 bytes
  const unsigned char* w;         // plain, or with PACKED in the layout fragment64
  const unsigned char* scales;    // of rows of the weight
  const unsigned char* x;         // with X_FP4: e2m1 [rows, x_row]
  const unsigned char* x_scales;  // with X_FP4: e8m0 [rows, scale_row]
  const GEMMTUNE_OUTPUT* bias;    // [features]; null: none
  GEMMTUNE_OUTPUT* y;             // [rows, y_row]
  long long x_row;                // bytes
  long long y_row;                // elements
  int rows;                       // of x
  int strips;                     // of 16 rows of w
  int units;                      // of 64 of k
  int scale_row;                  // bytes of a row's scales
  int split_k;                    // blocks of a cluster
  int max_owned;                  // strips that a block of a cluster has to add, at most
  int dependent_launch;  // 1: the kernel may load the weight and its scales before the previous kernel has ended
  int prefetch_units;           // of a warp's first strip, into L2, before griddepcontrol.wait returns
  gpu::FormatArguments format;  // of formats other than mxfp4
};

static_assert(GEMMTUNE_OFFSET(Mxfp4SkinnyArguments, rows) == 192 &&
                  GEMMTUNE_OFFSET(Mxfp4SkinnyArguments, dependent_launch) == 216 &&
                  GEMMTUNE_OFFSET(Mxfp4SkinnyArguments, format) == 224 && sizeof(Mxfp4SkinnyArguments) == 256,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
