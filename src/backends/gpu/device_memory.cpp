#include "backends/gpu/device_memory.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "backends/guard_bands.h"

namespace gemmtune::gpu {
namespace {

/// Larger requests would overflow when rounded up.
constexpr std::size_t max_bytes = std::numeric_limits<std::size_t>::max() / 4;

class PlainBuffer : public Buffer {
 public:
  PlainBuffer(Driver& driver, void* block, std::size_t bytes)
      : driver_(driver), block_(static_cast<std::byte*>(block)), bytes_(bytes) {}
  ~PlainBuffer() override {
    driver_.enter();
    driver_.free(block_);
  }
  void* data() const override { return block_; }
  std::size_t bytes() const override { return bytes_; }

 protected:
  Driver& driver_;
  std::byte* block_;
  std::size_t bytes_;
};

class GuardedBuffer final : public PlainBuffer {
 public:
  using PlainBuffer::PlainBuffer;
  void* data() const override { return block_ + guard_bytes; }

  Status write_guards() {
    const std::vector<std::byte> guard = guard_band(guard_bytes);
    driver_.enter();
    GEMMTUNE_RETURN_IF_ERROR(driver_.copy_in(block_, guard.data(), guard_bytes));
    return driver_.copy_in(block_ + guard_bytes + bytes_, guard.data(), guard_bytes);
  }

  Status guards_intact() const override {
    std::vector<std::byte> before(guard_bytes);
    std::vector<std::byte> after(guard_bytes);
    driver_.enter();
    GEMMTUNE_RETURN_IF_ERROR(driver_.copy_out(before.data(), block_, guard_bytes));
    GEMMTUNE_RETURN_IF_ERROR(driver_.copy_out(after.data(), block_ + guard_bytes + bytes_, guard_bytes));
    return check_guard_bands(before, after, bytes_);
  }
};

class PageEndBuffer final : public Buffer {
 public:
  PageEndBuffer(Driver& driver, const Mapping& mapping, std::size_t bytes)
      : driver_(driver), mapping_(mapping), bytes_(bytes) {}
  ~PageEndBuffer() override {
    driver_.enter();
    driver_.unmap(mapping_);
  }
  void* data() const override {
    return static_cast<std::byte*>(mapping_.begin) + (mapping_.mapped_bytes - bytes_);
  }
  std::size_t bytes() const override { return bytes_; }

 private:
  Driver& driver_;
  Mapping mapping_;
  std::size_t bytes_;
};

}  // namespace

Result<std::unique_ptr<Buffer>> allocate_memory(Driver& driver, std::size_t bytes, Placement placement) {
  if (bytes > max_bytes) return Status::out_of_memory("cannot allocate {} bytes of device memory", bytes);
  driver.enter();
  if (placement == Placement::page_end) {
    GEMMTUNE_TRY(const auto mapping, driver.map_page_end(bytes));
    return std::make_unique<PageEndBuffer>(driver, mapping, bytes);
  }
  const bool guarded = placement == Placement::guarded;
  GEMMTUNE_TRY(const auto block,
               driver.allocate(std::max<std::size_t>(bytes + (guarded ? 2 * guard_bytes : 0), 1)));
  if (!guarded) return std::make_unique<PlainBuffer>(driver, block, bytes);
  auto buffer = std::make_unique<GuardedBuffer>(driver, block, bytes);
  GEMMTUNE_RETURN_IF_ERROR(buffer->write_guards());
  return buffer;
}

}  // namespace gemmtune::gpu
