#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_cost.h"

#include "backends/cuda/families/cards.h"

namespace gemmtune::cuda {
namespace {

constexpr gpu::FittedRow<Mxfp4SkinnyCost> mxfp4_skinny_rows[] = {
    // 246 kernels of 32 problems (bench/results/h200/cost_mxfp4_skinny.csv); `exchanged` of 326 of NVFP4 too.
    {h200,
     {.clock = {1690},
      .from_memory = {4.29e6},
      .latency = 0.706,
      .unit = 171,
      .unit_group = 26.2,
      .strip = 85.2,
      .scale_load = 96.2,
      .issued_unit = 13.3,
      .issued_unit_group = 10.3,
      .issued_strip = 122,
      .x_bytes = 280e3,
      .fp4_x_bytes = 48e3,
      .piece = 0.196,
      .launched = 2.09,
      .launched_packed = 1.32,
      .under_way = 36.3e3,
      .exchanged = 0.35}},
    // 66 kernels of 15 (M, N, K) (docs/lab/mxfp4_skinny.md).
    {h100,
     {.clock = {1755},
      .from_memory = {3.47e6},
      .latency = 0.74,
      .unit = 169,
      .unit_group = 69,
      .strip = 170,
      .scale_load = 40,
      .issued_unit = 17.9,
      .issued_unit_group = 9.35,
      .issued_strip = 87,
      .x_bytes = 208e3,
      .fp4_x_bytes = 48e3,
      .piece = 0.15,
      .launched = 2.25,
      .launched_packed = 1.85,
      .under_way = 50e3,
      .exchanged = 0.59}}};

}  // namespace

Mxfp4SkinnyCost mxfp4_skinny_cost(const gpu::Limits& device) {
  return gpu::constants_for(device, mxfp4_skinny_rows);
}

}  // namespace gemmtune::cuda
