#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/aiter/environment_json.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  (void)environments_of(content, {"0123abcd", "4567"});
  const auto file = parse_environment_json("t.csv.env.json", content);
  if (!file.ok()) return 0;
  for (const auto& [hash, text] : file->objects) {
    fuzz::demand(environments_of(text, {hash}).ok(), "an object is one again: " + text);
  }
  return 0;
}
