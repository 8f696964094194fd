// A simulated device whose families do to their process what broken kernels do: for the tests of isolation.
// The test and its worker program make the same one.
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "evaluate/outcome.h"
#include "support/fake_device.h"

namespace gemmtune::testing {

/// A family that costs its candidate, and what is said of it.
struct Fault {
  std::string family;
  OutcomeKind kind;
  std::string reason;  // a part of the outcome's
  bool loses_worker = true;
  friend void PrintTo(const Fault& fault, std::ostream* stream) { *stream << fault.family; }
};

/// Those that show themselves in the first run.
const std::vector<Fault>& faults();

/// Good families are good_slow (200 µs), vendor (100 µs, the baseline and the known-good kernel) and
/// good_fast (50 µs). Further ones: dawdling (right, 20 ms of real time a run), late_crash (right once, then
/// a crash), crash_at_m1 (at M = 1 only), slow_build (half a second, then right, 150 µs), announced (refused
/// unless compile_ahead named it, then right, 110 µs).
std::unique_ptr<FakeDevice> make_faulty_device();

Candidate candidate_of(const std::string& family);

}  // namespace gemmtune::testing
