#include "backends/first_accepting.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace gemmtune {

Result<Candidate> first_accepting(std::span<const KernelFamily* const> families,
                                  std::span<const std::string_view> order, const Problem& problem,
                                  StatusCode otherwise,
                                  const std::function<Status(std::string_view)>& missing) {
  std::string reasons;
  for (const std::string_view name : order) {
    const auto found = std::find_if(families.begin(), families.end(),
                                    [&](const KernelFamily* family) { return family->name() == name; });
    if (!reasons.empty()) reasons += "; ";
    if (found == families.end()) {
      reasons += missing(name).message();
      continue;
    }
    const KernelFamily& family = **found;
    const Status accepted = family.accepts(problem);
    if (accepted.ok()) {
      return Candidate{std::string(name), family.revision(), family.default_config(problem)};
    }
    reasons += fmt::format("{}: {}", name, accepted.message());
  }
  return Status(otherwise, fmt::format("{}: {}", short_name(problem), reasons));
}

}  // namespace gemmtune
