// Whether two matrices in memory have a byte in common.
#pragma once

#include <cstdint>

namespace gemmtune {

/// `lines` of `line_bytes` bytes each, `pitch` bytes from one to the next, in groups `group_pitch` bytes apart: the rows of a
/// matrix, the matrices of a batch. Nothing is negative.
struct MemoryLines {
  std::uintptr_t begin = 0;
  std::int64_t line_bytes = 0;
  std::int64_t lines = 1;
  std::int64_t pitch = 0;
  std::int64_t groups = 1;
  std::int64_t group_pitch = 0;

  bool empty() const { return line_bytes == 0 || lines == 0 || groups == 0; }
  /// Behind the last byte. Requires that it is not empty.
  std::uintptr_t end() const {
    return begin + static_cast<std::uintptr_t>((groups - 1) * group_pitch + (lines - 1) * pitch + line_bytes);
  }
};

/// Exact: lines of one may lie between lines of the other, as columns of one matrix do.
bool share_a_byte(const MemoryLines& a, const MemoryLines& b);

}  // namespace gemmtune
