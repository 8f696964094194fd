#include "backends/cpu/machine/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu/machine/system_limits.h"
#include "backends/guard_bands.h"
#include "base/rounding.h"

namespace gemmtune::cpu {
namespace {

#if defined(MADV_COLLAPSE)
constexpr int collapse_pages = MADV_COLLAPSE;
#else
constexpr int collapse_pages = 25;  // Linux 6.1; a system before refuses it
#endif
constexpr std::size_t check_free_above = std::size_t{16} << 20;
/// Larger requests would overflow when rounded up to pages.
constexpr std::size_t max_bytes = std::numeric_limits<std::size_t>::max() / 4;

Status refused(std::size_t bytes) {
  return Status::out_of_memory("cannot allocate {} bytes of host memory", bytes);
}

std::byte* heap(std::size_t bytes) {
  return static_cast<std::byte*>(
      std::aligned_alloc(buffer_alignment, round_up(std::max<std::size_t>(bytes, 1), buffer_alignment)));
}

class PlainBuffer final : public Buffer {
 public:
  PlainBuffer(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~PlainBuffer() override { std::free(data_); }
  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

class GuardedBuffer final : public Buffer {
 public:
  GuardedBuffer(std::byte* block, std::size_t bytes) : block_(block), bytes_(bytes) {
    const std::vector<std::byte> band = guard_band(guard_bytes);
    std::copy(band.begin(), band.end(), block_);
    std::copy(band.begin(), band.end(), block_ + guard_bytes + bytes_);
  }
  ~GuardedBuffer() override { std::free(block_); }
  void* data() const override { return block_ + guard_bytes; }
  std::size_t bytes() const override { return bytes_; }

  Status guards_intact() const override {
    return check_guard_bands({block_, guard_bytes}, {block_ + guard_bytes + bytes_, guard_bytes}, bytes_);
  }

 private:
  std::byte* block_;
  std::size_t bytes_;
};

/// A mapping of which `data` begins somewhere inside.
class MappedBuffer final : public Buffer {
 public:
  MappedBuffer(void* mapping, std::size_t mapped_bytes, std::byte* data, std::size_t bytes)
      : mapping_(mapping), mapped_bytes_(mapped_bytes), data_(data), bytes_(bytes) {}
  ~MappedBuffer() override { ::munmap(mapping_, mapped_bytes_); }
  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }

 private:
  void* mapping_;
  std::size_t mapped_bytes_;
  std::byte* data_;
  std::size_t bytes_;
};

std::byte* map(std::size_t bytes) {
  void* mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapping);
}

Result<std::unique_ptr<Buffer>> allocate_page_end(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t usable = round_up(std::max<std::size_t>(bytes, 1), page);
  std::byte* mapping = map(usable + page);
  if (mapping == nullptr) return refused(bytes);
  auto buffer = std::make_unique<MappedBuffer>(mapping, usable + page, mapping + (usable - bytes), bytes);
  if (::mprotect(mapping + usable, page, PROT_NONE) != 0) {
    return Status::io("cannot protect the page behind a buffer of {} bytes", bytes);
  }
  return buffer;
}

Result<std::unique_ptr<Buffer>> allocate_pool(std::size_t bytes) {
  const std::size_t usable = round_up(std::max<std::size_t>(bytes, 1), huge_page_bytes);
  std::byte* mapping = map(usable + huge_page_bytes);
  if (mapping == nullptr) return refused(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  std::byte* data = mapping + (round_up(address, huge_page_bytes) - address);
  prefer_huge_pages(data, usable);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t i = 0; i < bytes; i += page) *const_cast<volatile std::byte*>(data + i) = std::byte{0};
  return std::make_unique<MappedBuffer>(mapping, usable + huge_page_bytes, data, bytes);
}

}  // namespace

void prefer_huge_pages(void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = round_up(address, huge_page_bytes);
  const std::uintptr_t end = (address + bytes) / huge_page_bytes * huge_page_bytes;
  if (begin >= end) return;
  auto* const pages = static_cast<std::byte*>(data) + (begin - address);
  // Refused where the kernel has no huge pages; small ones serve too.
  if (::madvise(pages, end - begin, MADV_HUGEPAGE) == 0) (void)::madvise(pages, end - begin, collapse_pages);
}

Result<std::unique_ptr<Buffer>> allocate_memory(std::size_t bytes, Placement placement) {
  if (bytes > max_bytes) return refused(bytes);
  if (bytes > check_free_above) {
    const std::size_t free = free_memory_bytes();
    if (bytes > free) {
      return Status::out_of_memory("cannot allocate {} bytes of host memory: {} are free", bytes, free);
    }
  }
  if (placement == Placement::page_end) return allocate_page_end(bytes);
  if (placement == Placement::pool) return allocate_pool(bytes);
  const bool guarded = placement == Placement::guarded;
  std::byte* block = heap(guarded ? bytes + 2 * guard_bytes : bytes);
  if (block == nullptr) return refused(bytes);
  if (guarded) return std::make_unique<GuardedBuffer>(block, bytes);
  return std::make_unique<PlainBuffer>(block, bytes);
}

}  // namespace gemmtune::cpu
