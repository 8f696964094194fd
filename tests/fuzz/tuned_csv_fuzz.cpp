#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/tuned_csv.h"
#include "fuzz/expectation.h"
#include "fuzz/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const fuzz::MemoryFile input({reinterpret_cast<const char*>(data), size});
  const auto file = read_tuned_csv(input.path());
  (void)read_tuned_csv(input.path(), true);
  if (!file.ok()) return 0;
  const fuzz::MemoryFile written(write_tuned_csv(file->entries, CsvSchema::aiter));
  const auto again = read_tuned_csv(written.path());
  fuzz::demand(again.ok(), "a table that was written is read: " + again.message());
  return 0;
}
