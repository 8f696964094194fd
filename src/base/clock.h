// Clocks: one for people, one for durations, two of processor time.
#pragma once

#include <string>

namespace gemmtune {

/// UTC, to the second, ISO 8601: "2025-01-31T23:59:59Z".
std::string utc_text();
/// The same of a moment `seconds` ago.
std::string utc_text_before(double seconds);
/// Seconds of a clock that only goes forward; only differences mean something.
double steady_seconds();
/// Processor time of this process, of all its threads together.
double process_cpu_seconds();

}  // namespace gemmtune
