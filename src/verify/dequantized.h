// Operands as numbers: rows of float64, whatever type and scales they are stored in. Inside verify/ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "problem/operands.h"
#include "verify/line_numbers.h"

namespace gemmtune {

/// A matrix that can be read row by row, from several threads at once.
class RowSource {
 public:
  virtual ~RowSource() = default;
  /// out[i] = element (row, first + i).
  virtual void read(std::int64_t row, std::int64_t first, std::span<double> out) const = 0;
  /// Elements are products with scales, which may be beyond the range of float32.
  virtual bool is_scaled() const { return false; }
  /// Of a row; those without scales have the default.
  virtual ScaleRange scales(std::int64_t /*row*/) const { return {}; }
};

/// An operand with what its shape's scales have; of all its matrices.
struct MatrixBytes {
  std::span<const std::byte> elements;
  std::span<const std::byte> scales;
  std::span<const std::byte> global_scale = {};
  std::span<const std::byte> zero_points = {};
};

/// Matrix number `matrix` (a batch, an expert) of an operand: elements, row by row, less their zero points, times their
/// scales. Keeps the spans.
class DequantizedMatrix final : public RowSource {
 public:
  DequantizedMatrix(const MatrixShape& shape, const MatrixBytes& bytes, std::int64_t matrix);
  void read(std::int64_t row, std::int64_t first, std::span<double> out) const override;
  bool is_scaled() const override { return shape_.scale.type != ScaleType::none; }
  ScaleRange scales(std::int64_t row) const override;

 private:
  double scale_at(std::int64_t row, std::int64_t k) const;
  double zero_point_at(std::int64_t row, std::int64_t k) const;

  MatrixShape shape_;
  MatrixBytes bytes_;
  double global_scale_ = 1;
  std::int64_t first_row_;
  std::int64_t first_scale_;
};

/// A dense matrix of float64.
class DoubleMatrix final : public RowSource {
 public:
  DoubleMatrix(std::int64_t rows, std::int64_t columns)
      : columns_(columns), values_(static_cast<std::size_t>(rows * columns)) {}
  void read(std::int64_t row, std::int64_t first, std::span<double> out) const override;
  double& at(std::int64_t row, std::int64_t column) {
    return values_[static_cast<std::size_t>(row * columns_ + column)];
  }

 private:
  std::int64_t columns_;
  std::vector<double> values_;
};

/// What each of `rows` rows of `columns` numbers holds, without bias.
std::vector<LineNumbers> lines_of(const RowSource& source, std::int64_t rows, std::int64_t columns,
                                  int threads);
/// What row `row` holds; `buffer` has its length and is overwritten.
LineNumbers numbers_of(const RowSource& source, std::int64_t row, std::span<double> buffer);
/// A bias of what the row's sums become.
void add_bias(double bias, LineNumbers& line);

}  // namespace gemmtune
