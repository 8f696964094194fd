#include "cli/tables/shapes_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/text.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "formats/aiter/schema.h"
#include "formats/all_formats.h"
#include "formats/models/model_config.h"

namespace gemmtune::cli {
namespace {

using RowsByOperation = std::map<OperationForm, std::vector<ShapeRow>>;

RowsByOperation by_operation(const std::vector<ShapeRow>& rows) {
  RowsByOperation parts;
  for (const ShapeRow& row : rows) parts[form_of(row.problem)].push_back(row);
  return parts;
}

/// A CSV as write_shape_list() makes it, of any operation; its header alone too.
bool is_shape_list(const std::string& path, const std::string& content) {
  if (detect_format(path, content).name != "untuned") return false;
  ShapeListOptions with_type;  // for a list without types
  with_type.x_type = DataType::bf16;
  if (parse_shape_list(path, content, with_type).ok()) return true;
  const auto operations = all_operation_forms();
  return std::ranges::any_of(operations, [&](OperationForm operation) {
    ShapeListOptions of_operation;  // two operations may have one header
    of_operation.operation = operation;
    if (parse_shape_list(path, content, of_operation).ok()) return true;
    const std::string header = empty_shape_list(operation);
    return trim(header) == trim(std::string_view(content));
  });
}

Result<std::string> write_file(const std::vector<ShapeRow>& rows, const std::string& path) {
  GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", path));
  GEMMTUNE_RETURN_IF_ERROR(check_replaces_only("-o", path, "a list of shapes", is_shape_list));
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(path, write_shape_list(rows)));
  return fmt::format("{} in {}", counted(rows.size(), "shape"), path);
}

}  // namespace

std::string shapes_text(const std::vector<ShapeRow>& rows) {
  const RowsByOperation parts = by_operation(rows);
  if (parts.size() <= 1) return write_shape_list(rows);
  std::string text;
  for (const auto& [operation, part] : parts) {
    text += fmt::format("# {}\n{}", to_string(operation), write_shape_list(part));
  }
  return text;
}

Result<std::string> write_shapes(const std::vector<ShapeRow>& rows, const std::string& output) {
  const RowsByOperation parts = by_operation(rows);
  if (!names_folder(output)) {
    if (parts.size() <= 1) return write_file(rows, output);
    return Status::invalid("-o {}: a file holds one operation and there are {}: give --op, or a folder ({}/)",
                           output, operation_counts(rows), output);
  }
  GEMMTUNE_RETURN_IF_ERROR(make_folders(output));
  std::string said;
  for (const auto& [operation, part] : parts) {
    const std::string path = (std::filesystem::path(output) / untuned_file_name(operation)).string();
    GEMMTUNE_TRY(const auto written, write_file(part, path));
    said += (said.empty() ? "" : "\n") + written;
  }
  return said;
}

}  // namespace gemmtune::cli
