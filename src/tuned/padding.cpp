#include <array>
#include <bit>

#include "base/rounding.h"
#include "tuned/table.h"

namespace gemmtune {

std::string_view to_string(Match match) {
  static constexpr std::array<std::string_view, match_count> names{
      "exact", "range", "fine", "coarse", "untuned", "bucket", "fewer_threads"};
  return names[static_cast<std::size_t>(match)];
}

std::int64_t fine_step(std::int64_t m) { return m <= 256 ? 16 : m <= 1024 ? 32 : m <= 4096 ? 64 : 128; }

std::int64_t padded_m(std::int64_t m, std::int64_t n, int level) {
  if (level == 0) return round_up(m, fine_step(m));
  if (m > 8192 && n > 4096) return 8192;
  return m < 1 ? 1 : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)));
}

}  // namespace gemmtune
