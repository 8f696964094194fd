// The part of `tune`'s report that ranges of M have and shapes do not (tune_report.h).
#pragma once

#include <string>

#include "cli/tune/tune_report.h"
#include "formats/json.h"

namespace gemmtune::cli {

/// ending.range is set.
std::string range_ending_text(const RunEnding& ending);
/// An element of "weights".
OrderedJson range_json(const ItemReport& report);

}  // namespace gemmtune::cli
