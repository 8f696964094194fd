// A call of silu_and_mul on random elements, with gaps behind rows, and what its result must be.
#pragma once

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "backends/silu_and_mul.h"
#include "base/random.h"
#include "support/elements.h"
#include "verify/random_fill.h"

namespace gemmtune::testing {

/// gate and up are columns of one matrix with `gap` elements behind each row; y has `gap` elements behind each too. No operand
/// begins at an alignment beyond its elements' where `shift` is 1.
class SiluAndMulCase {
 public:
  SiluAndMulCase(DataType type, std::int64_t rows, std::int64_t columns, std::int64_t gap = 0,
                 std::int64_t shift = 0)
      : shift_(shift),
        both_(bytes(type, shift + rows * (2 * columns + gap))),
        y_(bytes(type, shift + rows * (columns + gap))) {
    call_.type = type;
    call_.rows = rows;
    call_.columns = columns;
    call_.ldgate = call_.ldup = 2 * columns + gap;
    call_.ldy = columns + gap;
    Random random(7);
    for (std::int64_t i = 0; i < rows * call_.ldgate; ++i)
      store(type, both_.data(), shift + i, 4 * near_normal(random));
    for (std::int64_t i = 0; i < shift + rows * call_.ldy; ++i) store(type, y_.data(), i, untouched);
    // The ends of the range, and what is no number, where they fit.
    const float special[] = {0, -100, 100, -3e4F, std::nanf("")};
    for (std::int64_t i = 0; i < 5 && i < columns; ++i) store(type, both_.data(), shift + i, special[i]);
  }

  std::vector<std::byte>& inputs() { return both_; }
  std::vector<std::byte>& output() { return y_; }
  /// With these copies of inputs() and output().
  SiluAndMul call(const void* inputs, void* output) const {
    SiluAndMul call = call_;
    call.gate = static_cast<const char*>(inputs) + bytes_of(call.type, shift_);
    call.up = static_cast<const char*>(call.gate) + bytes_of(call.type, call.columns);
    call.y = static_cast<char*>(output) + bytes_of(call.type, shift_);
    return call;
  }

  /// "", or what is wrong with `output`. One rounding to the type, and a few units in the last place of float32.
  std::string wrong(const void* output) const {
    const DataType type = call_.type;
    const double unit = type == DataType::f32 ? 0x1p-21 : type == DataType::f16 ? 0x1p-11 : 0x1p-8;
    std::ostringstream text;
    for (std::int64_t row = 0; row < call_.rows; ++row)
      for (std::int64_t i = 0; i < call_.ldy; ++i) {
        const float found = load_element(type, output, shift_ + row * call_.ldy + i);
        if (i >= call_.columns) {
          if (found != untouched) text << "row " << row << ": element " << i << " behind it was written\n";
          continue;
        }
        const double gate = load_element(type, both_.data(), shift_ + row * call_.ldgate + i);
        const double up = load_element(type, both_.data(), shift_ + row * call_.ldup + call_.columns + i);
        const double exact = gate / (1 + std::exp(-gate)) * up;
        const bool right = std::isnan(exact)
                               ? std::isnan(found)
                               : std::abs(found - exact) <= std::abs(exact) * unit * 1.01 + 1e-7;
        if (!right)
          text << "row " << row << ", column " << i << ": " << found << ", expected " << exact << "\n";
      }
    return text.str().substr(0, 1000);
  }

 private:
  static constexpr float untouched = -7;
  static std::size_t bytes(DataType type, std::int64_t elements) {
    return static_cast<std::size_t>(bytes_of(type, elements));
  }

  std::int64_t shift_;
  std::vector<std::byte> both_;
  std::vector<std::byte> y_;
  SiluAndMul call_;
};

}  // namespace gemmtune::testing
