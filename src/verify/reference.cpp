#include "verify/reference.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <numeric>

#include "base/random.h"
#include "base/saturating.h"
#include "base/threads.h"
#include "verify/product.h"
#include "verify/reference_moe.h"
#include "verify/row_major.h"

namespace gemmtune {
namespace {

/// One plain multiplication: y [m, n].
struct Gemm {
  ProductSource source;
  std::int64_t m = 0;
  std::int64_t n = 0;
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
  std::ranges::sort(indices);
  return indices;
}

// w folded by the vector over all of N: Σ vector[n]·w[n, k], and Σ w[n, k]² for the magnitudes.
struct Folded {
  std::vector<double> weighted;
  std::vector<double> squares;
};

bool has_finite_numbers(const LineNumbers& line) { return !line.has_nan && !line.has_infinity; }

/// Columns of w with other numbers have a factor of 0.
Folded fold_w(const Gemm& gemm, std::span<const double> vector, int threads) {
  const std::int64_t n = gemm.n;
  const std::int64_t k = gemm.source.k;
  const auto length = static_cast<std::size_t>(k);
  const auto count = static_cast<std::size_t>(threads);
  // Here and not in the threads, which cannot report a lack of memory.
  std::vector<Folded> parts(count, {std::vector<double>(length), std::vector<double>(length)});
  std::vector<std::vector<double>> lines(count, std::vector<double>(length));
  const auto work = [&](int thread) {
    Folded& part = parts[static_cast<std::size_t>(thread)];
    std::vector<double>& line = lines[static_cast<std::size_t>(thread)];
    for (std::int64_t row = thread; row < n; row += threads) {
      const double factor = vector[static_cast<std::size_t>(row)];
      if (factor == 0) continue;
      gemm.source.w.read(row, 0, line);
      for (std::size_t i = 0; i < length; ++i) {
        const double value = line[i];
        part.weighted[i] += factor * value;
        part.squares[i] += value * value;
      }
    }
  };
  run_on_threads(threads, work);
  for (std::size_t t = 1; t < parts.size(); ++t)
    for (std::size_t i = 0; i < length; ++i) {
      parts[0].weighted[i] += parts[t].weighted[i];
      parts[0].squares[i] += parts[t].squares[i];
    }
  return std::move(parts[0]);
}

// The random-vector (Freivalds) part: y · vector row by row, without ever forming y.
void add_product(const Gemm& gemm, Random& random, int threads, Reference& reference) {
  reference.vector.resize(static_cast<std::size_t>(gemm.n));
  for (double& value : reference.vector) {
    const double size = 0.5 + random.uniform();
    value = (random.next() & 1) != 0 ? size : -size;
  }
  for (std::size_t column = 0; column < reference.w_lines.size(); ++column)
    if (!has_finite_numbers(reference.w_lines[column])) reference.vector[column] = 0;
  const Folded folded = fold_w(gemm, reference.vector, threads);
  double bias_product = 0;
  double bias_squares = 0;
  for (std::size_t column = 0; column < gemm.source.bias.size(); ++column) {
    const double bias = gemm.source.bias[column];
    if (reference.vector[column] == 0) continue;
    bias_product += bias * reference.vector[column];
    bias_squares += bias * bias;
  }
  std::vector<double> line(static_cast<std::size_t>(gemm.source.k));
  for (std::int64_t row = 0; row < gemm.m; ++row) {
    gemm.source.x.read(row, 0, line);
    double product = 0;
    double bound = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      product += line[i] * folded.weighted[i];
      // Minkowski: √(Σₙ (Σₖ |x||w|)²) ≤ Σₖ |x|·√(Σₙ w²).
      bound += std::fabs(line[i]) * std::sqrt(folded.squares[i]);
    }
    reference.product.push_back(product + bias_product);
    reference.product_magnitudes.push_back(bound + std::sqrt(bias_squares));
  }
}

Status check_supported(const Problem& problem) {
  if (traits(problem.x_type).widen == nullptr || traits(problem.w_type).widen == nullptr)
    return Status::unsupported("no reference for operands of {} and {}", to_string(problem.x_type),
                               to_string(problem.w_type));
  const bool output =
      problem.y_type == DataType::bf16 || problem.y_type == DataType::f16 || problem.y_type == DataType::f32;
  if (!output) return Status::unsupported("no reference for an output of {}", to_string(problem.y_type));
  return {};
}

ProductOutput output_at(Reference& reference, std::int64_t first, std::int64_t row_stride,
                        std::int64_t column_stride) {
  return {reference.values.data() + first, reference.magnitudes.data() + first,
          reference.reaches.empty() ? nullptr : reference.reaches.data() + first, row_stride, column_stride};
}

Reference sampled_reference(const Gemm& gemm, const ReferenceOptions& options) {
  const int threads = std::max(1, options.threads);
  Reference reference;
  Random random(options.seed);
  reference.complete = false;
  reference.rows = sample_indices(gemm.m, options.sampled_rows, random);
  reference.columns = sample_indices(gemm.n, options.sampled_columns, random);
  const auto row_values = static_cast<std::int64_t>(reference.rows.size()) * gemm.n;
  const auto all =
      static_cast<std::size_t>(row_values + static_cast<std::int64_t>(reference.columns.size()) * gemm.m);
  reference.values.resize(all);
  reference.magnitudes.resize(all);
  if (options.any_numbers) reference.reaches.resize(all);
  const std::vector<std::int64_t> every_row = all_of(gemm.m);
  const std::vector<std::int64_t> every_column = all_of(gemm.n);
  multiply_selected(gemm.source, {reference.rows, every_column}, output_at(reference, 0, gemm.n, 1), threads);
  multiply_selected(gemm.source, {every_row, reference.columns}, output_at(reference, row_values, 1, gemm.m),
                    threads);
  if (options.any_numbers) {
    reference.x_lines = lines_of(gemm.source.x, gemm.m, gemm.source.k, threads);
    reference.w_lines = lines_of(gemm.source.w, gemm.n, gemm.source.k, threads);
    for (std::size_t column = 0; column < gemm.source.bias.size(); ++column)
      add_bias(gemm.source.bias[column], reference.w_lines[column]);
  }
  add_product(gemm, random, threads, reference);
  return reference;
}

bool is_sampled(const Problem& problem, const ReferenceOptions& options) {
  const bool few_rows = problem.m <= options.sampled_rows;  // then sampling rows would be the whole anyway
  return !few_rows && flops(problem) > options.max_complete_flops;
}

Reference gemm_reference(const Gemm& gemm, bool sampled, const ReferenceOptions& options) {
  if (sampled) return sampled_reference(gemm, options);
  Reference reference;
  const auto count = static_cast<std::size_t>(gemm.m * gemm.n);
  reference.values.resize(count);
  reference.magnitudes.resize(count);
  if (options.any_numbers) reference.reaches.resize(count);
  multiply_selected(gemm.source, {all_of(gemm.m), all_of(gemm.n)}, output_at(reference, 0, gemm.n, 1),
                    std::max(1, options.threads));
  return reference;
}

std::vector<double> bias_of(const Problem& problem, const HostOperands& operands) {
  if (!problem.bias) return {};
  std::vector<float> single(static_cast<std::size_t>(problem.n));
  traits(problem.y_type).widen(operands.bias, 0, single);
  return {single.begin(), single.end()};
}

/// A batch of multiplications; one of them where there is no batch.
Reference dense_reference(const Problem& problem, const HostOperands& operands,
                          const ReferenceOptions& options) {
  const OperandShapes shapes = operand_shapes(problem);
  const std::vector<double> bias = bias_of(problem, operands);
  const RowMajorElements x_rows(shapes.x, operands.x);
  const RowMajorElements w_rows(shapes.w, operands.w);
  std::vector<Reference> batches;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const DequantizedMatrix x(shapes.x, {x_rows.bytes(), operands.x_scale, operands.x_global_scale}, batch);
    const DequantizedMatrix w(
        shapes.w, {w_rows.bytes(), operands.w_scale, operands.w_global_scale, operands.w_zero_points}, batch);
    batches.push_back(gemm_reference({{x, w, problem.k, bias}, problem.m, problem.n},
                                     is_sampled(problem, options), options));
  }
  if (problem.batch == 1) return std::move(batches.front());
  Reference all;
  all.batches = std::move(batches);
  return all;
}

}  // namespace

Result<Reference> compute_reference(const Problem& problem, const HostOperands& operands,
                                    const ReferenceOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_supported(problem));
  try {
    if (is_mixture(problem)) return moe_reference(problem, operands, options);
    return dense_reference(problem, operands, options);
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory for the reference of {}", print(problem));
  }
}

std::int64_t reference_bytes(const Problem& problem, const ReferenceOptions& options) {
  constexpr std::int64_t each = 2 * sizeof(double);  // values and magnitudes
  if (is_mixture(problem)) {
    const auto rows = static_cast<std::int64_t>(sampled_token_count(problem, options));
    return saturating_product({rows, problem.k, each});
  }
  const std::int64_t m = problem.m;
  const std::int64_t n = problem.n;
  if (!is_sampled(problem, options)) return saturating_product({problem.batch, m, n, each});
  const std::int64_t rows = std::min(m, options.sampled_rows);
  const std::int64_t columns = std::min(n, options.sampled_columns);
  const std::int64_t samples =
      saturating_sum({saturating_product({rows, n, each}), saturating_product({columns, m, each})});
  const std::int64_t freivalds =
      saturating_sum({saturating_product({n, each / 2}), saturating_product({m, each})});
  return saturating_product({problem.batch, saturating_sum({samples, freivalds})});
}

}  // namespace gemmtune
