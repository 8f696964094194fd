// Random elements as a recipe: a table of values and the state of a generator. Whoever follows it, on a host
// with any number of threads or on a device, gets the same numbers, and any part of them alone.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "numbers/data_type.h"

namespace gemmtune {

/// Element i is an entry of the table: that of bits 16·(i % 4) … 16·(i % 4) + 11 of the generator's number
/// i / 4. No period, four elements for one step of the generator: a step per element would take ten
/// times as long, which counts for weights of 10⁸ elements.
struct RandomFill {
  static constexpr std::size_t table_size = 4096;

  std::vector<std::byte> table;  // table_size elements
  std::size_t element_bytes = 1;
  std::size_t count = 0;  // elements; of fp4, two of which share an entry, bytes
  Random random{0};       // before number 0

  std::size_t bytes() const { return count * element_bytes; }
};

/// Of random elements. `one`: none is negative, so that an error in one direction adds up.
enum class Signs { both, one };

/// What x and w are filled with: near-normal numbers, or as tune_gemm's --init_type says: uniform from -0.5 to 0.5,
/// the sine of an element's index, or zeros.
enum class InitType { randn, hpl, trig_float, zeros };
/// "randn", "hpl", "trig_float", "zeros".
std::string_view to_string(InitType type);
std::optional<InitType> parse_init_type(std::string_view text);

/// Near-normal elements of σ; each value of the table has its negative, so that the mean is exactly 0. With
/// Signs::one their magnitudes. Requires a readable type with whole bytes.
RandomFill random_fill(DataType type, std::size_t count, double sigma, Random random,
                       Signs signs = Signs::both);

/// The same of numbers that are uniform from -0.5 to 0.5, or of zeros. Requires one of these two.
RandomFill random_fill(DataType type, std::size_t count, InitType init, Random random);

/// Element i is the sine of i. Requires a readable type with whole bytes.
std::vector<std::byte> sine_fill(DataType type, std::size_t count);

/// Elements first … of `from` into `out`, as many as fit; they must exist. By up to `threads` threads.
void fill_random(const RandomFill& from, std::size_t first, std::span<std::byte> out, int threads = 1);

/// Sum of four uniform 16-bit numbers, centred and scaled to σ = 1: close to normal, in exact integer
/// arithmetic up to one division, so that it is the same on every machine. |value| ≤ 3.47.
float near_normal(Random& random);

}  // namespace gemmtune
