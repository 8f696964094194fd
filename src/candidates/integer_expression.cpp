#include "candidates/integer_expression.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <utility>

#include "base/text.h"

namespace gemmtune {

enum class IntegerExpression::Operator {
  number,
  name,
  add,
  subtract,
  multiply,
  divide,
  modulo,
  equal,
  unequal,
  less,
  less_equal,
  greater,
  greater_equal,
  both,
  either,
  negation
};

namespace {

using Operator = IntegerExpression::Operator;

struct Spelling {
  std::string_view text;
  Operator meaning;
};

// By precedence, the loosest first; within a level longer spellings before their prefixes.
constexpr std::array<std::array<Spelling, 6>, 5> levels{{
    {{{"or", Operator::either}}},
    {{{"and", Operator::both}}},
    {{{"==", Operator::equal},
      {"!=", Operator::unequal},
      {"<=", Operator::less_equal},
      {">=", Operator::greater_equal},
      {"<", Operator::less},
      {">", Operator::greater}}},
    {{{"+", Operator::add}, {"-", Operator::subtract}}},
    {{{"*", Operator::multiply}, {"/", Operator::divide}, {"%", Operator::modulo}}},
}};
constexpr std::size_t max_depth = 64;

bool begins_name(char letter) {
  return std::isalpha(static_cast<unsigned char>(letter)) != 0 || letter == '_';
}
bool continues_name(char letter) {
  return begins_name(letter) || std::isdigit(static_cast<unsigned char>(letter));
}

std::optional<std::int64_t> calculate(Operator meaning, std::int64_t a, std::int64_t b) {
  std::int64_t value = 0;
  switch (meaning) {
    case Operator::add:
      return __builtin_add_overflow(a, b, &value) ? std::nullopt : std::optional(value);
    case Operator::subtract:
      return __builtin_sub_overflow(a, b, &value) ? std::nullopt : std::optional(value);
    case Operator::multiply:
      return __builtin_mul_overflow(a, b, &value) ? std::nullopt : std::optional(value);
    case Operator::divide:
    case Operator::modulo:
      if (b == 0 || (b == -1 && a == std::numeric_limits<std::int64_t>::min())) return std::nullopt;
      return meaning == Operator::divide ? a / b : a % b;
    case Operator::equal:
      return a == b;
    case Operator::unequal:
      return a != b;
    case Operator::less:
      return a < b;
    case Operator::less_equal:
      return a <= b;
    case Operator::greater:
      return a > b;
    case Operator::greater_equal:
      return a >= b;
    default:
      return std::nullopt;
  }
}

}  // namespace

struct IntegerExpression::Node {
  Operator meaning = Operator::number;
  std::int64_t number = 0;
  std::string name;
  std::shared_ptr<const Node> left;
  std::shared_ptr<const Node> right;

  std::optional<std::int64_t> evaluate(
      const std::function<std::optional<std::int64_t>(std::string_view)>& value_of) const {
    if (meaning == Operator::number) return number;
    if (meaning == Operator::name) return value_of(name);
    const auto a = left->evaluate(value_of);
    if (!a) return std::nullopt;
    if (meaning == Operator::negation) return *a == 0;
    if (meaning == Operator::both && *a == 0) return 0;
    if (meaning == Operator::either && *a != 0) return 1;
    const auto b = right->evaluate(value_of);
    if (!b) return std::nullopt;
    if (meaning == Operator::both || meaning == Operator::either) return *b != 0;
    return calculate(meaning, *a, *b);
  }
};

class IntegerExpression::Parser {
 public:
  using NodePtr = std::shared_ptr<const Node>;

  explicit Parser(std::string_view text) : text_(text) {}

  Result<NodePtr> run() {
    GEMMTUNE_TRY(auto root, binary(0));
    skip_blanks();
    if (at_ != text_.size()) return error("an operator or the end");
    return root;
  }
  std::vector<std::string> names() { return std::move(names_); }

 private:
  Status error(std::string_view expected) const {
    return Status::invalid("'{}', character {}: expected {}", text_, at_ + 1, expected);
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  /// Takes the spelling if it comes next: a word only as a whole.
  bool take(std::string_view spelling) {
    skip_blanks();
    if (spelling.empty() || !text_.substr(at_).starts_with(spelling)) return false;
    const std::size_t end = at_ + spelling.size();
    if (begins_name(spelling.front()) && end < text_.size() && continues_name(text_[end])) return false;
    at_ = end;
    return true;
  }

  Result<NodePtr> binary(std::size_t level) {
    if (level == levels.size()) return unary();
    auto left = binary(level + 1);
    while (left.ok()) {
      const auto found = std::find_if(levels[level].begin(), levels[level].end(),
                                      [&](const Spelling& one) { return take(one.text); });
      if (found == levels[level].end()) break;
      GEMMTUNE_TRY(auto right, binary(level + 1));
      left = std::make_shared<const Node>(Node{found->meaning, 0, {}, *left, right});
    }
    return left;
  }

  Result<NodePtr> unary() {
    if (++depth_ > max_depth) return error(fmt::format("at most {} levels", max_depth));
    auto result = take("not") ? negated() : operand();
    --depth_;
    return result;
  }

  /// `not` is tighter than a comparison, as in C++: it wants parentheses around one.
  Result<NodePtr> negated() {
    GEMMTUNE_TRY(auto inner, unary());
    return NodePtr(std::make_shared<const Node>(Node{Operator::negation, 0, {}, inner, nullptr}));
  }

  Result<NodePtr> operand() {
    if (take("(")) {
      auto inner = binary(0);
      if (inner.ok() && !take(")")) return error("')'");
      return inner;
    }
    skip_blanks();
    const std::size_t begin = at_;
    while (at_ < text_.size() && continues_name(text_[at_])) ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (!word.empty() && begins_name(word.front()) && word != "and" && word != "or") {
      if (std::find(names_.begin(), names_.end(), word) == names_.end()) names_.push_back(word);
      return NodePtr(std::make_shared<const Node>(Node{Operator::name, 0, word, nullptr, nullptr}));
    }
    if (const auto number = parse_integer(word)) {
      return NodePtr(std::make_shared<const Node>(Node{Operator::number, *number, {}, nullptr, nullptr}));
    }
    at_ = begin;
    return error("a number, a name or '('");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t depth_ = 0;
  std::vector<std::string> names_;
};

Result<IntegerExpression> IntegerExpression::parse(std::string_view text) {
  if (text.size() > max_characters)
    return Status::invalid("'{}…' has {} characters, expected at most {}", text.substr(0, 40), text.size(),
                           max_characters);
  Parser parser(text);
  GEMMTUNE_TRY(auto root, parser.run());
  IntegerExpression expression;
  expression.text_ = text;
  expression.names_ = parser.names();
  expression.root_ = std::move(root);
  return expression;
}

std::optional<std::int64_t> IntegerExpression::evaluate(
    const std::function<std::optional<std::int64_t>(std::string_view)>& value_of) const {
  return root_ ? root_->evaluate(value_of) : std::nullopt;
}

}  // namespace gemmtune
