// Taking samples of one kernel over a rotation: warm-up, how many launches a sample holds, samples.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "measure/policy.h"

namespace gemmtune {

/// Operands with rotating weights (and x, y where those are cold too). Shared by every kernel of one weight
/// layout: the cursor goes on over kernels, so that no sample begins with the weight that the last one ended
/// with.
struct Rotation {
  std::vector<Operands> operands;
  std::size_t cursor = 0;
};

/// A kernel ready to be timed. The parts are borrowed.
struct Timed {
  const Kernel* kernel = nullptr;
  Rotation* rotation = nullptr;
  void* workspace = nullptr;
  int launches = 1;  // of one sample
};

/// Everything goes through Device::sample; no clock of its own.
class Sampler {
 public:
  Sampler(Device& device, const Policy& policy) : device_(device), policy_(policy) {}

  /// Quick look at a kernel that nobody knows: the mean of its first calls, microseconds; empty (and no more
  /// calls) where the first two both took longer than `limit_microseconds` (0: no limit).
  Result<std::optional<double>> first_look(const Timed& timed, double limit_microseconds);
  /// The policy's warm-up calls, then sets `launches` so that a sample lasts policy.sample_microseconds,
  /// within policy.iterations.
  Status prepare(Timed& timed);
  /// Sets `launches` from a known time of one call.
  void calibrate(Timed& timed, double call_microseconds) const;
  /// One sample: the mean time of one launch, microseconds; an error where it is not a time (not above 0).
  Result<double> sample(const Timed& timed);
  /// A sample right after another kernel: one call that is not counted goes first, unless a call is long
  /// enough to be a sample of its own.
  Result<double> sample_interleaved(const Timed& timed);

 private:
  Result<double> launch(const Timed& timed, int launches);

  Device& device_;
  const Policy& policy_;
};

}  // namespace gemmtune
