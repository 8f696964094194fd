#include "base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace gemmtune {
namespace {

bool is_blank(char character) {
  return character == ' ' || character == '\t' || character == '\r' || character == '\n';
}

char lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

}  // namespace

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  for (char& character : result) character = lower(character);
  return result;
}

bool ends_in(std::string_view text, std::string_view end) { return to_lower(text).ends_with(end); }

std::optional<std::int64_t> parse_integer(std::string_view text) {
  text = trim(text);
  // pandas writes a column of integers with one missing cell as floats: 12.0 is 12.
  if (const auto point = text.find('.'); point != std::string_view::npos && point > 0) {
    const auto fraction = text.substr(point + 1);
    if (fraction.empty() || fraction.find_first_not_of('0') != std::string_view::npos) return std::nullopt;
    text = text.substr(0, point);
  }
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return std::nullopt;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  text = trim(text);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range && end == text.data() + text.size()) {
    // from_chars leaves the value alone; what cannot be told apart from 0 or infinity is no number of ours.
    return std::nullopt;
  }
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  const std::string word = to_lower(trim(text));
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  return std::nullopt;
}

std::string python_float(double value, int digits) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Python's round() is correctly rounded on the binary value, half to even; so is formatting with a fixed
  // count of decimals. Reading that back and printing the shortest text gives what repr(round(value, digits))
  // gives.
  const double rounded = *parse_number(fmt::format("{:.{}f}", value, digits));
  std::string text = fmt::format("{}", rounded);
  // fmt omits the point of whole numbers and pads no exponent below two digits, as Python does not.
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace gemmtune
