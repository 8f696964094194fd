#include "formats/tune_gemm/gemm_size_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/text.h"
#include "formats/diagnostics.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "formats/yaml_guard.h"

namespace gemmtune {
namespace {

class SizeReader {
 public:
  SizeReader(const std::string& path, const ShapeListOptions& options) : path_(path), options_(options) {}

  Status read(const YAML::Node& node, ShapeRow& row) {
    row.line = yaml_line(node);
    line_ = row.line;
    if (!node.IsMap())
      return {StatusCode::invalid_argument, diagnostic(path_, line_, "-", "", "a map with M, N and K")};
    Problem& problem = row.problem;
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(node, "M", problem.m));
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(node, "N", problem.n));
    GEMMTUNE_RETURN_IF_ERROR(read_dimension(node, "K", problem.k));
    std::optional<DataType> x_type = options_.x_type;
    std::optional<DataType> y_type = options_.y_type;
    GEMMTUNE_RETURN_IF_ERROR(read_type(node, "dtype_a", x_type));
    GEMMTUNE_RETURN_IF_ERROR(read_type(node, "dtype_c", y_type));
    problem.x_type = problem.w_type = x_type.value_or(DataType::f16);
    problem.y_type = y_type.value_or(problem.x_type);
    problem.bias = parse_bool(text_of(node[std::string(bias_parameter)])).value_or(false);
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
              diagnostic(path_, line_, key, text, fmt::format("a whole number from 1 to {}", max_dimension))};
    }
    target = *value;
    return {};
  }

  /// What gemmtune's own result files say beside the size; the caller's type wins.
  Status read_type(const YAML::Node& map, const char* key, std::optional<DataType>& target) const {
    const std::string text = text_of(map[key]);
    if (target || text.empty()) return {};
    target = data_type_on(options_.architecture, text);
    if (target) return {};
    return {StatusCode::invalid_argument, diagnostic(path_, line_, key, text, "a type such as fp16 or bf16")};
  }

  /// `plain` is the letter of our row-major default.
  Status read_order(const YAML::Node& map, const char* key, std::string_view plain, Order& target) const {
    const YAML::Node node = map[key];
    if (!node) return {};
    const std::string text = text_of(node);
    if (text != "T" && text != "N") {
      return {StatusCode::invalid_argument,
              diagnostic(path_, line_, key, text, "T (row-major) or N (column-major)")};
    }
    target = text == plain ? Order::row_major : Order::column_major;
    return {};
  }

  const std::string& path_;
  const ShapeListOptions& options_;
  std::size_t line_ = 0;
};

/// The parameters of a result file.
void count_other_keys(const YAML::Node& node, std::map<std::string, std::size_t>& others) {
  if (!node.IsMap()) return;
  for (const auto& member : node) {
    if (!member.first.IsScalar()) continue;
    const std::string& key = member.first.Scalar();
    constexpr std::string_view of_size[] = {"M",       "N",       "K",       "rowMajorA",   "rowMajorB",
                                            "dtype_a", "dtype_b", "dtype_c", bias_parameter};
    if (std::find(std::begin(of_size), std::end(of_size), key) == std::end(of_size)) ++others[key];
  }
}

}  // namespace

Status read_gemm_size_yaml(const std::string& path, const std::string& content,
                           const ShapeListOptions& options, ShapeList& list) {
  if (options.operation && *options.operation != Operation::a16w16) {
    return Status::unsupported("{}: a YAML of gemm sizes is of a16w16, not {}", path,
                               to_string(*options.operation));
  }
  GEMMTUNE_TRY(const auto root, load_yaml_list(path, content));
  SizeReader reader(path, options);
  std::map<std::string, std::size_t> others;
  for (const YAML::Node& node : root) {
    ShapeRow row;
    const Status status = reader.read(node, row);
    count_other_keys(node, others);
    if (status.ok()) {
      list.rows.push_back(std::move(row));
    } else if (options.strict) {
      return status;
    } else {
      list.diagnostics.push_back(status.message());
    }
  }
  for (const auto& [key, count] : others) {
    list.ignored.push_back({LeftOutKind::column, key, 0, count, "a list of sizes has no place for it"});
  }
  return {};
}

}  // namespace gemmtune
