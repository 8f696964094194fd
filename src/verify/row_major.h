// Column-major operands row by row, for the reference. Inside verify/ only.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "problem/operands.h"

namespace gemmtune {

/// The elements of an operand row by row: as they are, or a transposed copy of a column-major one.
class RowMajorElements {
 public:
  /// Requires one matrix of whole bytes if it is column-major; keeps the span of a row-major one.
  RowMajorElements(const MatrixShape& shape, std::span<const std::byte> elements);
  RowMajorElements(const RowMajorElements&) = delete;
  RowMajorElements& operator=(const RowMajorElements&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> copy_;
  std::span<const std::byte> bytes_;
};

}  // namespace gemmtune
