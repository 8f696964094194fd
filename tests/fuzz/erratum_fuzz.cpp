#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/errata/erratum_file.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto erratum = parse_erratum("e.json", content);
  if (!erratum.ok()) return 0;
  (void)covers_version(*erratum, "2.6.3");
  Problem problem = default_problem(Operation::a16w16);
  problem.m = problem.n = problem.k = max_dimension;
  (void)holds(*erratum, "gfx942", problem, {erratum->family, 1, {}});
  const std::string printed = print_erratum(*erratum);
  const auto again = parse_erratum("e.json", printed);
  fuzz::demand(again.ok() && print_erratum(*again) == printed, "reads back: " + printed);
  return 0;
}
