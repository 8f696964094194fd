#include "measure/policy.h"

#include <fmt/format.h>

namespace gemmtune {
namespace {

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

}  // namespace

std::string Policy::text() const {
  // The pool's limit, rounds, seed and the rules of choosing are left out: they change how sure a time is,
  // not what it is a time of. data=normal1 names the generator of verify/inputs.cpp; a change there that
  // changes times raises it.
  return fmt::format("cache={} warmup={} iters={} sample_us={} data=normal1", to_string(cache), warmup,
                     iterations, sample_microseconds);
}

}  // namespace gemmtune
