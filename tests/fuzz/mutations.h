// Inputs made of seeds: each a few changes away from one of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gemmtune::fuzz {

class Mutator {
 public:
  /// Seeds are cut to `max_bytes`; there must be one.
  Mutator(std::uint64_t seed, std::vector<std::string> seeds) : random_(seed), seeds_(std::move(seeds)) {
    for (std::string& text : seeds_) text.resize(std::min(text.size(), max_bytes));
  }

  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(text);
    text.resize(std::min(text.size(), 2 * max_bytes));
    return text;
  }

 private:
  static constexpr std::size_t max_bytes = std::size_t{1} << 14;

  /// 0 … count - 1; 0 for a count of 0.
  std::size_t below(std::size_t count) {
    return count == 0 ? 0 : static_cast<std::size_t>(random_() % count);
  }

  void change(std::string& text) {
    switch (below(10)) {
      case 0:
        return flip_bytes(text);
      case 1:
        return text.resize(below(text.size() + 1));
      case 2:
        return splice(text);
      case 3:
        return replace_number(text);
      case 4:
        return insert(text, std::string(1 + below(3), '\0'));
      case 5:
        return repeat_line(text);
      case 6:
        return insert(text, repeated(pick(openers), 1 + below(below(2) == 0 ? 20 : max_bytes)));
      case 7:
        return insert(text, std::string(pick(words)));
      case 8:
        return erase_range(text);
      default:
        return insert(text, std::string(1, static_cast<char>(random_())));
    }
  }

  void flip_bytes(std::string& text) {
    for (std::size_t count = 1 + below(8); count > 0 && !text.empty(); --count) {
      text[below(text.size())] ^= static_cast<char>(1 << below(8));
    }
  }

  void splice(std::string& text) {
    const std::string& other = seeds_[below(seeds_.size())];
    text.resize(below(text.size() + 1));
    text += other.substr(below(other.size() + 1));
  }

  void replace_number(std::string& text) {
    const std::size_t begin = text.find_first_of("0123456789", below(text.size() + 1));
    if (begin == std::string::npos) return insert(text, std::string(pick(numbers)));
    const std::size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    text.replace(begin, end - begin, number());
  }

  /// What stands in a number's place: another one, one of many digits, or lists in lists.
  std::string number() {
    const std::size_t kind = below(8);
    if (kind == 0) return std::string(1 + below(5000), '9');
    if (kind > 1) return std::string(pick(numbers));
    const std::size_t depth = 1 + below(below(2) == 0 ? 100 : max_bytes);
    return repeated("[", depth) + "1" + repeated("]", depth);
  }

  void repeat_line(std::string& text) {
    const std::size_t begin = text.rfind('\n', below(text.size() + 1));
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    const std::size_t newline = text.find('\n', from);
    const std::string line = text.substr(from, newline == std::string::npos ? newline : newline + 1 - from);
    text.insert(from, repeated(line, 1 + below(below(4) == 0 ? 50 : 3)));
  }

  void erase_range(std::string& text) {
    const std::size_t begin = below(text.size() + 1);
    text.erase(begin, 1 + below(below(2) == 0 ? 4 : 200));
  }

  void insert(std::string& text, const std::string& piece) { text.insert(below(text.size() + 1), piece); }

  static std::string repeated(std::string_view piece, std::size_t count) {
    std::string text;
    while (count-- > 0 && text.size() < max_bytes) text += piece;
    return text;
  }

  template <std::size_t Count>
  std::string_view pick(const std::array<std::string_view, Count>& from) {
    return from[below(Count)];
  }

  static constexpr std::array<std::string_view, 9> openers{"[", "{",  "{\"a\":", "- ", "? ",
                                                           "(", "\"", "\n ",     "[]"};
  static constexpr std::array<std::string_view, 16> numbers{"0",
                                                            "-1",
                                                            "1e999",
                                                            "1e-999",
                                                            "0.5",
                                                            "2147483647",
                                                            "2147483648",
                                                            "9223372036854775807",
                                                            "inf",
                                                            "nan",
                                                            "-0",
                                                            "1.0",
                                                            "007",
                                                            "9223372036854775808",
                                                            "18446744073709551616",
                                                            "0x10"};
  static constexpr std::array<std::string_view, 24> words{
      ",",    "\n",      "\r\n",  "\r",  "\"",           "'",
      "#",    ":",       ": ",    "&a ", "*a",           "!!int ",
      "null", "true",    "False", "~",   "\xEF\xBB\xBF", "\xFF\xFE",
      "\xC3", "\\u0000", "\\",    "<?>", " \t",          "---\n"};

  std::mt19937_64 random_;
  std::vector<std::string> seeds_;
};

}  // namespace gemmtune::fuzz
