// One owner among processes for each of many things that share a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace gemmtune {

/// A lock of one byte of a file, there or not. The kernel gives it back when its owner ends, however that happens, and shows it
/// to processes that cannot see the owner (in another container); the file stays empty. Move-only, released by the
/// destructor.
class ByteLock {
 public:
  /// Nothing where another process, or another lock of this one, has it. An error where the file cannot be made or
  /// locked. `place`: below 2^63.
  static Result<std::optional<ByteLock>> take(const std::string& path, std::uint64_t place);
  /// Somebody has it; false where that cannot be known.
  static bool is_held(const std::string& path, std::uint64_t place);
  ByteLock(ByteLock&& other) noexcept;
  ByteLock& operator=(ByteLock&& other) noexcept;
  ByteLock(const ByteLock&) = delete;
  ByteLock& operator=(const ByteLock&) = delete;
  ~ByteLock();

 private:
  ByteLock(int descriptor, std::uint64_t place) : descriptor_(descriptor), place_(place) {}
  int descriptor_ = -1;
  std::uint64_t place_ = 0;
};

}  // namespace gemmtune
