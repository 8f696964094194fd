#include "formats/other_complaints.h"

#include <utility>

#include "formats/all_formats.h"
#include "formats/csv/csv.h"
#include "formats/tune_gemm/gemm_result_yaml.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "formats/aiter/operation_header.h"
#include "formats/triton/triton_json.h"

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

Result<std::vector<std::string>> complaints_of(const std::string& source, const std::string& content,
                                               const ShapeListOptions& options) {
  const std::string_view name = format_name_of(source, content);
  const auto complaints_in = [](auto file) -> Result<std::vector<std::string>> {
    if (!file.ok()) return file.status();
    return std::move(file->complaints);
  };
  if (name == "triton_json") return complaints_in(parse_triton_json(source, content));
  if (name == "hipblaslt_csv") return complaints_in(parse_hipblaslt_csv(source, content));
  if (name != "untuned") return complaints_in(parse_gemm_results(source, content));
  return complaints_in(parse_shape_list(source, content, options));
}

}  // namespace gemmtune
