#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/expectation.h"
#include "support/hipblaslt_rows.h"

namespace gemmtune {
namespace {

void check_row(const HipblasltFile& file, const HipblasltRow& row) {
  const auto problem = to_problem(row);
  if (!problem.ok()) return;
  fuzz::demand(check(*problem).ok(), "a problem that came of a row is possible");
  const HipblasltRow* found = find_row(file, *problem);
  fuzz::demand(found != nullptr && found->line <= row.line, "a row is found for its own problem");
}

}  // namespace
}  // namespace gemmtune

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const auto file = parse_hipblaslt_csv("h.csv", std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  for (const HipblasltRow& row : file->rows) check_row(*file, row);
  const std::string text = write_hipblaslt_csv(file->rows);
  const auto again = parse_hipblaslt_csv("h.csv", text);
  fuzz::demand(again.ok() && again->diagnostics.empty(), "what was written is read");
  fuzz::demand(write_hipblaslt_csv(again->rows) == text, "what was written says the same");
  return 0;
}
