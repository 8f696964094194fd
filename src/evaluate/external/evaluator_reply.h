// What an evaluator answers, judged before it is used.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"
#include "formats/json_fwd.h"

namespace gemmtune {

/// True if `reply` is the answer to the request of this number.
bool is_reply(const Json& reply, std::size_t id);
/// The error that a reply holds; ok without one.
Status error_of_reply(const Json& reply);

/// What a sample can be: a clock shows no picosecond, and nobody waits for a launch for an hour.
inline constexpr double min_sample_microseconds = 1e-3;
inline constexpr double max_sample_microseconds = 3.6e9;
inline constexpr double min_sample_joules = 1e-12;
inline constexpr double max_sample_joules = 1e9;

/// A number of the reply to `what`, from `min` to `max`.
Result<double> number_of_reply(const Json& reply, std::string_view what, const char* name, double min,
                               double max);

}  // namespace gemmtune
