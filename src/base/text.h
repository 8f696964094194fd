// Strict reading of numbers and words out of text: the whole text must be the value.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune {

/// Without blanks, tabs and carriage returns at both ends.
std::string_view trim(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
/// The answers are views into their argument: a temporary string would leave them dangling.
template <std::same_as<std::string> Temporary>
std::string_view trim(Temporary&& text) = delete;
template <std::same_as<std::string> Temporary>
std::vector<std::string_view> split(Temporary&& text, char separator) = delete;
std::string to_lower(std::string_view text);
/// `end`: in lower case; the text in any.
bool ends_in(std::string_view text, std::string_view end);
/// Decimal with optional sign; nothing else in the text, no overflow; "12.0" is accepted as 12.
std::optional<std::int64_t> parse_integer(std::string_view text);
/// Decimal or scientific; "inf", "nan" (any case) are accepted as such.
std::optional<double> parse_number(std::string_view text);
/// True/true/TRUE/1 and False/false/FALSE/0.
std::optional<bool> parse_bool(std::string_view text);
/// The known word that `word` was probably meant to be: of the fewest letters to insert, drop, replace or swap with the next one, at most a
/// third of the word's and case aside; of two the first. Empty where none is that near.
std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known);
/// `text` as a terminal may get it: control characters, overrides of the writing direction and bytes that are
/// no UTF-8 are spelled \x1b, \u202e, \xff. A file's names could otherwise move the cursor, set the title or
/// hide what follows. Line feeds and tabs stay.
std::string printable(std::string_view text);
/// The same for a part of a line: line feeds and tabs are spelled too.
std::string printable_word(std::string_view text);
/// The texts of a range's elements with `separator` between them; `text`: an element's, or its member.
template <typename Range, typename Text = std::identity>
std::string joined(const Range& range, std::string_view separator, Text text = {}) {
  std::string all;
  for (const auto& element : range) {
    if (!all.empty()) all += separator;
    all += std::invoke(text, element);
  }
  return all;
}
/// What joined() calls for enumerators.
inline constexpr auto enumerator_name = [](const auto& value) { return to_string(value); };
/// Python's spelling of a float rounded to `digits` decimals: shortest text that reads back, always with a
/// point.
std::string python_float(double value, int digits);

}  // namespace gemmtune
