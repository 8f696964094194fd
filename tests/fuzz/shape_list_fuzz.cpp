#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/shape_list.h"
#include "fuzz/expectation.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const fuzz::MemoryFile input({reinterpret_cast<const char*>(data), size});
  ShapeListOptions options;
  const auto list = read_shape_list(input.path(), options);
  options.strict = true;
  options.x_type = DataType::bf16;
  (void)read_shape_list(input.path(), options);
  if (!list.ok()) return 0;
  for (const ShapeRow& row : list->rows) {
    fuzz::demand(check(row.problem).ok(), "shapes of a list are possible: " + print(row.problem));
    fuzz::demand(row.calls >= 0, "calls are counted");
  }
  const fuzz::MemoryFile written(write_shape_list(list->rows));
  const auto again = read_shape_list(written.path(), {});
  fuzz::demand(again.ok(), "a list that was written is read: " + again.message());
  return 0;
}
