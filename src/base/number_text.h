// Numbers that people type: options and environment variables. Errors name the option or variable, its text
// and the range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gemmtune {

/// `text` as a whole number from `min` to `max`; else invalid_argument that names `name`, the text and the
/// range.
Result<std::int64_t> whole_number(std::string_view name, std::string_view text, std::int64_t min,
                                  std::int64_t max);
/// The same for a finite number.
Result<double> finite_number(std::string_view name, std::string_view text, double min, double max);

/// An environment variable that holds a number. It is checked by who uses it, so that a variable of the
/// command line does not fail a program that only calls the library.
struct NumberVariable {
  std::string_view name;
  std::string text = {};  // as set; empty: not set

  /// The whole number, nullopt if the variable is not set.
  Result<std::optional<std::int64_t>> read(std::int64_t min, std::int64_t max) const;
  /// The same for one that need not be whole.
  Result<std::optional<double>> read_finite(double min, double max) const;
};

}  // namespace gemmtune
