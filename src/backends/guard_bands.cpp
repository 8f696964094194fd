#include "backends/guard_bands.h"

#include <algorithm>

namespace gemmtune {
namespace {

std::byte canary(std::size_t place) { return static_cast<std::byte>(0x11 + (place * 53) % 0xd3); }

Status check_band(std::span<const std::byte> band, bool is_before, std::size_t buffer_bytes) {
  std::size_t count = 0;
  std::size_t nearest = band.size();
  for (std::size_t i = 0; i < band.size(); ++i) {
    if (band[i] == canary(i)) continue;
    ++count;
    nearest = std::min(nearest, is_before ? band.size() - i : i + 1);
  }
  if (count == 0) return {};
  return Status::invalid(
      "{} byte(s) were overwritten {} of a buffer of {} bytes, the nearest at a distance of {}", count,
      is_before ? "before the beginning" : "after the end", buffer_bytes, nearest);
}

}  // namespace

std::vector<std::byte> guard_band(std::size_t bytes) {
  std::vector<std::byte> band(bytes);
  for (std::size_t i = 0; i < bytes; ++i) band[i] = canary(i);
  return band;
}

Status check_guard_bands(std::span<const std::byte> before, std::span<const std::byte> after,
                         std::size_t buffer_bytes) {
  GEMMTUNE_RETURN_IF_ERROR(check_band(before, true, buffer_bytes));
  return check_band(after, false, buffer_bytes);
}

}  // namespace gemmtune
