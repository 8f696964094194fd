// Outcomes and finals as JSON, for the journal, for recordings and between tuner and worker.
#pragma once

#include <optional>
#include <vector>

#include "evaluate/evaluator.h"
#include "formats/json_fwd.h"

namespace gemmtune {

/// Numbers that JSON lacks (NaN, infinity) become null and are read as NaN.
Json to_json(const std::vector<double>& numbers);
Json to_json(const Outcome& outcome);
Json to_json(const FinalsResult& result);
/// An object of those that were measured.
Json to_json(const MeasuredError& error);
/// An object of what is known of it.
Json to_json(const BitClass& bits);

/// nullopt where the value is none of theirs.
std::optional<std::vector<double>> numbers_from_json(const Json& json);
std::optional<std::vector<std::string>> texts_from_json(const Json& json);
MeasuredError error_from_json(const Json& json);  // NaN for what it lacks
BitClass bits_from_json(const Json& json);
std::optional<Outcome> outcome_from_json(const Json& json);
std::optional<FinalsResult> finals_from_json(const Json& json);

}  // namespace gemmtune
