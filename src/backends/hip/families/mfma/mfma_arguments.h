// What the mfma kernel is compiled for, and its arguments, which its split-K reduction has too. The host includes this file too.
#pragma once

#include "backends/gpu/families/element_arguments.h"
#include "backends/gpu/families/scales_arguments.h"
#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::hip {

struct MfmaConfig {
  int block_m;  // rows of x in a tile
  int block_n;  // rows of the weight in a tile
  int block_k;  // bytes of k in a tile: 64, 128, 256
  int waves_m;  // of a block, along m
  int waves_n;
  int rows;        // of the instruction: 16, 32
  int kpack;       // instructions that a lane's read of shared memory feeds: 1, 2
  int buffers;     // tiles in shared memory: 1, 2
  bool direct;     // global loads go to shared memory without registers
  int pad;         // bytes after a row in shared memory; 0: rows are swizzled
  bool shuffled;   // the weight has the layout aiter16x16 and goes to registers
  bool x_columns;  // the operand is column-major, neither direct nor decoded
  bool w_columns;
  bool split_k;      // blocks divide k and write partial sums
  int waves_per_eu;  // 0: the compiler decides
  bool
      decoded;  // an fp4 weight, and x unless it is bf16, are multiplied as bf16; bytes of k are then of bf16
  bool scaled;  // fp4 operands as they are, with scaled instructions
};

struct MfmaArguments {
  const unsigned char* x;
  const unsigned char* w;
  const GEMMTUNE_OUTPUT* bias;  // [n], of y's type; null: none
  gpu::ScalesArguments scales;
  GEMMTUNE_OUTPUT* y;      // [m, ldy]
  void* partials;          // [batches][split_k][m][n], the workspace: float32, of int8 operands int32
  long long x_line_bytes;  // between rows of x, or columns of a column-major x
  long long w_line_bytes;
  long long k_bytes;  // of a row's elements
  long long ldy;
  // Of x and w bytes, of y elements. A batch is a block along z.
  long long x_batch_step, w_batch_step, y_batch_step;
  int m, n;
  int split_k;
  int tiles_m, tiles_n;
  int group_m;  // tiles along m in a rasterization group
  int xcds;     // dies that blocks are dealt to in turn; 1: no reordering
};

static_assert(GEMMTUNE_OFFSET(MfmaArguments, y) == 56 && GEMMTUNE_OFFSET(MfmaArguments, ldy) == 96 &&
                  GEMMTUNE_OFFSET(MfmaArguments, split_k) == 136 &&
                  GEMMTUNE_OFFSET(MfmaArguments, xcds) == 152 && sizeof(MfmaArguments) == 160,
              "host and device layouts differ");

}  // namespace gemmtune::hip
