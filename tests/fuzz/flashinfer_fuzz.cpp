#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/all_formats.h"
#include "formats/flashinfer/flashinfer_cache.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  (void)is_flashinfer(content);
  const auto cache = parse_flashinfer_cache("cache.json", content);
  if (!cache.ok()) return 0;
  for (const FlashinferEntry& entry : cache->entries)
    fuzz::demand(!entry.runner.empty() || !entry.tactic.empty(), "an entry says what was chosen");
  auto rows = read_flashinfer_rows("cache.json", content, {});
  fuzz::demand(rows.ok(), "what is parsed is read");
  fuzz::demand(write_listing(*rows, {}).ok(), "what is read can be listed");
  return 0;
}
