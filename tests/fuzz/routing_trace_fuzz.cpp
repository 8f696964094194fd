#include <cstddef>
#include <cstdint>
#include <string_view>

#include "formats/routing/routing_trace_file.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const auto trace = parse_routing_trace("t", {reinterpret_cast<const char*>(data), size});
  if (!trace.ok()) {
    fuzz::demand(trace.message().starts_with("t:"), "an error names file and line: " + trace.message());
    return 0;
  }
  const RoutingTrace& read = **trace;
  fuzz::demand(read.tokens() > 0 && read.ids.size() % static_cast<std::size_t>(read.topk) == 0,
               "tokens are whole");
  for (const std::int32_t id : read.ids)
    fuzz::demand(id >= 0 && id < read.experts, "experts are within bounds");
  return 0;
}
