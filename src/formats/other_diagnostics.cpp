#include "formats/other_diagnostics.h"

#include <utility>

#include "formats/aiter/operation_header.h"
#include "formats/all_formats.h"
#include "formats/csv/csv.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "formats/triton/triton_json.h"
#include "formats/tune_gemm/gemm_result_yaml.h"

namespace gemmtune {
namespace {

/// The name of its format. A header without a time is a shape list where nothing says "tuned".
std::string_view format_name_of(const std::string& source, const std::string& content) {
  const auto format = detect_format(source, content);
  if (!format.ok()) return "aiter";
  const auto named = table_of_file_name(source);
  // Heterogeneous MoE tables have no time, and an empty tuned file has no header.
  const bool tuned = named && source.find("untuned") == std::string::npos;
  return (*format)->name == "untuned" && tuned ? "aiter" : (*format)->name;
}

}  // namespace

bool is_other_format(const std::string& source, const std::string& content) {
  const std::string_view name = format_name_of(source, content);
  return name != "aiter" && name != "seed";
}

Result<std::vector<std::string>> diagnostics_of(const std::string& source, const std::string& content,
                                                const ShapeListOptions& options) {
  const std::string_view name = format_name_of(source, content);
  const auto diagnostics_in = [](auto file) -> Result<std::vector<std::string>> {
    if (!file.ok()) return file.status();
    return std::move(file->diagnostics);
  };
  if (name == "triton_json") return diagnostics_in(parse_triton_json(source, content));
  if (name == "hipblaslt_csv") return diagnostics_in(parse_hipblaslt_csv(source, content));
  if (name != "untuned") return diagnostics_in(parse_gemm_results(source, content));
  return diagnostics_in(parse_shape_list(source, content, options));
}

}  // namespace gemmtune
