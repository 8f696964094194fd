#include "verify/random_fill.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/enumerators.h"
#include "base/threads.h"

namespace gemmtune {
namespace {

constexpr std::size_t min_elements_per_thread = std::size_t{1} << 18;  // fewer are not worth a thread

// Elements first … first + out.size() − 1; `first` is a multiple of four.
template <typename Element>
void fill_part(const RandomFill& from, std::size_t first, std::span<Element> out) {
  std::array<Element, RandomFill::table_size> table;
  std::memcpy(table.data(), from.table.data(), sizeof(table));
  Random random = from.random;
  random.skip(first / 4);
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const std::uint64_t bits = random.next();
    const std::array<Element, 4> four = {table[bits & 4095], table[(bits >> 16) & 4095],
                                         table[(bits >> 32) & 4095], table[(bits >> 48) & 4095]};
    std::memcpy(out.data() + i, four.data(), std::min<std::size_t>(4, out.size() - i) * sizeof(Element));
  }
}

template <typename Element>
void fill_elements(const RandomFill& from, std::size_t first, std::span<Element> out, int threads) {
  // Up to the next multiple of four by way of a few elements more.
  if (first % 4 != 0) {
    std::array<Element, 4> four;
    const std::size_t before = first % 4;
    const std::size_t count = std::min(4 - before, out.size());
    fill_part<Element>(from, first - before, four);
    std::copy_n(four.begin() + static_cast<std::ptrdiff_t>(before), count, out.begin());
    out = out.subspan(count);
    first += count;
  }
  const std::size_t parts = std::clamp<std::size_t>(out.size() / min_elements_per_thread, 1,
                                                    static_cast<std::size_t>(std::max(1, threads)));
  const std::size_t share = (out.size() / parts + 3) / 4 * 4;
  const auto work = [&](std::size_t part) {
    const std::size_t begin = std::min(out.size(), part * share);
    const std::size_t end = part + 1 == parts ? out.size() : std::min(out.size(), begin + share);
    fill_part<Element>(from, first + begin, out.subspan(begin, end - begin));
  };
  run_on_threads(static_cast<int>(parts), [&](int part) { work(static_cast<std::size_t>(part)); });
}

/// Pairs of numbers: each with its negative, or twice.
template <typename Element, typename Draw>
void fill_table(DataType type, Signs signs, const Draw& draw, std::vector<std::byte>& bytes) {
  std::array<Element, RandomFill::table_size> table;
  for (std::size_t i = 0; i < table.size(); i += 2) {
    const float value = signs == Signs::one ? std::fabs(draw()) : draw();
    table[i] = static_cast<Element>(traits(type).from_f32(value));
    table[i + 1] = static_cast<Element>(traits(type).from_f32(signs == Signs::one ? value : -value));
  }
  bytes.resize(sizeof(table));
  std::memcpy(bytes.data(), table.data(), sizeof(table));
}

/// Calls with a value of the unsigned type that has the element's bytes.
template <typename Call>
void with_element(std::size_t element_bytes, const Call& call) {
  if (element_bytes == 4) call(std::uint32_t{});
  if (element_bytes == 2) call(std::uint16_t{});
  if (element_bytes == 1) call(std::uint8_t{});
}

template <typename Draw>
RandomFill fill_of(DataType type, std::size_t count, Signs signs, Random& random, const Draw& draw) {
  RandomFill made;
  made.element_bytes = static_cast<std::size_t>(bits(type)) / 8;
  made.count = count;
  with_element(made.element_bytes,
               [&](auto element) { fill_table<decltype(element)>(type, signs, draw, made.table); });
  made.random = random;
  return made;
}

constexpr EnumeratorNames<InitType, 4> init_types({{InitType::randn, "randn"},
                                                   {InitType::hpl, "hpl"},
                                                   {InitType::trig_float, "trig_float"},
                                                   {InitType::zeros, "zeros"}});

template <typename Element>
std::span<Element> elements_of(std::span<std::byte> bytes) {
  return {reinterpret_cast<Element*>(bytes.data()), bytes.size() / sizeof(Element)};
}

}  // namespace

float near_normal(Random& random) {
  const std::uint64_t bits = random.next();
  std::int64_t sum = 0;
  for (int part = 0; part < 4; ++part) sum += static_cast<std::int64_t>((bits >> (16 * part)) & 0xffff);
  constexpr double sigma = 37837.227;  // of the sum: √(4·(2³² − 1)/12)
  return static_cast<float>((static_cast<double>(sum) - 131070.0) / sigma);
}

RandomFill random_fill(DataType type, std::size_t count, double sigma, Random random, Signs signs) {
  const auto draw = [&] { return static_cast<float>(sigma) * near_normal(random); };
  return fill_of(type, count, signs, random, draw);
}

RandomFill random_fill(DataType type, std::size_t count, InitType init, Random random) {
  const auto draw = [&] {
    return init == InitType::zeros ? 0.0F : static_cast<float>(random.uniform() - 0.5);
  };
  // Zeros have no negative: it has another sign bit.
  return fill_of(type, count, init == InitType::zeros ? Signs::one : Signs::both, random, draw);
}

std::vector<std::byte> sine_fill(DataType type, std::size_t count) {
  std::vector<std::byte> bytes(count * static_cast<std::size_t>(bits(type)) / 8);
  with_element(static_cast<std::size_t>(bits(type)) / 8, [&](auto element) {
    using Element = decltype(element);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value =
          static_cast<Element>(traits(type).from_f32(static_cast<float>(std::sin(static_cast<double>(i)))));
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    }
  });
  return bytes;
}

std::string_view to_string(InitType type) { return init_types.of(type); }
std::optional<InitType> parse_init_type(std::string_view text) { return init_types.find(text); }

void fill_random(const RandomFill& from, std::size_t first, std::span<std::byte> out, int threads) {
  with_element(from.element_bytes, [&](auto element) {
    fill_elements(from, first, elements_of<decltype(element)>(out), threads);
  });
}

}  // namespace gemmtune
