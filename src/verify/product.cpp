#include "verify/product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/rounding.h"
#include "base/threads.h"

// Blocked so that operands are widened to float64 once for each block and stay in the nearest caches: columns
// of w are packed eight and eight, interleaved over k. Products of two 24-bit numbers are exact in float64
// and sums over k of them lose less than K · 2⁻⁵³. The magnitudes are bounds and are summed in float32.

namespace gemmtune {
namespace {

constexpr std::int64_t k_block = 512;
constexpr std::int64_t column_block = 64;  // 64 × 512 doubles of w: 256 KiB
constexpr std::int64_t row_block = 32;
constexpr std::int64_t max_rows = 4096;  // whose sums a thread holds: more rows pack w again
constexpr std::int64_t tile_columns = 8;
constexpr std::int64_t tile_rows = 4;

// Everything one thread needs; made once a thread. Written before it is read, and no larger than the operands: most references
// are of few rows, and to clear megabytes for them takes longer than to compute them.
struct Scratch {
  std::unique_ptr<double[]> line;
  std::unique_ptr<double[]> w;
  std::unique_ptr<float[]> w_abs;
  std::unique_ptr<double[]> x;
  std::unique_ptr<float[]> x_abs;
  std::unique_ptr<double[]> sum;  // rows × column_block
  std::unique_ptr<float[]> magnitude;

  Scratch(std::int64_t rows, std::int64_t columns) {
    const auto w_values =
        static_cast<std::size_t>(round_up(std::min(columns, column_block), tile_columns) * k_block);
    const auto x_values = static_cast<std::size_t>(round_up(std::min(rows, row_block), tile_rows) * k_block);
    const auto sums = static_cast<std::size_t>((std::min(rows, max_rows) + tile_rows) * column_block);
    line = std::make_unique_for_overwrite<double[]>(k_block);
    w = std::make_unique_for_overwrite<double[]>(w_values);
    w_abs = std::make_unique_for_overwrite<float[]>(w_values);
    x = std::make_unique_for_overwrite<double[]>(x_values);
    x_abs = std::make_unique_for_overwrite<float[]>(x_values);
    sum = std::make_unique_for_overwrite<double[]>(sums);
    magnitude = std::make_unique_for_overwrite<float[]>(sums);
  }
};

// Baseline instruction sets have 16-byte vectors; wider ones are not worth code that runs on some machines
// only.
using Double2 = double __attribute__((vector_size(16)));
using Float4 = float __attribute__((vector_size(16)));

template <typename Vector, typename Element>
Vector load(const Element* from) {
  Vector vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

template <typename Vector, typename Element>
void add_to(Element* to, Vector vector) {
  vector += load<Vector>(to);
  std::memcpy(to, &vector, sizeof(vector));
}

// Four rows of x (k_block apart) times two vectors of columns of w (tile_columns apart) over one block of k,
// added to four rows of `sum` (column_block apart).
template <typename Vector, typename Element>
void multiply_tile(const Element* x, const Element* w, std::int64_t depth, Element* sum) {
  constexpr std::int64_t width = sizeof(Vector) / sizeof(Element);
  Vector low[4] = {};
  Vector high[4] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    const auto left = load<Vector>(w + tile_columns * k);
    const auto right = load<Vector>(w + tile_columns * k + width);
    for (int i = 0; i < 4; ++i) {
      const Element value = x[i * k_block + k];
      low[i] += left * value;
      high[i] += right * value;
    }
  }
  for (int i = 0; i < 4; ++i) {
    add_to(sum + i * column_block, low[i]);
    add_to(sum + i * column_block + width, high[i]);
  }
}

// Magnitudes are sums of float32. The largest product of an element and an e8m0 scale, 448 * 2^127, is beyond its range and
// in range divided by this; x is multiplied by it instead.
constexpr double scaled_weight_unit = 1024;

double unit_of(const ProductSource& source) { return source.w.is_scaled() ? scaled_weight_unit : 1; }

/// Without sign, in units; 0 of what is no finite number.
float size_of(double value, double unit) {
  return std::isfinite(value) ? static_cast<float>(std::fabs(value) * unit) : 0;
}

void pack_w(const ProductSource& source, std::span<const std::int64_t> columns, std::int64_t k0,
            std::int64_t depth, Scratch& scratch) {
  const double unit = unit_of(source);
  const auto count = static_cast<std::int64_t>(columns.size());
  const std::int64_t padded = round_up(count, tile_columns);
  for (std::int64_t j = 0; j < padded; ++j) {
    double* wide = scratch.w.get() + j / tile_columns * tile_columns * k_block + j % tile_columns;
    float* absolute = scratch.w_abs.get() + j / tile_columns * tile_columns * k_block + j % tile_columns;
    if (j >= count) {
      for (std::int64_t k = 0; k < depth; ++k) wide[tile_columns * k] = absolute[tile_columns * k] = 0;
      continue;
    }
    const std::span<double> line(scratch.line.get(), static_cast<std::size_t>(depth));
    source.w.read(columns[j], k0, line);
    for (std::int64_t k = 0; k < depth; ++k) wide[tile_columns * k] = line[k];
    for (std::int64_t k = 0; k < depth; ++k) absolute[tile_columns * k] = size_of(line[k], 1 / unit);
  }
}

void pack_x(const ProductSource& source, std::span<const std::int64_t> rows, std::int64_t k0,
            std::int64_t depth, Scratch& scratch) {
  const double unit = unit_of(source);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<double> line(scratch.x.get() + i * k_block, static_cast<std::size_t>(depth));
    source.x.read(rows[i], k0, line);
    std::transform(line.begin(), line.end(), scratch.x_abs.get() + i * k_block,
                   [unit, floor = static_cast<float>(source.x_floor * unit)](double value) {
                     return size_of(value, unit) + floor;
                   });
  }
  // Rows that are missing to a multiple of four: their sums are not read.
  for (std::size_t i = rows.size(); i % tile_rows != 0; ++i) {
    std::fill_n(scratch.x.get() + i * k_block, depth, 0.0);
    std::fill_n(scratch.x_abs.get() + i * k_block, depth, 0.0F);
  }
}

// Selected rows, at most max_rows, times one block of columns, without bias.
void multiply_columns(const ProductSource& source, std::span<const std::int64_t> rows,
                      std::span<const std::int64_t> columns, Scratch& scratch) {
  const auto row_count = static_cast<std::int64_t>(rows.size());
  const auto count = static_cast<std::int64_t>(columns.size());
  const std::int64_t sums = (row_count + tile_rows) * column_block;
  std::fill_n(scratch.sum.get(), sums, 0.0);
  std::fill_n(scratch.magnitude.get(), sums, 0.0F);
  for (std::int64_t k0 = 0; k0 < source.k; k0 += k_block) {
    const std::int64_t depth = std::min(k_block, source.k - k0);
    pack_w(source, columns, k0, depth, scratch);
    for (std::int64_t i0 = 0; i0 < row_count; i0 += row_block) {
      const std::int64_t block = std::min(row_block, row_count - i0);
      pack_x(source, rows.subspan(static_cast<std::size_t>(i0), static_cast<std::size_t>(block)), k0, depth,
             scratch);
      for (std::int64_t j = 0; j < count; j += tile_columns)
        for (std::int64_t i = 0; i < block; i += tile_rows) {
          const std::int64_t at = (i0 + i) * column_block + j;
          const double* x = scratch.x.get() + i * k_block;
          const double* w = scratch.w.get() + j * k_block;
          multiply_tile<Double2>(x, w, depth, scratch.sum.get() + at);
          multiply_tile<Double2>(x, w + 4, depth, scratch.sum.get() + at + 4);
          multiply_tile<Float4>(scratch.x_abs.get() + i * k_block, scratch.w_abs.get() + j * k_block, depth,
                                scratch.magnitude.get() + at);
        }
    }
  }
}

class Multiplication {
 public:
  Multiplication(const ProductSource& source, const Selection& selection, const ProductOutput& output)
      : source_(source), selection_(selection), output_(output) {}

  void run(int threads) {
    const auto rows = static_cast<std::int64_t>(selection_.rows.size());
    const auto columns = static_cast<std::int64_t>(selection_.columns.size());
    const auto count =
        static_cast<int>(std::clamp<std::int64_t>(ceil_div(columns, column_block), 1, threads));
    if (output_.reaches != nullptr) read_scales();
    std::vector<Scratch> scratch;
    for (int t = 0; t < count; ++t) scratch.emplace_back(rows, columns);
    run_on_threads(count, [&](int t) { work(scratch[static_cast<std::size_t>(t)]); });
  }

 private:
  void read_scales() {
    for (const std::int64_t row : selection_.rows) x_scales_.push_back(source_.x.scales(row));
    for (const std::int64_t row : selection_.columns) w_scales_.push_back(source_.w.scales(row));
  }

  void work(Scratch& scratch) {
    const auto total = static_cast<std::int64_t>(selection_.columns.size());
    for (std::int64_t j0 = next_.fetch_add(column_block); j0 < total; j0 = next_.fetch_add(column_block)) {
      const auto columns = selection_.columns.subspan(
          static_cast<std::size_t>(j0), static_cast<std::size_t>(std::min(column_block, total - j0)));
      for (std::size_t i0 = 0; i0 < selection_.rows.size(); i0 += max_rows) {
        const auto rows =
            selection_.rows.subspan(i0, std::min<std::size_t>(max_rows, selection_.rows.size() - i0));
        multiply_columns(source_, rows, columns, scratch);
        finish({static_cast<std::int64_t>(i0), j0, rows.size()}, columns, scratch);
      }
    }
  }

  struct Block {
    std::int64_t first_row;
    std::int64_t first_column;
    std::size_t rows;
  };

  void finish(const Block& block, std::span<const std::int64_t> columns, const Scratch& scratch) {
    for (std::size_t i = 0; i < block.rows; ++i)
      for (std::size_t j = 0; j < columns.size(); ++j) {
        const std::size_t from = i * column_block + j;
        const std::int64_t to = (block.first_row + static_cast<std::int64_t>(i)) * output_.row_stride +
                                (block.first_column + static_cast<std::int64_t>(j)) * output_.column_stride;
        const double bias = source_.bias.empty() ? 0 : source_.bias[static_cast<std::size_t>(columns[j])];
        output_.values[to] = scratch.sum[from] + bias;
        const bool has_size = std::isfinite(scratch.magnitude[from]);
        const std::size_t i_all = static_cast<std::size_t>(block.first_row) + i;
        const std::size_t j_all = static_cast<std::size_t>(block.first_column) + j;
        const double size = has_size || output_.reaches == nullptr
                                ? static_cast<double>(scratch.magnitude[from])
                                : wide_magnitude(i_all, j_all);
        output_.magnitudes[to] = size + (std::isfinite(bias) ? std::fabs(bias) : 0);
        if (output_.reaches == nullptr) continue;
        output_.reaches[to] = scales_pass_float(x_scales_[i_all], w_scales_[j_all])
                                  ? std::numeric_limits<double>::infinity()
                                  : reach_of(output_.magnitudes[to], x_scales_[i_all], w_scales_[j_all]);
      }
  }

  /// Of an element whose magnitude float32 cannot hold.
  double wide_magnitude(std::size_t i, std::size_t j) const {
    std::array<double, k_block> x;
    std::array<double, k_block> w;
    double sum = 0;
    for (std::int64_t k0 = 0; k0 < source_.k; k0 += k_block) {
      const auto depth = static_cast<std::size_t>(std::min(k_block, source_.k - k0));
      source_.x.read(selection_.rows[i], k0, {x.data(), depth});
      source_.w.read(selection_.columns[j], k0, {w.data(), depth});
      for (std::size_t k = 0; k < depth; ++k)
        if (std::isfinite(x[k]) && std::isfinite(w[k]))
          sum += (std::fabs(x[k]) + source_.x_floor) * std::fabs(w[k]);
    }
    return sum;
  }

  ProductSource source_;
  Selection selection_;
  ProductOutput output_;
  std::vector<ScaleRange> x_scales_;  // with reaches only
  std::vector<ScaleRange> w_scales_;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace

void multiply_selected(const ProductSource& source, const Selection& selection, const ProductOutput& output,
                       int threads) {
  Multiplication(source, selection, output).run(threads);
}

}  // namespace gemmtune
