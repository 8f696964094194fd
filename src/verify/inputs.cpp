#include "verify/inputs.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "numbers/minifloat.h"

namespace gemmtune {
namespace {

/// As random_fill(), of bytes that hold two elements each: the count is of bytes.
RandomFill fill_of_pairs(DataType type, std::size_t bytes, double sigma, Random random) {
  RandomFill made;
  const auto element = [&] { return traits(type).from_f32(static_cast<float>(sigma) * near_normal(random)); };
  for (std::size_t i = 0; i < RandomFill::table_size; ++i)
    made.table.push_back(static_cast<std::byte>(element() | element() << 4));
  made.count = bytes;
  made.random = random;
  return made;
}

/// The random fill of a tensor; its content instead, if that is not random.
struct Tensor {
  RandomFill fill;
  std::vector<std::byte> bytes;
};

Tensor tensor(std::int64_t elements, DataType type, double sigma, const Random& random,
              Signs signs = Signs::both) {
  if (bits(type) == 4)
    return {fill_of_pairs(type, static_cast<std::size_t>(bytes_of(type, elements)), sigma, random), {}};
  return {random_fill(type, static_cast<std::size_t>(elements), sigma, random, signs), {}};
}

constexpr int codes_of_e8m0 = 255;  // that are numbers
constexpr int codes_without_float_scale =
    220;  // with which sums are finite before float32 scales of x make them small

/// A code below `end`: each fourth is 0 or the last one, each eighth a neighbour of these.
std::byte whole_range_code(int end, Random& random) {
  const auto drawn = static_cast<int>(random.below(8));
  if (drawn < 3) return static_cast<std::byte>(drawn == 2 ? 1 : drawn * (end - 1));
  if (drawn == 3) return static_cast<std::byte>(end - 2);
  return static_cast<std::byte>(random.below(static_cast<std::size_t>(end)));
}

constexpr int codes_of_e4m3 = 127;   // that are numbers, without their sign
constexpr double default_e4m3 = 16;  // what the global scale is chosen for: far from both ends of the range
constexpr double max_e4m3 = 448;

/// The random scales of a matrix and its global one: around `size`, each within a factor of three.
struct ScaleFill {
  const MatrixShape& matrix;
  double size;
  bool whole = false;  // ScaleCodes::whole
  int end = 0;         // of whole e8m0 codes

  double global() const { return size / (whole ? max_e4m3 : default_e4m3); }

  std::uint32_t code(Random& random) const {
    const double near = 0.5 + random.uniform();
    switch (matrix.scale.type) {
      case ScaleType::none:
        break;
      case ScaleType::f32:
        return std::bit_cast<std::uint32_t>(static_cast<float>(size * near));
      case ScaleType::e8m0:
        if (end > 0) return std::to_integer<std::uint32_t>(whole_range_code(end, random));
        return static_cast<std::uint32_t>(127 + std::ilogb(size) - 1 + static_cast<int>(random.below(3)));
      case ScaleType::e4m3:
        if (whole)
          return with_sign(std::to_integer<std::uint32_t>(whole_range_code(codes_of_e4m3, random)), random);
        return f32_to_f8_e4m3fn(static_cast<float>(default_e4m3 * near));
      case ScaleType::bf16:
        return half_code(DataType::bf16, near, random);
      case ScaleType::f16:
        return half_code(DataType::f16, near, random);
    }
    return 0;
  }

 private:
  /// Whole: each fourth is zero or the smallest subnormal.
  std::uint32_t half_code(DataType type, double near, Random& random) const {
    if (!whole) return traits(type).from_f32(static_cast<float>(size * near));
    const auto drawn = static_cast<std::uint32_t>(random.below(8));
    return with_sign(drawn < 2 ? drawn : traits(type).from_f32(static_cast<float>(size * near)), random);
  }
  /// Each fourth code negative.
  std::uint32_t with_sign(std::uint32_t code, Random& random) const {
    const auto sign_bit = static_cast<int>(8 * bytes_of(matrix.scale.type) - 1);
    return code | static_cast<std::uint32_t>(random.below(4) == 0) << sign_bit;
  }
};

RandomFill scales(const ScaleFill& fill, Random random) {
  RandomFill made;
  if (fill.matrix.scale.type == ScaleType::none) return made;
  made.element_bytes = static_cast<std::size_t>(bytes_of(fill.matrix.scale.type));
  made.count = static_cast<std::size_t>(fill.matrix.scale_bytes()) / made.element_bytes;
  made.table.resize(RandomFill::table_size * made.element_bytes);
  for (std::size_t i = 0; i < RandomFill::table_size; ++i) {
    const std::uint32_t code = fill.code(random);
    std::memcpy(made.table.data() + i * made.element_bytes, &code, made.element_bytes);
  }
  made.random = random;
  return made;
}

/// From −8 to 8, the ends above all. None where the matrix has none.
RandomFill zero_points(const MatrixShape& shape, Random random) {
  RandomFill made;
  made.count = static_cast<std::size_t>(shape.zero_point_bytes());
  if (made.count == 0) return made;
  for (std::size_t i = 0; i < RandomFill::table_size; ++i) {
    const auto drawn = static_cast<int>(random.below(8));
    const int value = drawn < 2 ? 16 * drawn - 8 : static_cast<int>(random.below(17)) - 8;
    made.table.push_back(static_cast<std::byte>(value));
  }
  made.random = random;
  return made;
}

std::vector<std::byte> bytes_of_float(double value) {
  const auto single = static_cast<float>(value);
  std::vector<std::byte> bytes(sizeof(single));
  std::memcpy(bytes.data(), &single, sizeof(single));
  return bytes;
}

/// One for each matrix: the first `size`, the others within a factor of three, so that a kernel that takes another expert's is
/// seen. None where the matrix has none.
std::vector<std::byte> global_scales(const MatrixShape& shape, double size, Random random) {
  std::vector<std::byte> all;
  double near = 1;
  for (std::int64_t matrix = 0; shape.scale.global && matrix < shape.count; ++matrix) {
    const std::vector<std::byte> one = bytes_of_float(size * near);
    all.insert(all.end(), one.begin(), one.end());
    near = 0.5 + random.uniform();
  }
  return all;
}

/// Without scales.
Tensor plain_tensor(const MatrixShape& shape, double sigma, const Random& random, InitType init) {
  const auto count = static_cast<std::size_t>(shape.elements());
  if (init == InitType::randn) return tensor(shape.elements(), shape.type, sigma, random);
  if (init == InitType::trig_float) return {{}, sine_fill(shape.type, count)};
  return {random_fill(shape.type, count, init, random), {}};
}

struct QuantizedMatrix {
  Tensor elements;
  RandomFill scale;
  std::vector<std::byte> global_scale;
  RandomFill zero_points;
};

/// The generators of a matrix: for elements, scales, global scales and zero points.
struct MatrixStreams {
  Random elements;
  Random scales;
  Random global_scales;
  Random zero_points;
};

/// Codes of the whole range, and where those of e8m0 end (0: as usual).
struct WholeRange {
  bool codes = false;
  int end = 0;
};

QuantizedMatrix matrix_of(const MatrixShape& shape, double sigma, const MatrixStreams& streams,
                          InitType init = InitType::randn, const WholeRange& whole = {}) {
  if (shape.scale.type == ScaleType::none)
    return {plain_tensor(shape, sigma, streams.elements, init), {}, {}, {}};
  const double own = traits(shape.type).fill_sigma;
  const ScaleFill fill{shape, sigma / own, whole.codes, whole.end};
  return {tensor(shape.elements(), shape.type, own, streams.elements), scales(fill, streams.scales),
          global_scales(shape, fill.global(), streams.global_scales),
          zero_points(shape, streams.zero_points)};
}

/// The end of the e8m0 codes of a weight of that size, with ScaleCodes::whole.
int end_of_codes(const MatrixShape& shape, double sigma) {
  return 127 + std::ilogb(sigma / traits(shape.type).fill_sigma) + 2;
}

/// Whether e8m0 scales of the whole range leave results finite, with small x.
bool has_whole_powers(const Problem& problem, const OperandShapes& shapes) {
  return shapes.w.scale.type == ScaleType::e8m0 && problem.x_type != DataType::f16 &&
         problem.y_type != DataType::f16;
}

// The weight's range goes into its scale, as quantizers do. The scales lie in ranges that do not meet: a
// kernel that mistakes one for the other is seen.
void scale_whole_tensors(double w_sigma, Random random, HostOperands& operands) {
  operands.x_scale = bytes_of_float(4 + 2 * random.uniform());
  operands.w_scale = bytes_of_float(w_sigma / 5 * (0.75 + 0.5 * random.uniform()));
}

std::vector<std::byte> small_tensor(const MatrixShape& shape, double sigma, const Random& random) {
  const RandomFill fill = random_fill(shape.type, static_cast<std::size_t>(shape.elements()), sigma, random);
  std::vector<std::byte> bytes(fill.bytes());
  if (!bytes.empty()) fill_random(fill, 0, bytes);
  return bytes;
}

/// Of everything that is random in the operands of a problem. The layout is left out: one weight serves all layouts.
Random stream_of(const Problem& problem, std::string_view name, std::uint64_t seed) {
  return Random(hash64(fmt::format("{} {} {} {} {} {}", problem.m, problem.n, problem.k,
                                   to_string(problem.x_type), name, seed)));
}

}  // namespace

Status PlannedInputs::fill_all(int threads) {
  try {
    for (const auto& [from, to] :
         {std::pair{&x, &host.x}, std::pair{&w, &host.w}, std::pair{&w2, &host.w2},
          std::pair{&x_scale, &host.x_scale}, std::pair{&w_scale, &host.w_scale},
          std::pair{&w2_scale, &host.w2_scale}, std::pair{&w_zero_points, &host.w_zero_points},
          std::pair{&w2_zero_points, &host.w2_zero_points}}) {
      if (from->count == 0 || !to->empty()) continue;
      to->resize(from->bytes());
      fill_random(*from, 0, *to, threads);
    }
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory for {} bytes of operands", x.bytes() + w.bytes() + w2.bytes());
  }
  return {};
}

Result<PlannedInputs> plan_inputs(const Problem& problem, std::uint64_t seed, Signs signs, InitType init,
                                  const Routing& routing, ScaleCodes codes) {
  if (traits(problem.x_type).widen == nullptr || traits(problem.w_type).widen == nullptr)
    return Status::unsupported("no test data for operands of {} and {}", to_string(problem.x_type),
                               to_string(problem.w_type));
  GEMMTUNE_RETURN_IF_ERROR(check_routing(problem, routing));
  const auto stream = [&](const std::string& name) { return stream_of(problem, name, seed); };
  const auto streams = [&](const std::string& name) {
    return MatrixStreams{stream(name), stream(name + " scale"), stream(name + " global scale"),
                         stream(name + " zero points")};
  };
  const OperandShapes shapes = operand_shapes(problem);
  const bool moe = is_mixture(problem);
  const bool whole_codes = codes == ScaleCodes::whole;
  const bool whole = whole_codes && has_whole_powers(problem, shapes);
  const double x_sigma = whole ? 0x1p-40 : 1;
  const double w_sigma = (moe ? 2 : 8) / std::sqrt(static_cast<double>(problem.k));
  PlannedInputs inputs;
  HostOperands& operands = inputs.host;
  const auto put = [](Tensor from, RandomFill& fill, std::vector<std::byte>& bytes) {
    fill = std::move(from.fill);
    bytes = std::move(from.bytes);
  };
  try {
    if (problem.scale_ab) {
      put(tensor(shapes.x.elements(), problem.x_type, 1, stream("x"), signs), inputs.x, operands.x);
      put(tensor(shapes.w.elements(), problem.w_type, 1, stream("w"), signs), inputs.w, operands.w);
      scale_whole_tensors(w_sigma, stream("scales"), operands);
    } else {
      QuantizedMatrix x = matrix_of(shapes.x, x_sigma, streams("x"), init, {whole_codes, 0});
      put(std::move(x.elements), inputs.x, operands.x);
      inputs.x_scale = std::move(x.scale);
      operands.x_global_scale = std::move(x.global_scale);
      // What is between the products of a mixture is multiplied by itself where there is a gate.
      const int w_end = !whole                                  ? 0
                        : moe                                   ? end_of_codes(shapes.w, w_sigma)
                        : shapes.x.scale.type == ScaleType::f32 ? codes_without_float_scale
                                                                : codes_of_e8m0;
      QuantizedMatrix w = matrix_of(shapes.w, w_sigma, streams("w"), init, {whole_codes, w_end});
      put(std::move(w.elements), inputs.w, operands.w);
      inputs.w_scale = std::move(w.scale);
      operands.w_global_scale = std::move(w.global_scale);
      inputs.w_zero_points = std::move(w.zero_points);
    }
    if (moe) {
      const double w2_sigma = 4 / std::sqrt(static_cast<double>(problem.n));
      QuantizedMatrix w2 = matrix_of(shapes.w2, w2_sigma, streams("w2"), InitType::randn,
                                     {whole_codes, whole ? codes_of_e8m0 : 0});
      put(std::move(w2.elements), inputs.w2, operands.w2);
      inputs.w2_scale = std::move(w2.scale);
      operands.w2_global_scale = std::move(w2.global_scale);
      inputs.w2_zero_points = std::move(w2.zero_points);
      Routes routes = routes_of_call(problem, seed, routing, 0);
      operands.topk_ids = std::move(routes.ids);
      operands.topk_weights = std::move(routes.weights);
    }
    // Of the size of what they are added to.
    operands.bias = small_tensor(shapes.bias, moe ? 2 * x_sigma : 4, stream("bias"));
    operands.bias2 = small_tensor(shapes.bias2, 4, stream("bias2"));
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory for the operands of {}", print(problem));
  }
  return inputs;
}

Routes routes_of_call(const Problem& problem, std::uint64_t seed, const Routing& routing, std::int64_t call) {
  return make_routes(problem, routing, call, stream_of(problem, fmt::format("routes {}", call), seed));
}

Result<HostOperands> make_inputs(const Problem& problem, std::uint64_t seed, int threads) {
  GEMMTUNE_TRY(auto inputs, plan_inputs(problem, seed));
  GEMMTUNE_RETURN_IF_ERROR(inputs.fill_all(threads));
  return std::move(inputs.host);
}

}  // namespace gemmtune
