#include "formats/other_diagnostics.h"

#include <iterator>
#include <utility>

#include "base/text.h"
#include "formats/aic/aic_csv.h"
#include "formats/all_formats.h"
#include "formats/flashinfer/flashinfer_cache.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "formats/tunableop/tunableop_csv.h"
#include "formats/tune_gemm/gemm_result_yaml.h"

namespace gemmtune {
Result<std::vector<std::string>> diagnostics_of(const std::string& source, const std::string& content,
                                                const ShapeListOptions& options) {
  if (trim(content).empty()) return Status::invalid("{}: empty, expected rows or sizes", source);
  const std::string_view name = detect_format(source, content).name;
  const auto diagnostics_in = [](auto file) -> Result<std::vector<std::string>> {
    if (!file.ok()) return file.status();
    return std::move(file->diagnostics);
  };
  if (name == "hipblaslt_csv") return diagnostics_in(parse_hipblaslt_csv(source, content));
  if (name == "flashinfer") {
    GEMMTUNE_TRY(auto cache, parse_flashinfer_cache(source, content));
    std::move(cache.notes.begin(), cache.notes.end(), std::back_inserter(cache.diagnostics));
    return std::move(cache.diagnostics);
  }
  if (name == "tunableop") return diagnostics_in(parse_tunableop_csv(source, content));
  if (name == "aic") return diagnostics_in(parse_aic_csv(source, content));
  if (name == "rocblas_yaml" || name == "cutlass_csv")
    return diagnostics_in(parse_shape_list(source, content, options));
  if (name != "untuned") return diagnostics_in(parse_gemm_results(source, content));
  return diagnostics_in(parse_shape_list(source, content, options));
}

}  // namespace gemmtune
