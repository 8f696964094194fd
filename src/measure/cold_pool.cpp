#include "measure/cold_pool.h"

#include <algorithm>
#include <new>

#include "base/rounding.h"

namespace gemmtune {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

PoolShape pool_shape(std::size_t tensor_bytes, std::size_t target_bytes, std::size_t limit_bytes) {
  PoolShape shape;
  shape.tensor_bytes = tensor_bytes;
  // A page more than needed keeps the copies of a weight with a power of two of bytes off the same cache
  // sets.
  shape.stride_bytes = tensor_bytes < page_bytes ? std::max(line_bytes, round_up(tensor_bytes, line_bytes))
                                                 : round_up(tensor_bytes, page_bytes) + page_bytes;
  const std::size_t footprint = std::max(line_bytes, round_up(tensor_bytes, line_bytes));
  shape.wanted_copies = std::max<std::size_t>(1, ceil_div(target_bytes, footprint));
  const std::size_t affordable = std::max<std::size_t>(1, limit_bytes / shape.stride_bytes);
  shape.copies = std::min({shape.wanted_copies, affordable, max_pool_copies});
  return shape;
}

std::size_t pool_target_bytes(Device& device, const Policy& policy, bool cold) {
  if (!cold) return 0;
  return policy.rotating_mb > 0 ? static_cast<std::size_t>(policy.rotating_mb) << 20
                                : 2 * device.last_level_cache_bytes();
}

std::size_t pool_limit_bytes(Device& device, const Policy& policy) {
  return policy.pool_limit_bytes > 0 ? policy.pool_limit_bytes : device.free_memory_bytes() / 4;
}

Result<ColdPool> ColdPool::make(Device& device, const PoolShape& shape, const Fill& fill) {
  ColdPool pool(device, shape);
  GEMMTUNE_RETURN_IF_ERROR(pool.allocate());
  GEMMTUNE_RETURN_IF_ERROR(fill(pool.copy(0)));
  if (shape.copies > 1) {
    try {
      for (std::size_t i = 1; i < shape.copies; ++i)
        GEMMTUNE_RETURN_IF_ERROR(device.copy_within(pool.copy(i), pool.copy(0), shape.tensor_bytes));
    } catch (const std::bad_alloc&) {
      return Status::out_of_memory("no memory to copy a weight of {} bytes", shape.tensor_bytes);
    }
  }
  return pool;
}

void* ColdPool::copy(std::size_t index) const {
  return static_cast<std::byte*>(buffer_->data()) + index * shape_.stride_bytes;
}

Status ColdPool::allocate() {
  GEMMTUNE_TRY(buffer_, device_->allocate(shape_.bytes(), Placement::pool));
  return {};
}

Status ColdPool::write_copies(const std::vector<std::byte>& content, std::size_t first) {
  for (std::size_t i = first; i < shape_.copies; ++i)
    GEMMTUNE_RETURN_IF_ERROR(device_->copy_in(copy(i), content.data(), content.size()));
  return {};
}

Status ColdPool::place_again() {
  try {
    std::vector<std::byte> host(shape_.tensor_bytes);
    GEMMTUNE_RETURN_IF_ERROR(device_->copy_out(host.data(), copy(0), host.size()));
    buffer_.reset();
    GEMMTUNE_RETURN_IF_ERROR(allocate());
    GEMMTUNE_RETURN_IF_ERROR(write_copies(host, 0));
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory to copy a weight of {} bytes", shape_.tensor_bytes);
  }
  return {};
}

}  // namespace gemmtune
