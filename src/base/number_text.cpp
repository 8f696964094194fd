#include "base/number_text.h"

#include <cmath>

#include "base/text.h"

namespace gemmtune {

Result<std::int64_t> whole_number(std::string_view name, std::string_view text, std::int64_t min,
                                  std::int64_t max) {
  const auto value = parse_integer(text);
  if (value && *value >= min && *value <= max) return *value;
  return Status::invalid("{} {}: expected a whole number from {} to {}", name, text, min, max);
}

Result<double> finite_number(std::string_view name, std::string_view text, double min, double max) {
  const auto value = parse_number(text);
  if (value && std::isfinite(*value) && *value >= min && *value <= max) return *value;
  return Status::invalid("{} {}: expected a number from {} to {}", name, text, min, max);
}

Result<std::optional<std::int64_t>> NumberVariable::read(std::int64_t min, std::int64_t max) const {
  if (text.empty()) return std::optional<std::int64_t>();
  GEMMTUNE_TRY(const auto value, whole_number(name, text, min, max));
  return std::optional(value);
}

Result<std::optional<double>> NumberVariable::read_finite(double min, double max) const {
  if (text.empty()) return std::optional<double>();
  GEMMTUNE_TRY(const auto value, finite_number(name, text, min, max));
  return std::optional(value);
}

}  // namespace gemmtune
