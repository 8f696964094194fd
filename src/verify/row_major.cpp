#include "verify/row_major.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace gemmtune {
namespace {

constexpr std::int64_t block = 32;  // elements along both sides: lines of both matrices stay in L1

/// from [lines, width] to [width, lines], elements of `size` bytes.
template <std::size_t size>
void transpose(std::int64_t lines, std::int64_t width, const std::byte* from, std::byte* to) {
  for (std::int64_t line0 = 0; line0 < lines; line0 += block)
    for (std::int64_t at0 = 0; at0 < width; at0 += block)
      for (std::int64_t line = line0; line < std::min(lines, line0 + block); ++line)
        for (std::int64_t at = at0; at < std::min(width, at0 + block); ++at)
          std::memcpy(to + static_cast<std::size_t>(at * lines + line) * size,
                      from + static_cast<std::size_t>(line * width + at) * size, size);
}

}  // namespace

RowMajorElements::RowMajorElements(const MatrixShape& shape, std::span<const std::byte> elements)
    : bytes_(elements) {
  if (shape.order == Order::row_major) return;
  copy_.resize(elements.size());
  const std::int64_t lines = shape.lines();
  const std::int64_t width = shape.line_elements();
  const std::int64_t size = bytes_of(shape.type, 1);
  if (size == 1) transpose<1>(lines, width, elements.data(), copy_.data());
  if (size == 2) transpose<2>(lines, width, elements.data(), copy_.data());
  if (size == 4) transpose<4>(lines, width, elements.data(), copy_.data());
  bytes_ = copy_;
}

}  // namespace gemmtune
