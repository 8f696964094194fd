// A condition on integers, as text: "k % sk != 0 and (k / sk) % 64 == 0".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace gemmtune {

/// Whole numbers, names, + - * / % (of C++), comparisons, `and`, `or`, `not` and parentheses. A comparison is
/// 1 or 0; every value but 0 is true. `and` and `or` evaluate their right side only if it decides.
class IntegerExpression {
 public:
  /// The longest text: terms of one level nest as deep as there are of them.
  static constexpr std::size_t max_characters = 1024;

  /// invalid_argument with the position and what was expected, and for a text above max_characters.
  static Result<IntegerExpression> parse(std::string_view text);

  const std::string& text() const { return text_; }
  /// Each name once, in the order of the text.
  const std::vector<std::string>& names() const { return names_; }
  /// nullopt for a division by zero, an overflow of 64 bits, or a name without a value.
  std::optional<std::int64_t> evaluate(
      const std::function<std::optional<std::int64_t>(std::string_view name)>& value_of) const;

  enum class Operator;  // of a node of the parsed text

 private:
  struct Node;
  class Parser;
  std::string text_;
  std::vector<std::string> names_;
  std::shared_ptr<const Node> root_;
};

}  // namespace gemmtune
