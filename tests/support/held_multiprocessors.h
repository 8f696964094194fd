// A kernel on a stream of its own that keeps multiprocessors of the first CUDA device busy.
#pragma once

#include <chrono>
#include <memory>

#include "base/status.h"

namespace gemmtune {

class HeldMultiprocessors {
 public:
  static Result<std::unique_ptr<HeldMultiprocessors>> make();
  virtual ~HeldMultiprocessors() = default;
  /// Enqueues a kernel that holds one in `every` multiprocessors, whole, for so long.
  virtual Status hold(int every, std::chrono::nanoseconds time) = 0;
};

}  // namespace gemmtune
