#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_cost.h"

#include "backends/cuda/families/cards.h"

namespace gemmtune::cuda {
namespace {

constexpr gpu::FittedRow<Mxfp4SkinnyCost> mxfp4_skinny_rows[] = {
    // 165 kernels of 19 problems (bench/results/h200/cost_mxfp4_skinny.csv).
    {h200,
     {.clock = {1760},
      .from_memory = {4.81e6},
      .latency = 0.768,
      .unit = 192,
      .unit_group = 34.5,
      .strip = 85.2,
      .scale_load = 55,
      .issued_unit = 14.4,
      .issued_unit_group = 10.7,
      .issued_strip = 146,
      .x_bytes = 416e3,
      .fp4_x_bytes = 48e3,
      .piece = 0.15,
      .launched = 2.09,
      .launched_packed = 1.23,
      .under_way = 36.3e3,
      .exchanged = 0.541}},
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
