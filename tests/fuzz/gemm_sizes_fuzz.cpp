#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/tune_gemm/gemm_size_yaml.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  ShapeList list;
  if (!read_gemm_size_yaml("s.yaml", content, {}, list).ok()) return 0;
  const std::string text = write_gemm_size_yaml(list.rows);
  ShapeList again;
  fuzz::demand(read_gemm_size_yaml("s.yaml", text, {}, again).ok(), "written sizes are read");
  fuzz::demand(again.diagnostics.empty(), "written sizes are clean");
  fuzz::demand(write_gemm_size_yaml(again.rows) == text, "written sizes say the same");
  return 0;
}
