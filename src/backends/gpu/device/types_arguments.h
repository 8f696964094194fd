// What device sources know of a kernel's operands when they are compiled. The host includes this file too.
#pragma once

namespace gemmtune::gpu {

/// Types of elements: DataType without those that no kernel has. e2m1 and int4 elements lie two in a byte, the even one in
/// the low half.
enum class Element { f32, f16, bf16, e4m3, int8, e2m1, e4m3fnuz, int4 };

/// What has a scale of its own: a matrix; a row of x and of w; 1 x 128 of x and 128 x 128 of w; 1 x 32 of both (e8m0); 1 x 16
/// (e4m3, and a float for the matrix); 1 x OperandTypes::w_group of w (y's type).
enum class Scales { none, matrix, rows, blocks, mx, nv, groups };

struct OperandTypes {
  Element element;  // of x
  Element output;   // of y and of the bias
  Scales scales;    // of x
  bool e8m0;        // scales of blocks are powers of two, 2^(byte - 127), a byte each
  Element weight;   // of w
  Scales w_scales;
  int w_group;       // of scales of groups; 0: whole rows
  bool zero_points;  // an int8 beside each scale of w
  bool batched;      // x, w and y are batches of matrices
};

}  // namespace gemmtune::gpu
