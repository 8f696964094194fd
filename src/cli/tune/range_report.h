// The part of `tune`'s report that ranges of M have and shapes do not (tune_report.h).
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "cli/tune/tune_report.h"

namespace gemmtune::cli {

/// ending.range is set.
std::string range_ending_text(const RunEnding& ending);
/// An element of "weights".
nlohmann::ordered_json range_json(const ItemReport& report);

}  // namespace gemmtune::cli
