// Takes samples of kernels over a rotation of operands: warm-up, number of launches per sample, samples.
//
// On shared machines the speed of memory changes by tens of per cent from one millisecond to the next, and
// the change lasts: of two samples of 2 ms right after one another, one is often 10 % longer. If a device can
// time single calls, kernels therefore take turns of a call each, and slow periods slow all of them alike.
// (Streaming reads on 2 cores of such a machine, 16 calls of 0.1 ms each: the ratio of two equal kernels has
// a standard deviation of 0.13 from the means of two batches after one another, 0.035 from calls in turns.)
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "base/status.h"
#include "measure/policy.h"

namespace gemmtune {

/// How long an energy batch counts at least: counters are updated every 1 ms (RAPL) to 100 ms (NVML).
inline constexpr double energy_batch_seconds = 1;
/// What a batch of a kernel takes with what comes in front of it and behind.
double energy_batch_length(double call_microseconds);

/// Operands with rotating weights (and x, y where those are cold too). Shared by every kernel of one weight
/// layout: the cursor advances over kernels, so that no sample begins with the weight that the last one ended
/// with.
struct Rotation {
  std::vector<Operands> operands;
  std::size_t cursor = 0;
};

/// A kernel that is ready to be timed. Owns nothing.
struct Timed {
  const Kernel* kernel = nullptr;
  Rotation* rotation = nullptr;
  void* workspace = nullptr;
  int launches = 1;                      // of one sample
  int launches_per_turn = 1;             // more than one if a call is too short for the clock
  std::string_view thread_pool = "own";  // KernelFamily::thread_pool()
  bool warms_itself = false;             // Sampler::warms_itself() of its calls
};

/// Everything goes through Device::sample; no clock of its own.
class Sampler {
 public:
  Sampler(Device& device, const Policy& policy) : device_(device), policy_(policy), random_(policy.seed) {}

  /// Waits until the threads of other pools are idle. probe, sample, sample_in_turns and round do it first.
  void enter_pool(std::string_view thread_pool);
  /// Time of a kernel's first call that does not exceed `limit_microseconds` (0: no limit); empty if three do.
  Result<std::optional<double>> probe(const Timed& timed, double limit_microseconds);
  /// The policy's warm-up calls (one, where that is enough), then sets `launches` so that a sample lasts
  /// policy.sample_microseconds, within policy.iterations.
  Status prepare(Timed& timed);
  /// A call of ten samples' length: what the first call pays for cold code and sleeping threads is small
  /// against it. Only where single calls are timed.
  bool warms_itself(double call_microseconds) const;
  /// Sets `launches` and `launches_per_turn` from a known time of one call.
  void calibrate(Timed& timed, double call_microseconds) const;
  /// Turns that a sample of this kernel takes.
  static int turns(const Timed& timed);
  /// One sample of a kernel alone: sample_in_turns with the kernel's own number of turns.
  Result<double> sample(const Timed& timed);

  /// Called before each turn with the index of the kernel whose turn it is. Must be cheap.
  using BeforeTurn = std::function<void(std::size_t)>;
  /// A sample of each kernel (all of one thread pool), microseconds a launch. They take `turns` turns, in
  /// another random order each time; a first turn is not counted (and not taken by kernels that warm themselves). The
  /// sample is the lower quartile of a
  /// kernel's turns: what disturbs a call only makes it longer. All kernels whose samples are compared must
  /// have the same number of turns. A kernel that fails has no further turns, and its error as its sample.
  /// If threads waited for processors that other programs had, the kernels take further turns. Turns in which none
  /// waited are then the only ones that count. If a kernel has too few of them, those in which threads waited count, of all
  /// kernels: they say little, but favour none.
  /// Of processor times all turns count.
  /// Where the device cannot time single calls, each kernel's sample is the mean of its launches, one kernel
  /// after the other, each with one uncounted launch in front.
  std::vector<Result<double>> sample_in_turns(std::span<const Timed* const> kernels, int turns,
                                              const BeforeTurn& before_turn = {});
  /// One interleaved round: a sample of each kernel, of whatever thread pools. The order is random, but
  /// kernels of one pool stay together: the threads of a pool that was just left spin for a while and would
  /// slow the next one down. A slow kernel may take up to 8 samples' worth of turns for a fast one's sake.
  std::vector<Result<double>> round(std::span<const Timed* const> kernels,
                                    const BeforeTurn& before_turn = {});
  /// An energy batch of each kernel, in random order.
  std::vector<Result<EnergySample>> energy_round(std::span<const Timed* const> kernels,
                                                 const BeforeTurn& before_turn = {});

 private:
  /// What the turns of one kernel took.
  struct Turns {
    Status failure;
    std::vector<double> calm;       // microseconds a launch: no thread waited for a processor
    std::vector<double> disturbed;  // the others
  };
  std::vector<Turns> take_turns(std::span<const Timed* const> kernels, int turns,
                                const BeforeTurn& before_turn);
  std::vector<Turns> take_single_calls(std::span<const Timed* const> kernels, int turns,
                                       const BeforeTurn& before_turn);
  void take_turn(const Timed& timed, Turns& turns);
  void find_calm_turns(std::span<const Timed* const> kernels, int turns, const BeforeTurn& before_turn,
                       std::vector<Turns>& taken);
  static std::vector<Result<double>> samples_of(std::span<const Turns> turns);
  Result<EnergySample> energy_batch(const Timed& timed);
  Result<double> launch(const Timed& timed, int launches);
  Result<double> batch(const Timed& timed);

  Device& device_;
  const Policy& policy_;
  Random random_;
  std::string current_pool_;
};

}  // namespace gemmtune
