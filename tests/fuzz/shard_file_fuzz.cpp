#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/shards/shard_file.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto file = parse_shard_file("t.1of2.csv.shard.json", content);
  if (!file.ok()) return 0;
  const std::string printed = print_shard_file(*file);
  const auto again = parse_shard_file("t.1of2.csv.shard.json", printed);
  fuzz::demand(again.ok() && print_shard_file(*again) == printed, "reads back: " + printed);
  return 0;
}
