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
  for (const ShapeRow& row : list.rows)
    fuzz::demand(check(row.problem).ok(), "sizes that are read are possible");
  return 0;
}
