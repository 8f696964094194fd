#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/shapes/shape_list.h"
#include "fuzz/expectation.h"

namespace gemmtune {
namespace {

void check_rows(const ShapeList& list) {
  for (const ShapeRow& row : list.rows) {
    fuzz::demand(check(row.problem).ok(), "shapes of a list are possible: " + print(row.problem));
    fuzz::demand(row.calls >= 0, "calls are counted");
  }
  ShapeListOptions options;
  options.operation = form_of(list.rows.front().problem);
  const auto again = parse_shape_list("s.csv", write_shape_list(list.rows), options);
  fuzz::demand(again.ok(), "a list that was written is read: " + again.message());
}

}  // namespace
}  // namespace gemmtune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  for (const char* source : {"s.csv", "s.yaml", "a8w8_blockscale_untuned_gemm"}) {
    const auto list = parse_shape_list(source, content, {});
    if (list.ok() && !list->rows.empty()) check_rows(*list);
  }
  ShapeListOptions options;
  options.strict = true;
  options.x_type = DataType::bf16;
  (void)parse_shape_list("s", content, options);
  return 0;
}
