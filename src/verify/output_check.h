// Checks one output: AITER's rule and ours (docs/correctness.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "problem/accuracy.h"
#include "problem/problem.h"
#include "verify/random_fill.h"
#include "verify/reference.h"

namespace gemmtune {

/// Tolerances of a problem: one row a rule in tolerance.cpp, with its reasoning.
struct Tolerance {
  // AITER's rule: share of elements with |out − ref| > absolute + relative · |out|.
  double absolute = 0.01;
  double relative = 0.01;
  double max_err_ratio = 0.05;  // --errRatio
  // Our rules. Bounds are sums of a part for rounding to y's type and a part for float32 accumulation.
  double output_epsilon = 0;  // half a unit in the last place of y's type, relative
  double output_tiny = 0;     // and absolute, where y's type has no smaller steps
  double element_factor = 0;  // one element: … + element_factor · Σ|x||w|
  double max_frobenius = 0;   // each row, and so all: ‖out − ref‖ ≤ max_frobenius · ‖ref‖
  double accumulation = 0;    //                                + accumulation · ‖Σ|x||w|‖
  double short_row = 0;  //                                + short_row · root mean square of the row's Σ|x||w|
  double max_misrounded = 1;  // share of elements that differ from the rounded reference (16-bit outputs)
};

/// What a kernel may do with its sums, and on what it is verified.
struct SumRules {
  Accuracy accuracy = Accuracy::fp32;
  bool tensor_core_sums = false;  // DeviceTraits::tensor_core_sums
  Signs signs = Signs::both;
};

Tolerance tolerance_for(const Problem& problem, double max_err_ratio, const SumRules& sums = {});

/// Of a mixture: what references add to each |h| of the hidden layer in the magnitudes (tolerance.cpp).
double hidden_floor(const Problem& problem);

struct CheckReport {
  bool right = false;
  std::string reason;    // why it is wrong: a fixed phrase, then numbers; empty where right
  double err_ratio = 1;  // AITER's column: four decimals, 1 where an element is NaN or infinite; of fused_moe
                         // the cosine difference
  double frobenius = 0;  // ‖out − ref‖ / ‖ref‖ of the elements that the reference has
  double max_error = 0;  // the largest |out − ref|, over the root mean square of the reference
  double misrounded = 0;
  std::int64_t worst_row =
      -1;  // of the element with the largest error for its bound, or the first without a number
  std::int64_t worst_column = -1;
};

/// The fixed phrases with which CheckReport::reason begins, in the order in which they are checked.
namespace check_phrase {
inline constexpr const char* unwritten = "elements were not written";  // they still hold the poison
inline constexpr const char* not_finite = "NaN or infinity where the reference has none";
inline constexpr const char* element = "an element is outside of its error bound";
inline constexpr const char* row = "a row is outside of its error bound";
inline constexpr const char* product = "the random-vector check failed";
inline constexpr const char* misrounded = "too many elements are not the rounded reference";
inline constexpr const char* err_ratio = "err_ratio is above the limit";
}  // namespace check_phrase

/// What outputs are filled with before a run: every byte of it. As an element of any type it is a NaN.
inline constexpr int poison_byte = 0xff;

/// `output` is y as [M, ldy] elements of y's type, of which the first N of each row count. NaN or infinity
/// where the reference has none is wrong whatever the ratios say; this is checked in all of y, also where
/// the reference is sampled. Of batched operations `output` is [B, M, ldy]. Requires a reference of this
/// problem and (B·M − 1)·ldy + N elements (model_dim of fused_moe in place of N).
CheckReport check_output(const Problem& problem, const Reference& reference,
                         std::span<const std::byte> output, std::int64_t ldy, const Tolerance& tolerance);

}  // namespace gemmtune
