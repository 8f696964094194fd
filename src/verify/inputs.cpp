#include "verify/inputs.h"

#include <array>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

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

std::vector<std::byte> tensor(std::int64_t elements, DataType type, double sigma, Random random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * element_bytes(type));
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

}  // namespace

Result<HostOperands> make_inputs(const Problem& problem, std::uint64_t seed) {
  if (!readable(problem.x_type) || !readable(problem.w_type))
    return Status::unsupported("no test data for operands of {} and {}", to_string(problem.x_type),
                               to_string(problem.w_type));
  if (problem.batch != 1) return Status::unsupported("no test data for batch = {}", problem.batch);
  // Layout is left out: one weight serves all layouts.
  const std::string text =
      fmt::format("{} {} {} {}", problem.m, problem.n, problem.k, to_string(problem.x_type));
  const auto stream = [&](const char* name) {
    return Random(hash64(fmt::format("{} {} {}", text, name, seed)));
  };
  HostOperands operands;
  double w_sigma = 8 / std::sqrt(static_cast<double>(problem.k));
  if (problem.scale_ab) {
    // The weight's range goes into its scale, as quantizers do. The scales lie in ranges that do not meet: a
    // kernel that mistakes one for the other is seen.
    Random random = stream("scales");
    operands.x_scale = static_cast<float>(4 + 2 * random.uniform());
    operands.w_scale = static_cast<float>(w_sigma / 5 * (0.75 + 0.5 * random.uniform()));
    w_sigma = 1;
  }
  try {
    operands.x = tensor(problem.m * problem.k, problem.x_type, 1, stream("x"));
    operands.w = tensor(problem.n * problem.k, problem.w_type, w_sigma, stream("w"));
    if (problem.bias) operands.bias = tensor(problem.n, problem.y_type, 4, stream("bias"));
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory("no memory for the operands of {}", print(problem));
  }
  return operands;
}

}  // namespace gemmtune
