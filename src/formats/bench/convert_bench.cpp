// Calls of benches among the formats: sizes.
#include <utility>

#include "formats/bench/bench_call.h"
#include "formats/conversion.h"

namespace gemmtune {
namespace {

using Parse = Result<ShapeList> (*)(const std::string&, std::string, const ShapeListOptions&);

Result<ConversionRows> read_sizes(const std::string& source, std::string content,
                                  const ConversionOptions& options, std::string_view origin, Parse parse) {
  ShapeListOptions list_options;
  list_options.operation = options.operation;
  list_options.x_type = options.x_type;
  list_options.y_type = options.y_type;
  GEMMTUNE_TRY(auto list, parse(source, std::move(content), list_options));
  ConversionRows rows = rows_of_list(std::move(list));
  rows.origin = origin;
  return rows;
}

}  // namespace

Result<ConversionRows> read_bench_rows(const std::string& source, std::string content,
                                       const ConversionOptions& options) {
  // NOLINTNEXTLINE(performance-unnecessary-value-param): as read_sizes calls it
  const auto parse = [](const std::string& path, std::string text, const ShapeListOptions& list) {
    return parse_bench_yaml(path, text, list);
  };
  return read_sizes(source, std::move(content), options, "rocblas_yaml", parse);
}

Result<ConversionRows> read_cutlass_rows(const std::string& source, std::string content,
                                         const ConversionOptions& options) {
  return read_sizes(source, std::move(content), options, "cutlass_csv", parse_cutlass_csv);
}

}  // namespace gemmtune
