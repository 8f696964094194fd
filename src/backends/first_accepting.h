// The first family of an order of preference that takes a problem.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune {

/// The first of `order` that takes the problem, at its default config; else a Status of code `otherwise` with
/// the reason of each: its refusal, or `missing` if it is not among `families`.
Result<Candidate> first_accepting(std::span<const KernelFamily* const> families,
                                  std::span<const std::string_view> order, const Problem& problem,
                                  StatusCode otherwise,
                                  const std::function<Status(std::string_view)>& missing);

}  // namespace gemmtune
