#include "backends/cuda/families/mxfp4/mxfp4_cost.h"

#include "backends/cuda/families/cards.h"

namespace gemmtune::cuda {
namespace {

// Instructions of a warp: the few rows among 350 kernels of ten (M, N, K), fast ones weighted more. Of a warp group: 171 kernels of M = 64 to 4096, of
// an H200 and an H100 (docs/lab/mxfp4.md).
constexpr Mxfp4Cost mxfp4_constants{.clock = {1700},
                                    .from_memory = {2.83e6},
                                    .plain = 1.6,
                                    .int4 = 0.5,
                                    .rescaled_int4 = 0.8,
                                    .scaled_int4 = 0.75,
                                    .warp_loop = 9,
                                    .decoded_together = 43,
                                    .row_together = 0.33,
                                    .two_stages = 0.08,
                                    .launched = 2.3,
                                    .stored = 1.2,
                                    .sent = 0.3,
                                    .of_warps = {.decoded = 71,
                                                 .row = 5,
                                                 .decoded_by_units = 89,
                                                 .stage = 250,
                                                 .from_l2 = {8.9e6},
                                                 .uncovered = 0.28,
                                                 .stored = 4.8,
                                                 .wave = 0.5,
                                                 .exchanged = 1.5},
                                    .of_warpgroups = {.decoded = 47,
                                                      .row = 0.53,
                                                      .decoded_by_units = 51,
                                                      .stage = 325,
                                                      .from_l2 = {8.2e6},
                                                      .uncovered = 0.24,
                                                      .stored = 1.6,
                                                      .wave = 3.1,
                                                      .exchanged = 1.9}};
constexpr gpu::FittedRow<Mxfp4Cost> mxfp4_rows[] = {{h200, mxfp4_constants}, {h100, mxfp4_constants}};

}  // namespace

Mxfp4Cost mxfp4_cost(const gpu::Limits& device) { return gpu::constants_for(device, mxfp4_rows); }

}  // namespace gemmtune::cuda
