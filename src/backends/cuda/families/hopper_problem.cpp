#include "backends/cuda/families/hopper.h"
#include "backends/gpu/families/element_code.h"

namespace gemmtune::cuda {

Status accepts_alignment(const Problem& problem) {
  if (bytes_of(problem.x_type, problem.k) % 16 != 0)
    return Status::unsupported("alignment: rows of k = {} {} are no multiple of 16 bytes", problem.k,
                               to_string(problem.x_type));
  if (problem.alignment % 16 != 0)
    return Status::unsupported("alignment: operands at multiples of {} bytes, 16 are needed",
                               problem.alignment);
  return {};
}

PackedWeight packed_weight(const Problem& problem, const void* data) {
  const Tile64 tiles = gpu::tiles_of(problem);
  return {data, static_cast<int>(tiles.tiles()), static_cast<int>(tiles.pieces())};
}

Parameter dependent_parameter() {
  return {.key = "pdl",
          .values = {"0", "1"},
          .absent = "0",
          .meaning = "1: launched before the kernel before it has ended"};
}

}  // namespace gemmtune::cuda
