#include "backends/cuda/families/mxfp4/mxfp4_cost.h"

#include "backends/cuda/families/cards.h"

namespace gemmtune::cuda {
namespace {

// Instructions of a warp: the few rows among 350 kernels of ten (M, N, K), fast ones weighted more. Of a warp group: 171 kernels of M = 64 to 4096, of
// an H200 and an H100 (docs/lab/mxfp4.md), of int4 400 more of M = 64 to 4096 on H200s. Of NVFP4 888 kernels of M = 16 to 4096 on one H200.
constexpr Mxfp4Cost mxfp4_constants{.clock = {1600},
                                    .from_memory = {3.34e6},
                                    .plain = 1.88,
                                    .nvfp4 = 1.1,
                                    .nvfp4_waits = 2.35,
                                    .int4 = 0.919,
                                    .rescaled_int4 = 1.1,
                                    .scaled_int4 = 0.943,
                                    .warp_loop = 9,
                                    .decoded_together = 22.7,
                                    .row_together = 0.134,
                                    .two_stages = 0.141,
                                    .launched = 0.92,
                                    .stored = 0.905,
                                    .sent = 0.372,
                                    .streamed = 4,
                                    .of_warps = {.decoded = 125,
                                                 .row = 5,
                                                 .decoded_by_units = 46.4,
                                                 .stage = 100,
                                                 .from_l2 = {8.9e6},
                                                 .uncovered = 0.7,
                                                 .stored = 5.89,
                                                 .wave = 0.5,
                                                 .exchanged = 1.5},
                                    .of_warpgroups = {.decoded = 26.8,
                                                      .row = 0.549,
                                                      .decoded_by_units = 41.8,
                                                      .stage = 221,
                                                      .from_l2 = {9.82e6},
                                                      .uncovered = 0.178,
                                                      .stored = 2.62,
                                                      .wave = 3.1,
                                                      .exchanged = 4.15},
                                    .of_nvfp4 = {.decoded = 24.4,
                                                 .row = 0.371,
                                                 .decoded_by_units = 40.1,
                                                 .stage = 297,
                                                 .from_l2 = {1.03e7},
                                                 .uncovered = 0.204,
                                                 .stored = 4.02,
                                                 .wave = 3.1,
                                                 .exchanged = 1.66}};
constexpr gpu::FittedRow<Mxfp4Cost> mxfp4_rows[] = {{h200, mxfp4_constants}, {h100, mxfp4_constants}};

}  // namespace

Mxfp4Cost mxfp4_cost(const gpu::Limits& device) { return gpu::constants_for(device, mxfp4_rows); }

}  // namespace gemmtune::cuda
