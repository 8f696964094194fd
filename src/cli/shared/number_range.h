// A check for numbers of options.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/number_text.h"

namespace gemmtune::cli {

/// Refuses what is no finite number from `min` to `max`; CLI::Range takes NaN.
inline CLI::Validator number_range(double min, double max) {
  return CLI::Validator(
      [min, max](std::string& text) { return finite_number("value", text, min, max).message(); }, "NUMBER");
}

}  // namespace gemmtune::cli
