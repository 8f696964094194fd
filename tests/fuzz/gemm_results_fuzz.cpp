#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/tune_gemm/gemm_result_yaml.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const auto file = parse_gemm_results("r.yaml", std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  (void)write_gemm_benchmark_csv(file->results);
  const auto again = parse_gemm_results("r.yaml", write_gemm_results(file->results, file->version));
  fuzz::demand(again.ok(), "what was written is read: " + again.message());
  fuzz::demand(again->diagnostics.empty(), "what was written is clean");
  fuzz::demand(again->results.size() == file->results.size(), "each result is written once");
  for (std::size_t index = 0; index < file->results.size(); ++index) {
    const GemmResult& before = file->results[index];
    const GemmResult& after = again->results[index];
    fuzz::demand(before.m == after.m && before.n == after.n && before.k == after.k, "sizes stay");
    fuzz::demand(before.a_order == after.a_order && before.b_order == after.b_order, "orders stay");
    fuzz::demand(before.parameters == after.parameters, "parameters stay");
    fuzz::demand(before.us.has_value() == after.us.has_value(), "times stay");
  }
  return 0;
}
