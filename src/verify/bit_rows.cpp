#include "verify/bit_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune {
namespace {

constexpr std::uint64_t seed_offset = 0xb175;
constexpr std::int64_t compared_elements =
    1 << 15;  // of a type of 16 bits, which hides most differences of sums
constexpr int min_sets = 2;
constexpr int max_sets = 8;
constexpr std::int64_t large_weight = std::int64_t{256}
                                      << 20;  // bytes: one set, for the sake of memory and time
constexpr std::int64_t tail_elements = 67;    // no multiple of any vector

constexpr std::int64_t cancelling_row = 1;
constexpr float cancelling_factor = 64;  // what is left of such a sum is a number of fp16 too

/// Of a row of `count` elements whose products cancel: element k and element k + distance, for k below it. No split of K
/// into equal parts divides such pairs evenly.
std::int64_t cancelling_distance(std::int64_t count) { return 3 * count / 8; }

/// What element `k` of a probe row is multiplied by; NaN: its sign is dropped.
float factor_of(std::int64_t row, std::int64_t k, std::int64_t count) {
  switch (row) {
    case cancelling_row:
      return k < 2 * cancelling_distance(count) ? cancelling_factor : 0;
    case 2:
      return std::nanf("");
    case 3:
      return std::ldexp(1.0F, static_cast<int>(k % 13) - 6);
    case 4:
      return k + tail_elements < count ? 1.0F : 256.0F;
    case 5:
      return k % 2 == 0 ? 128.0F : 1.0F;
    case probe_rows + 1:
      return 512.0F;
    case probe_rows + 2:
      return 0.0F;
    default:
      return 1.0F;
  }
}

/// Elements of a matrix in whatever order.
class Elements {
 public:
  Elements(const MatrixShape& shape, std::vector<std::byte>& bytes)
      : shape_(shape), bytes_(bytes), size_(static_cast<std::size_t>(bits(shape.type) / 8)) {}
  float get(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
    return traits(shape_.type).to_f32(element_bits(shape_.type, bytes_.data(), index(matrix, row, k)));
  }
  void set(std::int64_t matrix, std::int64_t row, std::int64_t k, float value) {
    const std::uint32_t code = traits(shape_.type).from_f32(value);
    std::memcpy(at(matrix, row, k), &code, size_);
  }
  /// Of one row, from one k to another.
  void copy(std::int64_t matrix, std::int64_t row, std::int64_t from, std::int64_t to) {
    std::memcpy(at(matrix, row, to), at(matrix, row, from), size_);
  }

 private:
  std::byte* at(std::int64_t matrix, std::int64_t row, std::int64_t k) {
    return bytes_.data() + static_cast<std::size_t>(index(matrix, row, k)) * size_;
  }
  std::int64_t index(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
    const std::int64_t leading = shape_.line_elements();
    return matrix * shape_.rows * shape_.columns + row * shape_.row_step(leading) +
           k * shape_.column_step(leading);
  }

  const MatrixShape& shape_;
  std::vector<std::byte>& bytes_;
  std::size_t size_;
};

/// Floats whose range is their own. Types with scales carry their range in these and stay as they are.
bool is_plain_float(const MatrixShape& shape) {
  const DataTypeTraits& type = traits(shape.type);
  return type.from_f32 != nullptr && type.bits >= 16 && shape.scale.type == ScaleType::none;
}

/// Rows of different kinds, in place.
void vary_rows(const MatrixShape& shape, std::vector<std::byte>& bytes) {
  Elements x(shape, bytes);
  for (std::int64_t matrix = 0; matrix < shape.count; ++matrix)
    for (std::int64_t row = 0; row < shape.rows; ++row)
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        const float factor = factor_of(row, k, shape.columns);
        const float value = x.get(matrix, row, k);
        x.set(matrix, row, k, std::isnan(factor) ? std::fabs(value) : factor * value);
      }
}

/// Makes the products of that row of x cancel in pairs: what its sums hold in the end is their rounding alone, which shows
/// in outputs of every type.
void cancel_products(const OperandShapes& shapes, HostOperands& operands) {
  Elements x(shapes.x, operands.x);
  Elements w(shapes.w, operands.w);
  const std::int64_t distance = cancelling_distance(shapes.x.columns);
  for (std::int64_t matrix = 0; matrix < shapes.x.count; ++matrix)
    for (std::int64_t k = 0; k < distance; ++k)
      x.set(matrix, cancelling_row, k + distance, -x.get(matrix, cancelling_row, k));
  for (std::int64_t matrix = 0; matrix < shapes.w.count; ++matrix)
    for (std::int64_t row = 0; row < shapes.w.rows; ++row)
      for (std::int64_t k = 0; k < distance; ++k) w.copy(matrix, row, k, k + distance);
}

/// A bias would hide what cancelling sums leave: half of the columns have none.
void thin_out_bias(const MatrixShape& shape, std::vector<std::byte>& bytes) {
  const auto size = static_cast<std::size_t>(bytes_of(shape.type, 1));
  for (std::size_t column = 0; column * size < bytes.size(); column += 2)
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(column * size), size, std::byte{0});
}

/// Probe rows in order, as many as fit; further places hold neighbours.
std::vector<RowPlacement> in_order(std::int64_t m) {
  std::vector<RowPlacement> placements;
  for (std::int64_t first = 0; first < probe_rows; first += m) {
    RowPlacement& placement = placements.emplace_back();
    for (std::int64_t i = 0; i < m; ++i) {
      const std::int64_t probe = first + i;
      placement.rows.push_back(
          static_cast<std::int32_t>(probe < probe_rows ? probe : probe_rows + i % neighbour_rows));
    }
  }
  return placements;
}

bool is_probe(std::int32_t row) { return row < probe_rows; }

/// Every second row, from `first` on, stays; the others change.
RowPlacement with_other_neighbours(const RowPlacement& base, std::size_t first) {
  RowPlacement placement{Varied::neighbours, base.rows};
  for (std::size_t i = 0; i < placement.rows.size(); ++i) {
    const bool stays = is_probe(base.rows[i]) && i % 2 == first;
    if (!stays) placement.rows[i] = static_cast<std::int32_t>(probe_rows + (i + 1 + first) % neighbour_rows);
  }
  return placement;
}

RowPlacement turned(const RowPlacement& base, std::int64_t by) {
  RowPlacement placement{Varied::position, base.rows};
  const auto middle = static_cast<std::ptrdiff_t>(by % std::ssize(base.rows));
  std::rotate(placement.rows.rbegin(), placement.rows.rbegin() + middle, placement.rows.rend());
  return placement;
}

RowPlacement reversed(const RowPlacement& base) {
  RowPlacement placement{Varied::position, base.rows};
  std::ranges::reverse(placement.rows);
  return placement;
}

/// Probe rows as far from each other as they can be.
RowPlacement spread_out(std::int64_t m) {
  RowPlacement placement{Varied::position, {}};
  for (std::int64_t i = 0; i < m; ++i)
    placement.rows.push_back(static_cast<std::int32_t>(probe_rows + (i + 2) % neighbour_rows));
  for (std::int64_t probe = 0; probe < probe_rows; ++probe)
    placement.rows[static_cast<std::size_t>((2 * probe + 1) * m / (2 * probe_rows))] =
        static_cast<std::int32_t>(probe);
  return placement;
}

/// The chosen rows of matrices whose rows are `bytes` long.
template <typename Element>
std::vector<Element> chosen_rows(const std::vector<Element>& all, std::int64_t matrices,
                                 std::int64_t row_count, std::span<const std::int32_t> rows) {
  const auto each = all.size() / static_cast<std::size_t>(matrices * row_count);
  std::vector<Element> chosen;
  chosen.reserve(static_cast<std::size_t>(matrices) * rows.size() * each);
  for (std::int64_t matrix = 0; matrix < matrices; ++matrix)
    for (const std::int32_t row : rows) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(
                                          static_cast<std::size_t>(matrix * row_count + row) * each);
      chosen.insert(chosen.end(), from, from + static_cast<std::ptrdiff_t>(each));
    }
  return chosen;
}

/// Of a column-major x, whose rows lie apart.
std::vector<std::byte> chosen_columns(const MatrixShape& x, const std::vector<std::byte>& all,
                                      std::span<const std::int32_t> rows) {
  const auto size = static_cast<std::size_t>(bytes_of(x.type, 1));
  std::vector<std::byte> chosen;
  for (std::int64_t k = 0; k < x.columns; ++k)
    for (const std::int32_t row : rows) {
      const auto from =
          all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(k * x.rows + row) * size);
      chosen.insert(chosen.end(), from, from + static_cast<std::ptrdiff_t>(size));
    }
  return chosen;
}

}  // namespace

Problem bit_problem(const Problem& problem) {
  Problem all = problem;
  all.m = probe_rows + neighbour_rows;
  return all;
}

int bit_sets(const Problem& problem) {
  if (weight_bytes(problem) > large_weight) return 1;
  const std::int64_t of_a_set = problem.batch * output_columns(problem) * probe_rows;
  return static_cast<int>(
      std::clamp<std::int64_t>(ceil_div(compared_elements, of_a_set), min_sets, max_sets));
}

Result<HostOperands> bit_operands(const Problem& problem, int set, std::uint64_t seed, int threads) {
  const Problem all = bit_problem(problem);
  auto operands = make_inputs(all, seed + seed_offset + static_cast<std::uint64_t>(set), threads);
  const OperandShapes shapes = operand_shapes(all);
  if (!operands.ok() || !is_plain_float(shapes.x)) return operands;
  vary_rows(shapes.x, operands->x);
  if (!is_plain_float(shapes.w)) return operands;
  cancel_products(shapes, *operands);
  thin_out_bias(shapes.bias, operands->bias);
  return operands;
}

std::vector<std::int64_t> other_bit_ms(std::int64_t m) {
  std::vector<std::int64_t> others{1, m - 1, m + 1};
  std::erase_if(others, [m](std::int64_t other) { return other < 1 || other == m; });
  others.erase(std::unique(others.begin(), others.end()), others.end());
  return others;
}

std::string bit_evidence(const Problem& problem) {
  return fmt::format(
      "{} rows of x in {} sets of operands, run twice, beside other rows, at other positions, at M = {} and "
      "M = {}",
      probe_rows, bit_sets(problem), problem.m, fmt::join(other_bit_ms(problem.m), ", "));
}

std::vector<RowPlacement> row_placements(std::int64_t m) {
  const std::vector<RowPlacement> bases = in_order(m);
  std::vector<RowPlacement> placements = bases;
  placements.insert(placements.end(), bases.begin(), bases.end());
  if (m == 1) return placements;
  for (const RowPlacement& base : bases)
    for (const std::size_t first : {0U, 1U}) placements.push_back(with_other_neighbours(base, first));
  for (const RowPlacement& base : bases) {
    placements.push_back(reversed(base));
    placements.push_back(turned(base, 1));
  }
  if (m >= 2 * probe_rows) placements.push_back(spread_out(m));
  return placements;
}

HostOperands placed_rows(const Problem& problem, const HostOperands& all,
                         std::span<const std::int32_t> rows) {
  const Problem of_all = bit_problem(problem);
  const MatrixShape x = operand_shapes(of_all).x;
  HostOperands placed;
  placed.x = x.order == Order::row_major ? chosen_rows(all.x, x.count, x.rows, rows)
                                         : chosen_columns(x, all.x, rows);
  const bool has_row_scales = x.scale.rows == x.rows;
  placed.x_scale = has_row_scales ? chosen_rows(all.x_scale, x.count, x.rows, rows) : all.x_scale;
  if (is_mixture(problem)) {
    placed.topk_ids = chosen_rows(all.topk_ids, 1, of_all.m, rows);
    placed.topk_weights = chosen_rows(all.topk_weights, 1, of_all.m, rows);
  }
  return placed;
}

std::vector<std::int64_t> placed_probes(const RowPlacement& placement) {
  std::vector<std::int64_t> probes;
  for (std::size_t row = 0; row < placement.rows.size(); ++row)
    if (is_probe(placement.rows[row])) probes.push_back(static_cast<std::int64_t>(row));
  return probes;
}

std::string BitClassBuilder::add(const PlacedOutput& output) {
  const Problem& problem = *output.problem;
  const auto row_bytes = static_cast<std::size_t>(bytes_of(problem.y_type, output_columns(problem)));
  const std::vector<std::int64_t> probes = placed_probes(*output.placement);
  std::string first;
  std::size_t at = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch)
    for (const std::int64_t row : probes) {
      const std::int32_t probe = output.placement->rows[static_cast<std::size_t>(row)];
      const auto bits = output.y.subspan(at, row_bytes);
      at += row_bytes;
      const auto [found, is_new] =
          seen_.try_emplace({static_cast<int>(problem.y_type), output.set, batch, probe});
      if (is_new) {
        found->second = {{bits.begin(), bits.end()}, problem.m, row};
      } else if (first.empty() && !std::ranges::equal(bits, found->second.bits)) {
        first = difference(output, found->second, row, bits);
      }
    }
  return first;
}

std::string BitClassBuilder::difference(const PlacedOutput& output, const Seen& seen, std::int64_t row,
                                        std::span<const std::byte> bits) {
  const Problem& problem = *output.problem;
  const char* phrase = problem.m != seen.m                           ? bit_phrase::rows
                       : row != seen.row                             ? bit_phrase::position
                       : output.placement->varied == Varied::nothing ? bit_phrase::runs
                                                                     : bit_phrase::neighbours;
  std::int64_t element = 0;
  const auto at = [&](const std::byte* from) { return element_bits(problem.y_type, from, element); };
  while (at(bits.data()) == at(seen.bits.data())) ++element;
  return fmt::format("{}: M = {}, row {}, element {} is {:#x}, and {:#x} in row {} of M = {} (y {})", phrase,
                     problem.m, row, element, at(bits.data()), at(seen.bits.data()), seen.row, seen.m,
                     to_string(problem.y_type));
}

std::string BitClassBuilder::id() const {
  std::string all;
  bool has_float_sums = false;
  std::string type;
  for (const auto& [key, seen] : seen_) {
    const auto y_type = static_cast<DataType>(std::get<0>(key));
    has_float_sums = has_float_sums || y_type == DataType::f32;
    type = to_string(y_type);
    all.append(reinterpret_cast<const char*>(seen.bits.data()), seen.bits.size());
  }
  return fmt::format("{}-{}", has_float_sums ? to_string(DataType::f32) : std::string_view(type),
                     short_hash(all, 12));
}

}  // namespace gemmtune
