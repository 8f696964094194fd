#include "measure/policy.h"

#include <fmt/format.h>

namespace gemmtune {

std::string_view to_string(CacheMode mode) {
  switch (mode) {
    case CacheMode::warm:
      return "warm";
    case CacheMode::weights_cold:
      return "weights-cold";
    case CacheMode::cold:
      return "cold";
  }
  return "?";
}

std::optional<CacheMode> parse_cache_mode(std::string_view text) {
  if (text == "weights_cold") return CacheMode::weights_cold;
  for (const CacheMode mode : {CacheMode::warm, CacheMode::weights_cold, CacheMode::cold}) {
    if (to_string(mode) == text) return mode;
  }
  return std::nullopt;
}

Policy default_policy(const DeviceInfo& device) {
  Policy policy;
  policy.sample_microseconds = traits_of(device).sample_microseconds;
  return policy;
}

std::string Policy::text() const {
  // The pool's limit, rounds, seed and the rules of choosing are left out: they change how sure a time is,
  // not what it is a time of. data=normal1 names the generator of verify/inputs.cpp; a change there that
  // changes times raises it.
  return fmt::format(
      "cache={} warmup={} iters={} sample_us={} data=normal1{}", to_string(cache), warmup, iterations,
      sample_microseconds,
      accuracy == AccuracyPolicy::keep ? "" : fmt::format(" accuracy={}", to_string(accuracy)));
}

}  // namespace gemmtune
