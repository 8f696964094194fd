#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "formats/complaints.h"
#include "formats/operation_header.h"
#include "formats/shape_collector.h"

namespace gemmtune {
namespace {

// yaml-cpp needs some hundred bytes a scalar: a larger list belongs into a CSV.
constexpr std::size_t max_yaml_bytes = std::size_t{16} << 20;

std::size_t line_of(const YAML::Node& node) { return static_cast<std::size_t>(node.Mark().line + 1); }

/// The text of a scalar under `key`; nullopt where it is absent.
std::optional<std::string> scalar(const YAML::Node& map, const char* key) {
  const YAML::Node value = map[key];
  if (!value.IsDefined() || value.IsNull()) return std::nullopt;
  return value.IsScalar() ? value.Scalar() : "(a list or map)";
}

bool read_dimension(const YAML::Node& map, const char* key, std::int64_t& size, Complaints& complaints) {
  const auto text = scalar(map, key);
  const auto value = text ? parse_integer(*text) : std::nullopt;
  if (value && *value >= 1 && *value <= max_dimension) {
    size = *value;
    return true;
  }
  complaints.cell(line_of(map), key, text.value_or(""),
                  fmt::format("a whole number from 1 to {}", max_dimension));
  return false;
}

/// `row_letter` is the letter that means our row-major for this operand.
bool read_order(const YAML::Node& map, const char* key, char row_letter, Order& order,
                Complaints& complaints) {
  const auto text = scalar(map, key);
  if (!text) return true;
  if (*text == "T" || *text == "N") {
    order = text->front() == row_letter ? Order::row_major : Order::column_major;
    return true;
  }
  complaints.cell(line_of(map), key, *text, "'T' or 'N'");
  return false;
}

void read_map(const YAML::Node& map, const ShapeListOptions& options, ShapeCollector& shapes,
              Complaints& complaints) {
  if (!map.IsMap()) {
    complaints.row(line_of(map), "expected a map with M, N and K");
    return;
  }
  ShapeRow row;
  row.line = line_of(map);
  Problem& problem = row.problem;
  problem.x_type = problem.w_type = options.x_type.value_or(DataType::bf16);
  problem.y_type = options.y_type.value_or(problem.x_type);
  bool good = read_dimension(map, "M", problem.m, complaints);
  good = read_dimension(map, "N", problem.n, complaints) && good;
  good = read_dimension(map, "K", problem.k, complaints) && good;
  good = read_order(map, "rowMajorA", 'T', problem.x_order, complaints) && good;
  good = read_order(map, "rowMajorB", 'N', problem.w_order, complaints) && good;
  if (!good) return;
  if (const Status status = check(problem); !status.ok()) {
    complaints.row(row.line, status.message());
    return;
  }
  shapes.add(std::move(row));
}

/// yaml-cpp reports errors by exceptions; none leaves this file.
Result<YAML::Node> load(const std::string& source, const std::string& content) {
  if (content.size() > max_yaml_bytes) {
    return Status::invalid("{}: {} bytes of YAML, expected at most {}", source, content.size(),
                           max_yaml_bytes);
  }
  if (const auto nul = content.find('\0'); nul != std::string::npos) {
    const auto line =
        std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(nul), '\n') + 1;
    return Status::invalid("{}:{}: a NUL byte, expected text", source, line);
  }
  try {
    return YAML::Load(content);
  } catch (const YAML::Exception& error) {
    return Status::invalid("{}:{}: {}, expected a YAML list of maps with M, N, K", source,
                           error.mark.line + 1, error.msg);
  } catch (const std::exception& error) {
    return Status::invalid("{}: {}, expected a YAML list of maps with M, N, K", source, error.what());
  }
}

}  // namespace

Result<ShapeList> parse_shape_yaml(const std::string& source, const std::string& content,
                                   const ShapeListOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_readable(source, options.operation.value_or(Operation::a16w16)));
  const auto loaded = load(source, content);
  if (!loaded.ok()) return loaded.status();
  const YAML::Node& root = *loaded;
  if (!root.IsSequence()) {
    return Status::invalid("{}:{}: expected a list of maps with M, N, K", source, line_of(root));
  }
  Complaints complaints(source);
  ShapeCollector shapes(true);
  try {
    for (const YAML::Node& map : root) read_map(map, options, shapes, complaints);
  } catch (const YAML::Exception& error) {
    return Status::invalid("{}:{}: {}", source, error.mark.line + 1, error.msg);
  }
  ShapeList list;
  list.source = source;
  list.rows = shapes.take();
  list.complaints = complaints.take();
  return list;
}

}  // namespace gemmtune
