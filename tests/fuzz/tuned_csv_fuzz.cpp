#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/aiter/tuned_csv.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto file = parse_tuned_csv("t.csv", content);
  (void)parse_tuned_csv("t.csv", content, {.operation = OperationForm(Operation::fused_moe), .strict = true});
  if (!file.ok()) return 0;
  const OperationForm operation = file->schema().operation;
  const std::string text = write_tuned_csv(operation, file->entries, CsvSchema::aiter);
  const auto again = parse_tuned_csv("t.csv", text, {.operation = operation});
  fuzz::demand(again.ok(), "a table that was written is read: " + again.message());
  return 0;
}
