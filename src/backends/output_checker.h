// Comparing outputs with the reference where they lie: a device that can, spares the host a copy of every
// output and a pass over it on one core.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "verify/output_check.h"
#include "verify/row_figures.h"

namespace gemmtune {

/// The float64 reference of all of y in device memory, for one problem, and comparisons with it. Not for
/// several threads at once; must not outlive its device. Errors are faults of the device.
class OutputChecker {
 public:
  virtual ~OutputChecker() = default;
  /// The reference of these operands: plain weight in the problem's order, ldx as given. May be called again. y is not looked at.
  virtual Status compute_reference(const Operands& operands) = 0;
  /// One row of the reference, of all batches' rows one after another: exact values and Σ|x||w| + |bias|, of each column of y.
  virtual Status read_row(std::int64_t row, std::span<double> values, std::span<float> magnitudes) = 0;
  /// y [B, M, ldy] against the reference: figures of its B · M rows. Requires B · M · ldy elements.
  virtual Result<std::vector<RowFigures>> compare(const void* y, std::int64_t ldy,
                                                  const Tolerance& tolerance) = 0;
  /// Whether two outputs agree bit for bit. Requires addresses that are multiples of four.
  virtual Result<bool> same(const void* one, const void* other, std::size_t bytes) = 0;
};

}  // namespace gemmtune
