#include "problem/overlap.h"

#include <algorithm>

namespace gemmtune {
namespace {

/// ⌊a / b⌋ and ⌈a / b⌉ of whole numbers, b above 0.
std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
std::int64_t ceiling_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

/// Whether one of the bytes [from, to), counted from the first line, is in one of the lines.
bool touches(std::int64_t from, std::int64_t to, std::int64_t line_bytes, std::int64_t lines,
             std::int64_t pitch) {
  if (lines == 1 || pitch == 0) return from < line_bytes && to > 0;
  // Line i has a byte of it if i · pitch < to and i · pitch + line_bytes > from.
  const std::int64_t first = std::max<std::int64_t>(0, floor_div(from - line_bytes, pitch) + 1);
  const std::int64_t last = std::min<std::int64_t>(lines - 1, ceiling_div(to, pitch) - 1);
  return first <= last;
}

/// Of two groups; b begins `distance` bytes behind a.
bool groups_touch(const MemoryLines& a, const MemoryLines& b, std::int64_t distance) {
  if (a.pitch == b.pitch && a.pitch > 0 && a.lines > 1 && b.lines > 1) {
    // Lines i of a and j of b are distance − t · pitch bytes apart, t = i − j.
    const std::int64_t first = std::max(1 - b.lines, floor_div(distance - a.line_bytes, a.pitch) + 1);
    const std::int64_t last = std::min(a.lines - 1, ceiling_div(distance + b.line_bytes, a.pitch) - 1);
    return first <= last;
  }
  if (b.lines > a.lines) return groups_touch(b, a, -distance);
  for (std::int64_t j = 0; j < b.lines; ++j) {
    const std::int64_t from = distance + j * b.pitch;
    if (touches(from, from + b.line_bytes, a.line_bytes, a.lines, a.pitch)) return true;
  }
  return false;
}

}  // namespace

bool share_a_byte(const MemoryLines& a, const MemoryLines& b) {
  if (a.empty() || b.empty() || a.begin >= b.end() || b.begin >= a.end()) return false;
  const auto distance = static_cast<std::int64_t>(b.begin - a.begin);
  for (std::int64_t i = 0; i < a.groups; ++i)
    for (std::int64_t j = 0; j < b.groups; ++j)
      if (groups_touch(a, b, distance + j * b.group_pitch - i * a.group_pitch)) return true;
  return false;
}

}  // namespace gemmtune
