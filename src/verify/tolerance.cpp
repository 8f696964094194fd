// Tolerances and their reasons.
//
// y is a float32 sum of K products, rounded once to y's type. Two things may differ from the float64
// reference:
//
// 1. The rounding to y's type: at most `output_epsilon` · |y| (2⁻⁸ for bf16, 2⁻¹¹ for fp16, 2⁻²⁴ for fp32),
// or
//    `output_tiny` near zero. What holds for each element holds for the norm of a row, and so of the whole:
//    ‖error‖ ≤ output_epsilon · ‖ref‖; right kernels show about 0.43 of it.
//
// 2. The accumulation. With u = 2⁻²⁴, any order of K additions, K products and a few steps for bias and
// scales,
//    |error| ≤ (K + 4)·u·Σ|x||w| (Higham, Accuracy and Stability, 3.1; first order in u). That is
//    `element_factor`: no right kernel can pass it, whatever its order. It is a worst case; for rounding to
//    nearest and random data the errors of a chain of K additions add up like a random walk: u·√(K/6)·σ(y),
//    which is 0.64·u·Σ|x||w| whatever K is, as Σ|x||w| = 0.64·√K·σ(y) for normal data; shorter chains
//    (blocks, vectors, pairs) have less. `accumulation` is 25 times that, for rows as short as one element.
//    It is what makes fp32 outputs strict.
//
// A kernel that leaves out one step of k, rounds operands or partial sums to bf16 or fp16, or forgets a bias
// has an error of at least 2⁻¹²·‖ref‖: far outside for fp32 and, but for rounded partial sums, for 16-bit
// outputs. Partial sums rounded to y's type (split-K through a bf16 buffer) have only two or three times the
// error of one rounding. Norms detect that badly, the share of outputs that are not the correctly rounded
// reference detects it well: 0.25 to 0.42 for such kernels. For right ones an output flips to its neighbour
// where the accumulated error e crosses a boundary: with probability E|e| / ulp(y), summed over y near normal
// about 6·e/(ε·σ(y)); with a single chain of K additions that is 0.0005 for bf16 and 0.003 for fp16 at K =
// 4096 and grows with √K. Hence 5 %, and beyond K = 2¹⁶ (fp16) or 2²² (bf16) in proportion to √K, never more
// than 20 %. Tests hold right kernels of many orders against these numbers.
//
// Tensor cores truncate their sums to float32, so that errors add up in one direction, toward zero: on an H200 0.057,
// 0.090 and 0.150 of fp16 outputs flip at K = 16384, 28672 and 53248, with cuBLASLt's kernels and ours; of bf16 an
// eighth of that by its eight times larger steps. There 5 % grow in proportion to K beyond 2¹³ (fp16) or 2¹⁶ (bf16) to
// 25 %; beyond eight times that right kernels and rounded partial sums are not told apart by the share, which is then
// not looked at.
//
// Scaled operands change little: a scale is one more rounding of a product or of a block's sum, (K + 4)
// covers it. int8 sums are exact in int32. Global scales of NVFP4 operands are two roundings more of the whole sum, and
// K is 16 at least.
//
// Weights of 4 bits need no bound of their own, because they lose nothing on the way: e2m1 times an e4m3 scale has 6
// significant bits, an int4 less its zero point 5, both exact in bf16. The scale of an int4 group is one rounding of the
// group's sum. Folded into the weights it is exact in float32 (5 and 8 or 11 bits), but in bf16 a rounding of at most 2⁻⁸
// of each weight, as a checkpoint has that was made bf16. Only kernels of the class tensor_core may do that; the share of
// misrounded outputs finds others that do. Their bounds are those of the next paragraph, of an element once: at most 2⁻⁸ of
// Σ|x||w|. All of a row's sum may come from one group with a large scale, so `count` is the elements of a group. Of a mixture
// both weights may be rounded so: w2's elements are as the hidden ones of the next paragraph, and the roundings of w1 are two more errors
// of a hidden element, of gate and of up, each of the size of its own rounding. Independent of each other, the five are 0.96·2⁻⁸ of a
// row's norm, for which the two roundings of the next paragraph have 2·2⁻⁸: a bound of its own would be wider for nothing.
//
// Zero points give all weights of a group a common part: elements of 0 to 15 less 0 are 1.9 times their deviation in size. If
// a row of x sums up to nothing in each group, gate, up and in turn y lose that part, and the roundings of it stay. Of its norm
// are then 0.43·2⁻⁸ for y, 1.9 times that for w2 and for the hidden layer each, and 1.9² times for gate and for up:
// 2.5·2⁻⁸ together, of which twice is allowed. It takes few groups; rows of 0.5 to 2.9·2⁻⁸ were seen with two groups in k and in n.
//
// fused_moe rounds once more: the operand between its two GEMMs may be bf16, whatever y's type is. That is at
// most 2⁻⁸ of Σ r·|w2|·|h| for an element, and for the norm of a row at most another 2⁻⁸ (right kernels:
// about 0.6 of that in all, as two independent roundings of 0.43 each). But a row of few columns may be near
// zero by cancellation, where the roundings of the hidden layer are not: they add up to 0.43·2⁻⁸·σ(y), and
// Σ r·|w2|·|h| is √count·σ(y) divided by 1.5 to 3 (count = topk·inter_dim addends, whose distribution has long
// tails). `short_row` is four standard deviations of one element, once a row: rows of many columns gain nothing by
// it. Errors of the first GEMM's sums are far below. With 8-bit operands a kernel of the class tensor_core may quantize that
// operand as well, with scales of its own: 2⁻⁴ in place of 2⁻⁸; right fp8 kernels show 0.026 of the norm, right int8 ones 0.018. The share of misrounded outputs says nothing then. A wrong expert, a gate without activation or
// a block of K left out is an error of a few percent at least.
//
// The hidden layer is held in float32, or in bf16, which has its range: each product of the first GEMM and the element
// itself may be flushed below 2⁻¹²⁶, and the other half multiplies what its half lost, by 8 in swiglu. Scales of the
// second GEMM make any size of that. So |h| in Σ r·|w2|·|h| has a floor, `hidden_floor`, of which the smallest factor of
// magnitudes is what may be lost.
//
// AITER's rule (aiter/test_common.py, checkAllclose): 0.05 for bf16 outputs of a16w16, 0.01 for the others;
// of fused_moe the cosine difference. A weight that was made bf16 is an a16w16's: of outputs around 7 (zero points) 7 % are
// outside of 0.01.

#include <algorithm>
#include <cmath>

#include "verify/output_check.h"

namespace gemmtune {
namespace {

struct OutputRule {
  DataType type;
  double aiter_tolerance;
  double epsilon;
  double tiny;        // half of the smallest step; for bf16 and fp32 the smallest normal: flushing is allowed
  double misrounded;  // largest share at small K; 1: not checked
  double misrounded_from_k;  // from here on it grows with √K
  double truncated_from_k;   // … with K, where sums are truncated
};

constexpr OutputRule output_rules[] = {
    {DataType::bf16, 0.05, 0x1p-8, 0x1p-126, 0.05, 0x1p22, 0x1p16},
    {DataType::f16, 0.01, 0x1p-11, 0x1p-25, 0.05, 0x1p16, 0x1p13},
    {DataType::f32, 0.01, 0x1p-24, 0x1p-126, 1, 1, 1},
};

/// Hopper's tensor core aligns the products of an fp8 instruction (32 of k) and the accumulator to the largest
/// of them and cuts below 13 fraction bits. A chain is the elements of k that are accumulated so: all of K in the
/// class tensor_core, 128 where partial sums are promoted to float32.
///
/// Data of both signs: after K / 32 instructions the error is about 2⁻¹³·√(K/32)·σ(y), which is 2⁻¹⁵·Σ|x||w|
/// whatever K is; 1.9·10⁻³ of ‖y‖ was measured at K = 8192. Chains have independent errors, so that of many is
/// smaller by √(number of chains): 1.3·10⁻⁴ of ‖y‖ was measured with promotion from K = 1536 to 16384. Norms are
/// allowed four times that, single elements thirty-two times. Most bf16 outputs then differ from the rounded
/// reference, so that share means nothing.
///
/// Data of one sign: what is cut has one sign too, half a unit of the accumulator's 13 bits for each of 32
/// addends, and the accumulator grows in proportion to k: a chain loses the share 2⁻¹⁶ · its length (measured:
/// 2.5 % at 1536, 12 % at 7168, 25 % at 16384). Twice that is allowed. With promotion the first instruction of a chain
/// loses almost nothing, and 5·10⁻⁴, a quarter of the share, was measured: it is allowed once. So a kernel of the
/// class tensor_core is outside of the bound of fp32 from K = 512 on. An error that all elements share says
/// nothing to AITER's rule, which is left out.
constexpr double fp8_norm = 0x1p-13;
constexpr double fp8_element = 0x1p-10;
constexpr double fp8_one_sign = 0x1p-16;  // of a chain's Σ|x||w|, for each element of the chain
constexpr double promoted_chain = 128;    // elements of k

constexpr double unit = 0x1p-24;              // half a unit in the last place of float32, relative
constexpr double smallest_normal = 0x1p-126;  // of float32
constexpr double accumulation = 16 * unit;
constexpr double bf16_epsilon = 0x1p-8;
constexpr double quantized_epsilon =
    0x1p-4;  // e4m3; int8 of a row whose largest element is eight times its norm
constexpr double aiter_other_operations = 0.01;

/// Largest share of outputs that are not the rounded reference; 1: not looked at.
double max_misrounded(const OutputRule& rule, double k, bool truncated) {
  if (!truncated)
    return std::min(0.2, rule.misrounded * std::max(1.0, std::sqrt(k / rule.misrounded_from_k)));
  const double growth = k / rule.truncated_from_k;
  return growth > 8 ? 1 : std::min(0.25, rule.misrounded * std::max(1.0, growth));
}

/// An operand may be rounded to elements of that epsilon: the hidden layer of a mixture of experts, or a weight. `addends`: of one
/// element of y. `element`: how many times the epsilon one may lose.
void allow_operand_rounding(double addends, double epsilon, double element, Tolerance& tolerance) {
  tolerance.short_row = epsilon * std::min(1.0, 4 / std::sqrt(addends));
  tolerance.element_factor += element * epsilon;
  tolerance.max_frobenius += epsilon;
  tolerance.max_misrounded = 1;
}

void allow_tensor_core_sums(double k, const SumRules& sums, Tolerance& tolerance) {
  const bool promoted = sums.accuracy == Accuracy::fp32;
  const double chain = promoted ? std::min(k, promoted_chain) : k;
  const double one_sign = std::min(1.0, (promoted ? 1 : 2) * fp8_one_sign * chain);
  const double chains = std::sqrt(k / chain);
  tolerance.element_factor += sums.signs == Signs::one ? 2 * one_sign : fp8_element / chains;
  tolerance.accumulation = sums.signs == Signs::one ? one_sign : fp8_norm / chains;
  tolerance.max_misrounded = 1;
}

}  // namespace

Tolerance tolerance_for(const Problem& problem, double max_err_ratio, const SumRules& sums) {
  const auto* rule = std::find_if(std::begin(output_rules), std::end(output_rules),
                                  [&](const OutputRule& r) { return r.type == problem.y_type; });
  if (rule == std::end(output_rules))
    rule = std::end(output_rules) - 1;  // compute_reference refuses such problems
  const bool moe = is_mixture(problem);
  const auto k = static_cast<double>(moe ? problem.k + problem.n : problem.k);
  Tolerance tolerance;
  tolerance.absolute = tolerance.relative =
      traits(problem.operation).aiter_tolerance_by_type ? rule->aiter_tolerance : aiter_other_operations;
  tolerance.max_err_ratio = max_err_ratio;
  tolerance.output_epsilon = rule->epsilon;
  // Instructions may flush each product that is below the normal numbers of float32.
  tolerance.output_tiny = std::max(rule->tiny, (k + 1) * smallest_normal);
  tolerance.element_factor = (k + 4) * unit;
  tolerance.max_frobenius = rule->epsilon;
  tolerance.accumulation = accumulation;
  if (rule->misrounded < 1) tolerance.max_misrounded = max_misrounded(*rule, k, sums.tensor_core_sums);
  if (sums.signs == Signs::one) {
    // Roundings of growing sums need not cancel out: Higham's bound for norms too.
    tolerance.accumulation = tolerance.element_factor;
    tolerance.max_misrounded = 1;
    tolerance.max_err_ratio = 1;
  }
  if (sums.tensor_core_sums && traits(problem.x_type).fp8) allow_tensor_core_sums(k, sums, tolerance);
  if (moe) {
    const bool lower_class = sums.accuracy == Accuracy::tensor_core;
    const auto addends = static_cast<double>(problem.moe.topk * problem.n);
    if (lower_class && bits(problem.x_type) == 8)
      allow_operand_rounding(addends, quantized_epsilon, 2, tolerance);
    else if (lower_class && problem.zero_points)
      allow_operand_rounding(addends, 4 * bf16_epsilon, 0.5, tolerance);
    else
      allow_operand_rounding(addends, bf16_epsilon, 2, tolerance);
  } else if (problem.w_type == DataType::i4 && sums.accuracy == Accuracy::tensor_core) {
    allow_operand_rounding(static_cast<double>(problem.w_group), bf16_epsilon, 1, tolerance);
    tolerance.absolute = tolerance.relative = rule->aiter_tolerance;
  }
  return tolerance;
}

double hidden_floor(const Problem& problem) {
  return 8 * static_cast<double>(problem.k + 2) * smallest_normal / accumulation;
}

}  // namespace gemmtune
