// The weights that a timed loop rotates over, so that each call finds its weight in memory and not in a
// cache, as every layer of a model does.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "measure/policy.h"

namespace gemmtune {

/// What a cache fetches at a time. Tensors that are timed begin on lines of their own.
inline constexpr std::size_t line_bytes = 64;

/// Number of copies of a tensor and their layout in memory.
struct PoolShape {
  std::size_t tensor_bytes = 0;
  std::size_t stride_bytes = 0;
  std::size_t copies = 1;
  std::size_t wanted_copies = 1;  // without the limits on memory and number

  std::size_t bytes() const { return stride_bytes * copies; }
};

/// Enough copies that together they are `target_bytes`, within `limit_bytes`, at least one and at most
/// max_pool_copies. Copies begin on lines of their own (64 bytes), larger ones on pages.
PoolShape pool_shape(std::size_t tensor_bytes, std::size_t target_bytes, std::size_t limit_bytes);
inline constexpr std::size_t max_pool_copies = 16384;

/// For tensors that should be cold the policy's size, else twice the device's last-level cache; for others 0
/// (one copy).
std::size_t pool_target_bytes(Device& device, const Policy& policy, bool cold);
/// The policy's limit, else a quarter of what is free now.
std::size_t pool_limit_bytes(Device& device, const Policy& policy);

/// Copies of one tensor in device memory. Not for several threads at once. The device must outlive it.
class ColdPool {
 public:
  using Fill = std::function<Status(void* first_copy)>;

  /// `fill` writes the first copy; the others are copied from it. `out_of_memory` where not even one fits.
  static Result<ColdPool> make(Device& device, const PoolShape& shape, const Fill& fill);

  std::size_t copies() const { return shape_.copies; }
  const PoolShape& shape() const { return shape_; }
  void* copy(std::size_t index) const;
  /// Frees the memory and allocates it anew, with the same content: physical placement is random, and one
  /// placement must not decide for a layout. Earlier pointers are dangling. On an error the pool is empty and
  /// must not be used.
  Status place_again();

 private:
  ColdPool(Device& device, const PoolShape& shape) : device_(&device), shape_(shape) {}
  Status allocate();
  Status write_copies(const std::vector<std::byte>& content, std::size_t first);

  Device* device_;
  PoolShape shape_;
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace gemmtune
