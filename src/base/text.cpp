#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace gemmtune {
namespace {

bool is_blank(char character) {
  return character == ' ' || character == '\t' || character == '\r' || character == '\n';
}

char lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
}

/// The code point that begins `text`, and its bytes; no bytes where it is not UTF-8 (RFC 3629: no overlong
/// form, no surrogate, nothing above U+10FFFF).
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;
};
CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes > text.size()) return {};
  std::uint32_t value = lead & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return {};
    value = value << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (value < least[bytes] || value > 0x10ffff || surrogate) return {};
  return {value, bytes};
}

/// C0, DEL and C1 controls, and what turns the writing direction.
bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string spell_controls(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    const std::size_t bytes = code.bytes == 0 ? 1 : code.bytes;
    if (code.bytes == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (!is_control(code.value) || kept.find(text[0]) != std::string_view::npos) {
      result += text.substr(0, bytes);
    } else {
      result +=
          code.value < 0x80 ? fmt::format("\\x{:02x}", code.value) : fmt::format("\\u{:04x}", code.value);
    }
    text.remove_prefix(bytes);
  }
  return result;
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

namespace {

/// Letters to insert, drop, replace or swap with the next one (optimal string alignment).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    before = std::exchange(row, std::exchange(next, before));
  }
  return row[b.size()];
}

}  // namespace

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  constexpr std::size_t longest = 64;  // no name is as long
  if (word.size() > longest) return {};
  const std::string wanted = to_lower(word);
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string_view nearest;
  for (const std::string_view one : known) {
    const std::size_t distance = edits(wanted, to_lower(one));
    if (distance >= least) continue;
    least = distance;
    nearest = one;
  }
  return nearest;
}

std::string printable(std::string_view text) { return spell_controls(text, "\n\t"); }

std::string printable_word(std::string_view text) { return spell_controls(text, {}); }

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
