#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/csv/csv.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto document = parse_csv("t.csv", content);
  if (!document.ok()) return 0;
  std::string text;
  CsvCells cells;
  CsvCells cells_again;
  for (const CsvLine& line : document->lines) {
    text.append(line.text).append(line.end);
    if (!cells.split(line.text)) continue;
    std::string written;
    for (std::size_t index = 0; index < cells.size(); ++index) {
      written += (index == 0 ? "" : ",") + csv_cell(cells[index]);
    }
    fuzz::demand(cells_again.split(written), "written cells are cells: " + written);
    // A carriage return within a quoted cell becomes a blank.
    if (line.text.find('\r') != std::string_view::npos) continue;
    for (std::size_t index = 0; index < cells.size(); ++index) {
      fuzz::demand(cells[index] == cells_again[index], "a cell is written as it is: " + written);
    }
  }
  fuzz::demand(text == content, "no byte of a file is lost");
  return 0;
}
