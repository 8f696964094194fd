#include "formats/gemm_size_yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <exception>

#include "base/text.h"
#include "formats/complaints.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_depth = 16;  // of brackets or indentation; a list of maps needs two

/// yaml-cpp recurses once a level: deep nesting is refused before it overflows the stack.
Status check_depth(const std::string& path, const std::string& content) {
  std::size_t depth = 0;
  std::size_t line = 1;
  std::size_t run = 0;  // of "- " at the beginning of a line: each opens a level
  bool at_begin = true;
  for (const char character : content) {
    if (character == '\n') {
      ++line;
      run = 0;
      at_begin = true;
      continue;
    }
    if (character == '[' || character == '{') ++depth;
    if ((character == ']' || character == '}') && depth > 0) --depth;
    if (at_begin && (character == '-' || character == '?')) ++run;
    if (character != ' ' && character != '-' && character != '?') at_begin = false;
    if (depth > max_depth || run > max_depth) {
      return Status::invalid("{}:{}: nested deeper than {} levels, expected a list of maps", path, line,
                             max_depth);
    }
  }
  return {};
}

class SizeReader {
 public:
  SizeReader(const std::string& path, const ShapeListOptions& options) : path_(path), options_(options) {}

  Status read(const YAML::Node& node, ShapeRow& row) {
    row.line = static_cast<std::size_t>(std::max(0, node.Mark().line)) + 1;
    line_ = row.line;
    if (!node.IsMap())
      return {StatusCode::invalid_argument, complaint(path_, line_, "-", "", "a map with M, N and K")};
    Problem& problem = row.problem;
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(node, "M", problem.m));
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(node, "N", problem.n));
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(node, "K", problem.k));
    problem.x_type = problem.w_type = options_.x_type.value_or(DataType::f16);
    problem.y_type = options_.y_type.value_or(problem.x_type);
    GEMMTUNE_RETURN_IF_ERROR(read_order(node, "rowMajorA", "T", problem.x_order));
    GEMMTUNE_RETURN_IF_ERROR(read_order(node, "rowMajorB", "N", problem.w_order));
    if (const Status status = check(problem); !status.ok()) {
      return Status(status.code(), fmt::format("{}:{}: {}", path_, line_, status.message()));
    }
    return {};
  }

 private:
  static std::string text_of(const YAML::Node& node) { return node && node.IsScalar() ? node.Scalar() : ""; }

  Status read_dimension(const YAML::Node& map, const char* key, std::int64_t& target) const {
    const std::string text = text_of(map[key]);
    const auto value = parse_integer(text);
    if (!value || *value < 1 || *value > max_dimension) {
      return {StatusCode::invalid_argument,
              complaint(path_, line_, key, text, fmt::format("a whole number from 1 to {}", max_dimension))};
    }
    target = *value;
    return {};
  }

  /// `plain` is the letter of our row-major default.
  Status read_order(const YAML::Node& map, const char* key, std::string_view plain, Order& target) const {
    const YAML::Node node = map[key];
    if (!node) return {};
    const std::string text = text_of(node);
    if (text != "T" && text != "N") {
      return {StatusCode::invalid_argument,
              complaint(path_, line_, key, text, "T (row-major) or N (column-major)")};
    }
    target = text == plain ? Order::row_major : Order::column_major;
    return {};
  }

  const std::string& path_;
  const ShapeListOptions& options_;
  std::size_t line_ = 0;
};

}  // namespace

Status read_gemm_size_yaml(const std::string& path, const std::string& content,
                           const ShapeListOptions& options, ShapeList& list) {
  if (options.operation && *options.operation != Operation::a16w16) {
    return Status::unsupported("{}: a YAML of gemm sizes is of a16w16, not {}", path,
                               to_string(*options.operation));
  }
  GEMMTUNE_RETURN_IF_ERROR(check_depth(path, content));
  try {
    const YAML::Node root = YAML::Load(content);
    if (!root.IsSequence()) return Status::invalid("{}: expected a list of maps with M, N and K", path);
    SizeReader reader(path, options);
    for (const YAML::Node& node : root) {
      ShapeRow row;
      const Status status = reader.read(node, row);
      if (status.ok()) {
        list.rows.push_back(std::move(row));
      } else if (options.strict) {
        return status;
      } else {
        list.complaints.push_back(status.message());
      }
    }
    return {};
  } catch (const YAML::Exception& error) {
    return Status::invalid("{}:{}: no YAML: {}", path, error.mark.line + 1, error.msg);
  } catch (const std::exception& error) {
    return Status::invalid("{}: no YAML: {}", path, error.what());
  }
}

}  // namespace gemmtune
