// Memory between two unreadable pages, filled with a poison byte.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace gemmtune {

enum class Fence { before, after };  // which unreadable page the memory touches

class FencedMemory {
 public:
  static constexpr unsigned char poison = 0xff;  // NaN in every floating-point type

  FencedMemory(std::size_t bytes, Fence fence) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    inner_bytes_ = (bytes + page - 1) / page * page;
    mapped_bytes_ = inner_bytes_ + 2 * page;
    void* map = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) std::abort();
    map_ = static_cast<unsigned char*>(map);
    inner_ = map_ + page;
    if (inner_bytes_ != 0 && mprotect(inner_, inner_bytes_, PROT_READ | PROT_WRITE) != 0) std::abort();
    if (inner_bytes_ != 0) std::memset(inner_, poison, inner_bytes_);
    data_ = fence == Fence::before ? inner_ : inner_ + (inner_bytes_ - bytes);
  }
  FencedMemory(const FencedMemory&) = delete;
  FencedMemory& operator=(const FencedMemory&) = delete;
  ~FencedMemory() { munmap(map_, mapped_bytes_); }

  unsigned char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  /// Whether the readable bytes around the memory still hold poison.
  bool surroundings_intact() const {
    for (const unsigned char* at = inner_; at < inner_ + inner_bytes_; ++at)
      if ((at < data_ || at >= data_ + bytes_) && *at != poison) return false;
    return true;
  }

 private:
  std::size_t bytes_;
  std::size_t inner_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  unsigned char* map_ = nullptr;
  unsigned char* inner_ = nullptr;
  unsigned char* data_ = nullptr;
};

}  // namespace gemmtune
