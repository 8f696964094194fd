#include <cstddef>
#include <cstdint>
#include <string>

#include "base/text.h"
#include "cli/report/follow.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  cli::EventReader events("events.jsonl");
  std::size_t lines = 0;
  for (const std::string_view line : split(content, '\n')) {
    if (!events.add_line(std::string(line)).ok()) return 0;
    ++lines;
  }
  fuzz::demand(events.skipped() < lines, "the first line is an event");
  cli::ReportInputs inputs;
  events.fill(inputs);
  return 0;
}
