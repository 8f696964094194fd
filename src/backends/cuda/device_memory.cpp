#include "backends/cuda/device_memory.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

/// Larger requests would overflow when rounded up.
constexpr std::size_t most_bytes = std::numeric_limits<std::size_t>::max() / 4;

void* pointer(api::DevicePointer address) { return reinterpret_cast<void*>(address); }

class PlainBuffer : public Buffer {
 public:
  PlainBuffer(CudaRuntime& runtime, api::DevicePointer block, std::size_t bytes)
      : runtime_(runtime), block_(block), bytes_(bytes) {}
  ~PlainBuffer() override {
    runtime_.enter();
    runtime_.driver().release(block_);
  }
  void* data() const override { return pointer(block_); }
  std::size_t bytes() const override { return bytes_; }

 protected:
  CudaRuntime& runtime_;
  api::DevicePointer block_;
  std::size_t bytes_;
};

/// No two neighbours are equal and none is 0x00 or 0xff, so that neither a fill nor a shifted copy passes for
/// it.
std::byte canary(std::size_t place) { return static_cast<std::byte>(0x11 + (place * 53) % 0xd3); }

class GuardedBuffer final : public PlainBuffer {
 public:
  using PlainBuffer::PlainBuffer;
  void* data() const override { return pointer(block_ + guard_bytes); }

  Status write_guards() {
    std::vector<std::byte> guard(guard_bytes);
    for (std::size_t i = 0; i < guard_bytes; ++i) guard[i] = canary(i);
    runtime_.enter();
    const api::Driver& f = runtime_.driver();
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(f.copy_to_device(block_, guard.data(), guard_bytes), "guard bands"));
    return driver_status(f.copy_to_device(block_ + guard_bytes + bytes_, guard.data(), guard_bytes),
                         "guard bands");
  }

  Status guards_intact() const override {
    GEMMTUNE_RETURN_IF_ERROR(check(block_, true));
    return check(block_ + guard_bytes + bytes_, false);
  }

 private:
  Status check(api::DevicePointer guard, bool before) const {
    std::vector<std::byte> seen(guard_bytes);
    runtime_.enter();
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(runtime_.driver().copy_to_host(seen.data(), guard, guard_bytes), "guard bands"));
    std::size_t count = 0;
    std::size_t nearest = guard_bytes;
    for (std::size_t i = 0; i < guard_bytes; ++i) {
      if (seen[i] == canary(i)) continue;
      ++count;
      nearest = std::min(nearest, before ? guard_bytes - i : i + 1);
    }
    if (count == 0) return {};
    return Status::invalid(
        "{} byte(s) were overwritten {} of a buffer of {} bytes, the nearest at a distance of {}", count,
        before ? "before the beginning" : "after the end", bytes_, nearest);
  }
};

/// Mapped memory followed by addresses that are reserved and not mapped.
class EdgeBuffer final : public Buffer {
 public:
  EdgeBuffer(CudaRuntime& runtime, std::size_t bytes) : runtime_(runtime), bytes_(bytes) {}
  ~EdgeBuffer() override {
    runtime_.enter();
    const api::Driver& f = runtime_.driver();
    if (mapped_) f.memory_unmap(address_, usable_);
    if (handle_ != 0) f.memory_release(handle_);
    if (address_ != 0) f.address_free(address_, reserved_);
  }
  void* data() const override { return pointer(address_ + usable_ - bytes_); }
  std::size_t bytes() const override { return bytes_; }

  Status make() {
    runtime_.enter();
    const api::Driver& f = runtime_.driver();
    api::MemoryProperties properties{};
    properties.type = api::allocation_pinned;
    properties.location = {api::location_device, runtime_.ordinal()};
    std::size_t page = 0;
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(f.memory_granularity(&page, &properties, 0), "cuMemGetAllocationGranularity"));
    usable_ = round_up(std::max<std::size_t>(bytes_, 1), page);
    reserved_ = usable_ + page;
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(f.address_reserve(&address_, reserved_, 0, 0, 0), "cuMemAddressReserve"));
    GEMMTUNE_RETURN_IF_ERROR(driver_status(f.memory_create(&handle_, usable_, &properties, 0),
                                           fmt::format("cuMemCreate of {} bytes", usable_)));
    GEMMTUNE_RETURN_IF_ERROR(driver_status(f.memory_map(address_, usable_, 0, handle_, 0), "cuMemMap"));
    mapped_ = true;
    const api::MemoryAccess access{properties.location, api::access_read_write};
    return driver_status(f.memory_access(address_, usable_, &access, 1), "cuMemSetAccess");
  }

 private:
  CudaRuntime& runtime_;
  std::size_t bytes_;
  std::size_t usable_ = 0;
  std::size_t reserved_ = 0;
  api::DevicePointer address_ = 0;
  api::MemoryHandle handle_ = 0;
  bool mapped_ = false;
};

}  // namespace

Result<std::unique_ptr<Buffer>> allocate_memory(CudaRuntime& runtime, std::size_t bytes,
                                                Placement placement) {
  if (bytes > most_bytes) return Status::out_of_memory("cannot allocate {} bytes of device memory", bytes);
  if (placement == Placement::page_end) {
    auto edge = std::make_unique<EdgeBuffer>(runtime, bytes);
    GEMMTUNE_RETURN_IF_ERROR(edge->make());
    return std::unique_ptr<Buffer>(std::move(edge));
  }
  const bool guarded = placement == Placement::guarded;
  const std::size_t wanted = std::max<std::size_t>(bytes + (guarded ? 2 * guard_bytes : 0), 1);
  runtime.enter();
  api::DevicePointer block = 0;
  GEMMTUNE_RETURN_IF_ERROR(driver_status(runtime.driver().allocate(&block, wanted),
                                         fmt::format("cuMemAlloc of {} bytes", wanted)));
  if (!guarded) return std::unique_ptr<Buffer>(std::make_unique<PlainBuffer>(runtime, block, bytes));
  auto buffer = std::make_unique<GuardedBuffer>(runtime, block, bytes);
  GEMMTUNE_RETURN_IF_ERROR(buffer->write_guards());
  return std::unique_ptr<Buffer>(std::move(buffer));
}

}  // namespace gemmtune::cuda
