// What an H100 or H200 offers a block, for tests of launches that run without a GPU.
#pragma once

#include "backends/gpu/driver.h"

namespace gemmtune::test {

inline gpu::Limits hopper_limits() {
  gpu::Limits limits;
  limits.multiprocessors = 132;
  limits.shared_bytes_per_block = 227 * 1024;
  limits.shared_bytes_per_multiprocessor = 228 * 1024;
  return limits;
}

}  // namespace gemmtune::test
