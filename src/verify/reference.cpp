#include "verify/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>

#include "base/random.h"
#include "verify/element.h"

// Blocked so that operands are widened to float64 once for each block and stay in the nearest caches: columns
// of w are packed eight and eight, interleaved over k. Products of two 24-bit numbers are exact in float64
// and sums over k of them lose less than K · 2⁻⁵³. The magnitudes are bounds and are summed in float32.

namespace gemmtune {
namespace {

constexpr std::int64_t k_block = 512;
constexpr std::int64_t column_block = 64;  // 64 × 512 doubles of w: 256 KiB
constexpr std::int64_t row_block = 32;
constexpr std::int64_t tile_columns = 8;
constexpr std::int64_t tile_rows = 4;

// Which rows of x and which rows of w (columns of y) are multiplied.
struct Selection {
  std::span<const std::int64_t> rows;
  std::span<const std::int64_t> columns;
};

struct Output {
  double* values;  // element (i, j) at i · row_stride + j · column_stride
  double* magnitudes;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

struct Source {
  const Problem& problem;
  const HostOperands& operands;
};

// Everything one thread needs; made once a thread.
struct Scratch {
  std::vector<float> line = std::vector<float>(k_block);
  std::vector<double> w = std::vector<double>(column_block * k_block);
  std::vector<float> w_abs = std::vector<float>(column_block * k_block);
  std::vector<double> x = std::vector<double>(row_block * k_block);
  std::vector<float> x_abs = std::vector<float>(row_block * k_block);
  std::vector<double> sum;  // rows × column_block
  std::vector<float> magnitude;
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

void pack_w(const Source& source, std::span<const std::int64_t> columns, std::int64_t k0, std::int64_t depth,
            Scratch& scratch) {
  const auto count = static_cast<std::int64_t>(columns.size());
  const std::int64_t padded = (count + tile_columns - 1) / tile_columns * tile_columns;
  for (std::int64_t j = 0; j < padded; ++j) {
    double* wide = scratch.w.data() + j / tile_columns * tile_columns * k_block + j % tile_columns;
    float* absolute = scratch.w_abs.data() + j / tile_columns * tile_columns * k_block + j % tile_columns;
    if (j >= count) {
      for (std::int64_t k = 0; k < depth; ++k) wide[tile_columns * k] = absolute[tile_columns * k] = 0;
      continue;
    }
    const std::span<float> line(scratch.line.data(), static_cast<std::size_t>(depth));
    read_elements(source.problem.w_type, source.operands.w, columns[j] * source.problem.k + k0, line);
    for (std::int64_t k = 0; k < depth; ++k) wide[tile_columns * k] = line[k];
    for (std::int64_t k = 0; k < depth; ++k) absolute[tile_columns * k] = std::fabs(line[k]);
  }
}

void pack_x(const Source& source, std::span<const std::int64_t> rows, std::int64_t k0, std::int64_t depth,
            Scratch& scratch) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::span<float> line(scratch.line.data(), static_cast<std::size_t>(depth));
    read_elements(source.problem.x_type, source.operands.x, rows[i] * source.problem.k + k0, line);
    std::copy(line.begin(), line.end(), scratch.x.data() + i * k_block);
    std::transform(line.begin(), line.end(), scratch.x_abs.data() + i * k_block,
                   [](float v) { return std::fabs(v); });
  }
}

// All selected rows times one block of columns, without bias and scales.
void multiply_columns(const Source& source, std::span<const std::int64_t> rows,
                      std::span<const std::int64_t> columns, Scratch& scratch) {
  const auto row_count = static_cast<std::int64_t>(rows.size());
  const auto count = static_cast<std::int64_t>(columns.size());
  scratch.sum.assign(static_cast<std::size_t>((row_count + tile_rows) * column_block), 0);
  scratch.magnitude.assign(static_cast<std::size_t>((row_count + tile_rows) * column_block), 0);
  for (std::int64_t k0 = 0; k0 < source.problem.k; k0 += k_block) {
    const std::int64_t depth = std::min(k_block, source.problem.k - k0);
    pack_w(source, columns, k0, depth, scratch);
    for (std::int64_t i0 = 0; i0 < row_count; i0 += row_block) {
      const std::int64_t block = std::min(row_block, row_count - i0);
      pack_x(source, rows.subspan(static_cast<std::size_t>(i0), static_cast<std::size_t>(block)), k0, depth,
             scratch);
      // Rows that are missing to a multiple of four are whatever the scratch holds there; their sums are not
      // read.
      for (std::int64_t j = 0; j < count; j += tile_columns)
        for (std::int64_t i = 0; i < block; i += tile_rows) {
          const std::int64_t at = (i0 + i) * column_block + j;
          const double* x = scratch.x.data() + i * k_block;
          const double* w = scratch.w.data() + j * k_block;
          multiply_tile<Double2>(x, w, depth, scratch.sum.data() + at);
          multiply_tile<Double2>(x, w + 4, depth, scratch.sum.data() + at + 4);
          multiply_tile<Float4>(scratch.x_abs.data() + i * k_block, scratch.w_abs.data() + j * k_block, depth,
                                scratch.magnitude.data() + at);
        }
    }
  }
}

class Multiplication {
 public:
  Multiplication(const Source& source, const Selection& selection, const Output& output)
      : source_(source), selection_(selection), output_(output) {}

  void run(int threads) {
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back([this] { work(); });
    work();
    for (std::thread& other : others) other.join();
  }

 private:
  void work() {
    Scratch scratch;
    const auto total = static_cast<std::int64_t>(selection_.columns.size());
    for (std::int64_t j0 = next_.fetch_add(column_block); j0 < total; j0 = next_.fetch_add(column_block)) {
      const auto columns = selection_.columns.subspan(
          static_cast<std::size_t>(j0), static_cast<std::size_t>(std::min(column_block, total - j0)));
      multiply_columns(source_, selection_.rows, columns, scratch);
      for (std::size_t i = 0; i < selection_.rows.size(); ++i)
        for (std::size_t j = 0; j < columns.size(); ++j) finish(i, j0, j, columns[j], scratch);
    }
  }

  void finish(std::size_t i, std::int64_t j0, std::size_t j, std::int64_t column, const Scratch& scratch) {
    const std::size_t from = i * column_block + j;
    const std::int64_t to = static_cast<std::int64_t>(i) * output_.row_stride +
                            (j0 + static_cast<std::int64_t>(j)) * output_.column_stride;
    const double scale =
        static_cast<double>(source_.operands.x_scale) * static_cast<double>(source_.operands.w_scale);
    float bias = 0;
    if (source_.problem.bias)
      read_elements(source_.problem.y_type, source_.operands.bias, column, {&bias, 1});
    output_.values[to] = scratch.sum[from] * scale + static_cast<double>(bias);
    output_.magnitudes[to] =
        static_cast<double>(scratch.magnitude[from]) * std::fabs(scale) + std::fabs(bias);
  }

  Source source_;
  Selection selection_;
  Output output_;
  std::atomic<std::int64_t> next_{0};
};

std::vector<std::int64_t> all_of(std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// `wanted` different indices below `count`, ascending, the first and the last always among them: edges are
// where kernels go wrong.
std::vector<std::int64_t> sample_indices(std::int64_t count, std::int64_t wanted, Random& random) {
  if (wanted >= count) return all_of(count);
  std::vector<std::int64_t> indices = {0, count - 1};
  while (static_cast<std::int64_t>(indices.size()) < wanted) {
    const auto index = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(count)));
    if (std::find(indices.begin(), indices.end(), index) == indices.end()) indices.push_back(index);
  }
  std::sort(indices.begin(), indices.end());
  return indices;
}

// w folded by the vector over all of N: Σ vector[n]·w[n, k], and Σ w[n, k]² for the magnitudes.
struct Folded {
  std::vector<double> weighted;
  std::vector<double> squares;
};

Folded fold_w(const Source& source, std::span<const double> vector, int threads) {
  const std::int64_t n = source.problem.n;
  const std::int64_t k = source.problem.k;
  const auto length = static_cast<std::size_t>(k);
  std::vector<Folded> parts(static_cast<std::size_t>(threads));
  const auto work = [&](int thread) {
    Folded& part = parts[static_cast<std::size_t>(thread)];
    part.weighted.assign(length, 0);
    part.squares.assign(length, 0);
    std::vector<float> line(length);
    for (std::int64_t row = thread; row < n; row += threads) {
      read_elements(source.problem.w_type, source.operands.w, row * k, line);
      const double factor = vector[static_cast<std::size_t>(row)];
      for (std::size_t i = 0; i < length; ++i) {
        const double value = line[i];
        part.weighted[i] += factor * value;
        part.squares[i] += value * value;
      }
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& other : others) other.join();
  for (std::size_t t = 1; t < parts.size(); ++t)
    for (std::size_t i = 0; i < length; ++i) {
      parts[0].weighted[i] += parts[t].weighted[i];
      parts[0].squares[i] += parts[t].squares[i];
    }
  return std::move(parts[0]);
}

// The random-vector (Freivalds) part: y · vector row by row, without ever forming y.
void add_product(const Source& source, Random& random, int threads, Reference& reference) {
  const Problem& problem = source.problem;
  reference.vector.resize(static_cast<std::size_t>(problem.n));
  for (double& value : reference.vector) {
    const double size = 0.5 + random.uniform();
    value = (random.next() & 1) != 0 ? size : -size;
  }
  const Folded folded = fold_w(source, reference.vector, threads);
  const double scale =
      static_cast<double>(source.operands.x_scale) * static_cast<double>(source.operands.w_scale);
  double bias_product = 0;
  double bias_squares = 0;
  for (std::int64_t column = 0; problem.bias && column < problem.n; ++column) {
    float bias = 0;
    read_elements(problem.y_type, source.operands.bias, column, {&bias, 1});
    bias_product += static_cast<double>(bias) * reference.vector[static_cast<std::size_t>(column)];
    bias_squares += static_cast<double>(bias) * static_cast<double>(bias);
  }
  std::vector<float> line(static_cast<std::size_t>(problem.k));
  for (std::int64_t row = 0; row < problem.m; ++row) {
    read_elements(problem.x_type, source.operands.x, row * problem.k, line);
    double product = 0;
    double bound = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      product += static_cast<double>(line[i]) * folded.weighted[i];
      // Minkowski: √(Σₙ (Σₖ |x||w|)²) ≤ Σₖ |x|·√(Σₙ w²).
      bound += std::fabs(static_cast<double>(line[i])) * std::sqrt(folded.squares[i]);
    }
    reference.product.push_back(product * scale + bias_product);
    reference.product_magnitudes.push_back(bound * std::fabs(scale) + std::sqrt(bias_squares));
  }
}

Status check_supported(const Problem& problem) {
  if (problem.operation != Operation::a16w16 || problem.batch != 1)
    return Status::unsupported("no reference for {}", print(problem));
  if (problem.x_order != Order::row_major || problem.w_order != Order::row_major ||
      problem.y_order != Order::row_major)
    return Status::unsupported("no reference for column-major operands ({})", print(problem));
  if (!readable(problem.x_type) || !readable(problem.w_type))
    return Status::unsupported("no reference for operands of {} and {}", to_string(problem.x_type),
                               to_string(problem.w_type));
  if (!readable(problem.y_type) || element_bytes(problem.y_type) < 2)
    return Status::unsupported("no reference for an output of {}", to_string(problem.y_type));
  return {};
}

Reference sampled_reference(const Source& source, const ReferenceOptions& options) {
  const Problem& problem = source.problem;
  const int threads = std::max(1, options.threads);
  Reference reference;
  Random random(options.seed);
  reference.complete = false;
  reference.rows = sample_indices(problem.m, options.sampled_rows, random);
  reference.columns = sample_indices(problem.n, options.sampled_columns, random);
  const auto row_values = static_cast<std::int64_t>(reference.rows.size()) * problem.n;
  const auto all =
      static_cast<std::size_t>(row_values + static_cast<std::int64_t>(reference.columns.size()) * problem.m);
  reference.values.resize(all);
  reference.magnitudes.resize(all);
  const std::vector<std::int64_t> every_row = all_of(problem.m);
  const std::vector<std::int64_t> every_column = all_of(problem.n);
  Multiplication(source, {reference.rows, every_column},
                 {reference.values.data(), reference.magnitudes.data(), problem.n, 1})
      .run(threads);
  Multiplication(
      source, {every_row, reference.columns},
      {reference.values.data() + row_values, reference.magnitudes.data() + row_values, 1, problem.m})
      .run(threads);
  add_product(source, random, threads, reference);
  return reference;
}

}  // namespace

Result<Reference> compute_reference(const Problem& problem, const HostOperands& operands,
                                    const ReferenceOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_supported(problem));
  const Source source{problem, operands};
  try {
    const bool few_rows = problem.m <= options.sampled_rows;  // then sampling rows would be the whole anyway
    if (!few_rows && flops(problem) > options.largest_complete_flops)
      return sampled_reference(source, options);
    Reference reference;
    const auto count = static_cast<std::size_t>(problem.m * problem.n);
    reference.values.resize(count);
    reference.magnitudes.resize(count);
    const std::vector<std::int64_t> rows = all_of(problem.m);
    const std::vector<std::int64_t> columns = all_of(problem.n);
    Multiplication(source, {rows, columns},
                   {reference.values.data(), reference.magnitudes.data(), problem.n, 1})
        .run(std::max(1, options.threads));
    return reference;
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory for the reference of {}", print(problem));
  }
}

}  // namespace gemmtune
