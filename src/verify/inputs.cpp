#include "verify/inputs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "verify/element.h"

namespace gemmtune {
namespace {

constexpr std::size_t table_size = 4096;

// Sum of four uniform 16-bit numbers, centred and scaled to σ = 1: close to normal, in exact integer
// arithmetic up to one division, so that it is the same on every machine. |value| ≤ 3.47.
float near_normal(Random& random) {
  const std::uint64_t bits = random.next();
  std::int64_t sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<std::int64_t>((bits >> (16 * part)) & 0xffff);
  constexpr double sigma = 37837.227;  // of the sum: √(4·(2³² − 1)/12)
  return static_cast<float>((static_cast<double>(sum) - 131070.0) / sigma);
}

// Every element is drawn from a table of 4096 values (each with its negative, so that the mean is exactly 0)
// by 12 random bits: no period, four elements for one step of the generator. Drawing each element anew would
// take ten times as long, which counts for weights of 10⁸ elements.
template <typename Element>
void fill(std::span<std::byte> bytes, DataType type, double sigma, Random random) {
  std::array<Element, table_size> table;
  for (std::size_t i = 0; i < table_size; i += 2) {
    const float value = static_cast<float>(sigma) * near_normal(random);
    table[i] = static_cast<Element>(encode_element(type, value));
    table[i + 1] = static_cast<Element>(encode_element(type, -value));
  }
  const std::size_t count = bytes.size() / sizeof(Element);
  std::byte* out = bytes.data();
  for (std::size_t i = 0; i < count; i += 4) {
    const std::uint64_t bits = random.next();
    const std::array<Element, 4> four = {table[bits & 4095], table[(bits >> 16) & 4095],
                                         table[(bits >> 32) & 4095], table[(bits >> 48) & 4095]};
    std::memcpy(out + i * sizeof(Element), four.data(),
                std::min<std::size_t>(4, count - i) * sizeof(Element));
  }
}

// As `fill`, of bytes that hold two elements each.
void fill_pairs(std::span<std::byte> bytes, double sigma, Random random) {
  std::array<std::uint8_t, table_size> table;
  const auto element = [&] {
    return encode_element(DataType::f4_e2m1, static_cast<float>(sigma) * near_normal(random));
  };
  for (std::uint8_t& pair : table) pair = static_cast<std::uint8_t>(element() | element() << 4);
  for (std::byte& byte : bytes) byte = std::byte{table[random.next() >> 52]};
}

std::vector<std::byte> tensor(std::int64_t elements, DataType type, double sigma, Random random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(type, elements)));
  if (type == DataType::f4_e2m1) {
    fill_pairs(bytes, sigma, random);
    return bytes;
  }
  switch (element_bytes(type)) {
    case 4:
      fill<std::uint32_t>(bytes, type, sigma, random);
      break;
    case 2:
      fill<std::uint16_t>(bytes, type, sigma, random);
      break;
    default:
      fill<std::uint8_t>(bytes, type, sigma, random);
      break;
  }
  return bytes;
}

// σ of the elements of a quantized type, so that few reach the end of its range.
double element_sigma(DataType type) {
  if (type == DataType::i8) return 36;
  return type == DataType::f4_e2m1 ? 1.7 : 64;
}

// Random scales around `size`, each within a factor of three.
std::vector<std::byte> scales(const MatrixShape& matrix, double size, Random random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.scale_bytes()));
  if (matrix.scale.type == ScaleType::e8m0) {
    const int exponent = std::ilogb(size);
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(127 + exponent - 1 + static_cast<int>(random.below(3)));
    return bytes;
  }
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    const auto scale = static_cast<float>(size * (0.5 + random.uniform()));
    std::memcpy(bytes.data() + at, &scale, sizeof(scale));
  }
  return bytes;
}

struct QuantizedMatrix {
  std::vector<std::byte> elements;
  std::vector<std::byte> scale;
};

QuantizedMatrix matrix_of(const MatrixShape& shape, double sigma, const Random& elements,
                          const Random& scale) {
  if (shape.scale.type == ScaleType::none) return {tensor(shape.elements(), shape.type, sigma, elements), {}};
  const double own = element_sigma(shape.type);
  return {tensor(shape.elements(), shape.type, own, elements), scales(shape, sigma / own, scale)};
}

// The weight's range goes into its scale, as quantizers do. The scales lie in ranges that do not meet: a
// kernel that mistakes one for the other is seen.
void scale_whole_tensors(double w_sigma, Random random, HostOperands& operands) {
  const auto put = [](double scale, std::vector<std::byte>& bytes) {
    const auto single = static_cast<float>(scale);
    bytes.resize(sizeof(single));
    std::memcpy(bytes.data(), &single, sizeof(single));
  };
  put(4 + 2 * random.uniform(), operands.x_scale);
  put(w_sigma / 5 * (0.75 + 0.5 * random.uniform()), operands.w_scale);
}

// Experts at random, those of small number more often; weights as after a softmax over the chosen ones.
void route(const Problem& problem, Random random, HostOperands& operands) {
  const auto topk = static_cast<std::size_t>(problem.moe.topk);
  for (std::int64_t token = 0; token < problem.m; ++token) {
    const std::size_t first = operands.topk_ids.size();
    double sum = 0;
    while (operands.topk_ids.size() < first + topk) {
      const double skewed = random.uniform() * (0.5 + 0.5 * random.uniform());
      auto expert = static_cast<std::int32_t>(skewed * problem.moe.experts);
      const auto begin = operands.topk_ids.begin() + static_cast<std::ptrdiff_t>(first);
      while (std::find(begin, operands.topk_ids.end(), expert) != operands.topk_ids.end())
        expert = (expert + 1) % problem.moe.experts;
      operands.topk_ids.push_back(expert);
      operands.topk_weights.push_back(static_cast<float>(0.2 + random.uniform()));
      sum += static_cast<double>(operands.topk_weights.back());
    }
    for (std::size_t slot = first; slot < first + topk; ++slot)
      operands.topk_weights[slot] /= static_cast<float>(sum);
  }
}

}  // namespace

Result<HostOperands> make_inputs(const Problem& problem, std::uint64_t seed) {
  if (!readable(problem.x_type) || !readable(problem.w_type))
    return Status::unsupported("no test data for operands of {} and {}", to_string(problem.x_type),
                               to_string(problem.w_type));
  // Layout is left out: one weight serves all layouts.
  const std::string text =
      fmt::format("{} {} {} {}", problem.m, problem.n, problem.k, to_string(problem.x_type));
  const auto stream = [&](const char* name) {
    return Random(hash64(fmt::format("{} {} {}", text, name, seed)));
  };
  const OperandShapes shapes = operand_shapes(problem);
  const bool moe = problem.operation == Operation::fused_moe;
  const double w_sigma = (moe ? 2 : 8) / std::sqrt(static_cast<double>(problem.k));
  HostOperands operands;
  try {
    if (problem.scale_ab) {
      operands.x = tensor(shapes.x.elements(), problem.x_type, 1, stream("x"));
      operands.w = tensor(shapes.w.elements(), problem.w_type, 1, stream("w"));
      scale_whole_tensors(w_sigma, stream("scales"), operands);
    } else {
      QuantizedMatrix x = matrix_of(shapes.x, 1, stream("x"), stream("x scale"));
      operands.x = std::move(x.elements);
      operands.x_scale = std::move(x.scale);
      QuantizedMatrix w = matrix_of(shapes.w, w_sigma, stream("w"), stream("w scale"));
      operands.w = std::move(w.elements);
      operands.w_scale = std::move(w.scale);
    }
    if (moe) {
      const double w2_sigma = 4 / std::sqrt(static_cast<double>(problem.n));
      QuantizedMatrix w2 = matrix_of(shapes.w2, w2_sigma, stream("w2"), stream("w2 scale"));
      operands.w2 = std::move(w2.elements);
      operands.w2_scale = std::move(w2.scale);
      route(problem, stream("routes"), operands);
    }
    if (problem.bias) operands.bias = tensor(problem.n, problem.y_type, 4, stream("bias"));
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory for the operands of {}", print(problem));
  }
  return operands;
}

}  // namespace gemmtune
