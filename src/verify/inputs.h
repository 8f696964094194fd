// Seeded random operands of a problem, as bytes of its types.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "problem/operands.h"
#include "problem/problem.h"
#include "verify/random_fill.h"
#include "verify/routing.h"

namespace gemmtune {

/// Host operands in plain layouts, dense, with the shapes and orders that problem/operands.h gives; what an operation
/// does not have is empty.
struct HostOperands {
  std::vector<std::byte> x;
  std::vector<std::byte> w;
  std::vector<std::byte> bias;
  std::vector<std::byte> x_scale;
  std::vector<std::byte> w_scale;
  std::vector<std::byte> x_global_scale;
  std::vector<std::byte> w_global_scale;
  std::vector<std::byte> w_zero_points;
  std::vector<std::byte> w2;
  std::vector<std::byte> w2_scale;
  std::vector<std::byte> w2_global_scale;
  std::vector<std::byte> w2_zero_points;
  std::vector<std::byte> bias2;
  std::vector<std::int32_t> topk_ids;  // [T, routed_topk()], as Routes has them
  std::vector<float> topk_weights;
};

/// Operands of which some may be given by their random fill alone, because a device can compute it.
struct PlannedInputs {
  HostOperands host;  // the other operands, and what fill_all filled
  RandomFill x;       // of count 0: it is in `host`, or the operation has none
  RandomFill w;
  RandomFill w2;
  RandomFill x_scale;  // of blocks, rows or experts; those of scale_ab are in `host`
  RandomFill w_scale;
  RandomFill w2_scale;
  RandomFill w_zero_points;
  RandomFill w2_zero_points;

  /// Fills the operands that `host` lacks, by up to `threads` threads. `out_of_memory` if they do not fit.
  Status fill_all(int threads);
};

/// Scales of blocks: around the size that gives outputs a realistic range, or of their type's whole range, its ends above all
/// (zero, the smallest subnormal, the largest; each fourth negative if the type has a sign). e8m0 ones then have small x and small biases in front of activations, so
/// that results stay finite: with fp16 operands and outputs, which have no room for that, scales are around that size all
/// the same. e4m3 and 16-bit ones have their largest at that size.
enum class ScaleCodes { usual, whole };

/// Approximately normal values (x: σ = 1, w: σ = 1/√K·8, so that outputs have a realistic range in fp16 too),
/// fresh for each seed and problem, the same on every machine. Quantized elements fill their type's range,
/// their scales are random and bring the products back to that size. Tokens of a mixture go to experts by `routing`, the
/// first call's. `out_of_memory` where they do not fit.
/// With Signs::one no element of x and w is negative; for operands of whole bytes that one scale each belongs to.
/// Another `init` than randn is for operands without scales: its numbers have no σ and fill x and w alone.
Result<PlannedInputs> plan_inputs(const Problem& problem, std::uint64_t seed, Signs signs = Signs::both,
                                  InitType init = InitType::randn, const Routing& routing = {},
                                  ScaleCodes codes = ScaleCodes::usual);
/// The routes of call number `call` with these operands; those of call 0 are in them.
Routes routes_of_call(const Problem& problem, std::uint64_t seed, const Routing& routing, std::int64_t call);
/// The same, filled.
Result<HostOperands> make_inputs(const Problem& problem, std::uint64_t seed, int threads = 1);

}  // namespace gemmtune
