// Who tunes a problem online: one process of all that share an online file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace gemmtune {

/// A lock of one byte of `<online file>.claims`, at a place that follows from the problem. The kernel gives
/// it back when its owner ends, however that happens; the file stays empty. Move-only, released by the
/// destructor.
class OnlineClaim {
 public:
  /// Nothing where another process, or another claim of this one, has it. An error where the file cannot be
  /// made or locked.
  static Result<std::optional<OnlineClaim>> take(const std::string& path, std::uint64_t problem_hash);
  OnlineClaim(OnlineClaim&& other) noexcept;
  OnlineClaim& operator=(OnlineClaim&& other) noexcept;
  OnlineClaim(const OnlineClaim&) = delete;
  OnlineClaim& operator=(const OnlineClaim&) = delete;
  ~OnlineClaim();

 private:
  explicit OnlineClaim(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace gemmtune
