#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/search_space/search_space_yaml.h"
#include "fuzz/expectation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gemmtune;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto space = parse_search_space("s.yaml", content);
  if (!space.ok()) {
    fuzz::demand(space.message().starts_with("s.yaml:"), "an error names the file");
    return 0;
  }
  for (const FamilySpace& family : space->families) {
    fuzz::demand(space->find(family.family.text) == &family, "a family stands once");
    for (const ChosenParameter& parameter : family.parameters)
      fuzz::demand(!parameter.values.empty() && parameter.values.front().line > 0, "values have a line");
  }
  return 0;
}
