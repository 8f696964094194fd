#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/tunableop/tunableop_csv.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const auto file = parse_tunableop_csv("t.csv", std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  for (const TunableopRow& row : file->rows) {
    fuzz::demand(check(row.problem).ok(), "a problem that came of a row is possible");
    if (row.solution.empty()) continue;
    const auto line = tunableop_line(row.problem, row.solution, row.us.value_or(1));
    fuzz::demand(line.ok(), "what was read is written");
    const auto again = parse_tunableop_csv("t.csv", *line);
    fuzz::demand(again.ok() && again->rows.size() == 1 && again->rows[0].problem == row.problem &&
                     again->rows[0].solution == row.solution,
                 "what was written says the same");
  }
  return 0;
}
