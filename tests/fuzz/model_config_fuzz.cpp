#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/models/model_config.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  for (const std::int64_t ranks : {1, 8}) {
    ModelShapeOptions options;
    options.tensor_parallel = ranks;
    options.layer_names = true;
    const auto list = parse_model_config("config.json", content, options);
    if (!list.ok()) continue;
    for (const ShapeRow& row : list->rows) {
      fuzz::demand(check(row.problem).ok(), "a model's shapes are possible: " + print(row.problem));
    }
  }
  return 0;
}
