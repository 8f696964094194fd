#include "verify/dequantized.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/threads.h"

namespace gemmtune {

DequantizedMatrix::DequantizedMatrix(const MatrixShape& shape, const MatrixBytes& bytes, std::int64_t matrix)
    : shape_(shape),
      bytes_(bytes),
      first_row_(matrix * shape.rows),
      first_scale_(matrix * shape.scale.elements()) {
  if (shape.scale.global) global_scale_ = scale_value(ScaleType::f32, bytes.global_scale.data(), matrix);
}

double DequantizedMatrix::scale_at(std::int64_t row, std::int64_t k) const {
  const std::int64_t index = first_scale_ + shape_.scale.index(row, k);
  return scale_value(shape_.scale.type, bytes_.scales.data(), index) * global_scale_;
}

double DequantizedMatrix::zero_point_at(std::int64_t row, std::int64_t k) const {
  if (!shape_.scale.zero_points) return 0;
  const auto index = static_cast<std::size_t>(first_scale_ + shape_.scale.index(row, k));
  return static_cast<std::int8_t>(bytes_.zero_points[index]);
}

void DequantizedMatrix::read(std::int64_t row, std::int64_t first, std::span<double> out) const {
  std::array<float, 256> elements;
  const bool scaled = shape_.scale.type != ScaleType::none;
  for (std::size_t done = 0; done < out.size();) {
    const std::int64_t k = first + static_cast<std::int64_t>(done);
    std::size_t count = std::min(elements.size(), out.size() - done);
    double scale = 1;
    double zero_point = 0;
    if (scaled) {
      // Elements of one scale at a time.
      const std::int64_t left = shape_.scale.k_block - k % shape_.scale.k_block;
      count = std::min(count, static_cast<std::size_t>(left));
      scale = scale_at(row, k);
      zero_point = zero_point_at(row, k);
    }
    traits(shape_.type)
        .widen(bytes_.elements, (first_row_ + row) * shape_.columns + k, {elements.data(), count});
    for (std::size_t i = 0; i < count; ++i)
      out[done + i] = (static_cast<double>(elements[i]) - zero_point) * scale;
    done += count;
  }
}

ScaleRange DequantizedMatrix::scales(std::int64_t row) const {
  ScaleRange range;
  if (shape_.scale.type == ScaleType::none) return range;
  for (std::int64_t k = 0; k < shape_.columns; k += shape_.scale.k_block) {
    const double scale = std::fabs(scale_at(row, k));
    range.largest = std::fmax(range.largest, scale);
    if (scale > 0) range.smallest = std::fmin(range.smallest, scale);
  }
  return range;
}

void DoubleMatrix::read(std::int64_t row, std::int64_t first, std::span<double> out) const {
  std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(row * columns_ + first), out.size(), out.begin());
}

LineNumbers numbers_of(const RowSource& source, std::int64_t row, std::span<double> buffer) {
  LineNumbers line;
  double squares = 0;
  source.read(row, 0, buffer);
  for (const double value : buffer) {
    if (std::isfinite(value)) {
      squares += value * value;
    } else {
      (std::isnan(value) ? line.has_nan : line.has_infinity) = true;
    }
  }
  line.norm = std::sqrt(squares);
  line.scales = source.scales(row);
  return line;
}

std::vector<LineNumbers> lines_of(const RowSource& source, std::int64_t rows, std::int64_t columns,
                                  int threads) {
  std::vector<LineNumbers> lines(static_cast<std::size_t>(rows));
  std::vector<std::vector<double>> buffers(static_cast<std::size_t>(threads),
                                           std::vector<double>(static_cast<std::size_t>(columns)));
  run_on_threads(threads, [&](int thread) {
    for (std::int64_t row = thread; row < rows; row += threads)
      lines[static_cast<std::size_t>(row)] =
          numbers_of(source, row, buffers[static_cast<std::size_t>(thread)]);
  });
  return lines;
}

void add_bias(double bias, LineNumbers& line) {
  line.has_nan = line.has_nan || std::isnan(bias);
  line.has_infinity = line.has_infinity || std::isinf(bias);
  if (std::isfinite(bias)) line.bias = std::fabs(bias);
}

}  // namespace gemmtune
