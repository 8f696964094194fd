// A tensor map as host and device see it: the CUtensorMap that a kernel takes by value. The host includes this file too.
#pragma once

namespace gemmtune::cuda {

struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};

static_assert(sizeof(TensorMap) == 128 && alignof(TensorMap) == 128,
              "CUtensorMap: 128 bytes; kernel parameters keep the alignment");

}  // namespace gemmtune::cuda
