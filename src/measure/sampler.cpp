#include "measure/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "measure/statistics.h"

namespace gemmtune {
namespace {

constexpr double min_turn_microseconds = 20;       // a thousand times what reading the clock takes
constexpr int max_samples_of_slow_kernel = 8;      // that a round may take of it for the sake of a fast one
constexpr double long_call = 10;                   // samples' lengths
constexpr double energy_part_microseconds = 20e3;  // launches of a graph that a GPU runs again and again
constexpr double max_energy_part = 4096;           // nodes of it
constexpr double max_energy_launches = 1 << 16;
constexpr double around_energy_batch = 1;  // seconds that devices take around a batch, at most
// Where other programs have the processors: what a turn's threads may wait for them, as a share of its time, the
// turns without such waits that make a sample, and the turns that are taken to find them.
constexpr double calm_share = 0.05;
constexpr int calm_turns = 3;
constexpr int min_calm_turns = 2;
constexpr int turns_to_find_calm = 24;

}  // namespace

double energy_batch_length(double call_microseconds) {
  // A long call is in the part in front and in the batch itself.
  return energy_batch_seconds + around_energy_batch + 2e-6 * call_microseconds;
}

Result<double> Sampler::launch(const Timed& timed, int launches) {
  SampleRequest request;
  request.kernel = timed.kernel;
  request.rotation = timed.rotation->operands;
  request.first = timed.rotation->cursor;
  request.launches = launches;
  request.workspace = timed.workspace;
  request.eager = policy_.launch == LaunchMode::eager;
  request.parallel_pass = policy_.parallel_pass;
  request.processor_time = policy_.processor_time;
  Result<double> time = device_.sample(request);
  timed.rotation->cursor =
      (timed.rotation->cursor + static_cast<std::size_t>(launches)) % timed.rotation->operands.size();
  if (time.ok() && !(std::isfinite(*time) && *time > 0))
    return Status::internal("the device measured {} microseconds for {} launches", *time, launches);
  return time;
}

void Sampler::enter_pool(std::string_view thread_pool) {
  if (thread_pool == current_pool_) return;
  current_pool_ = thread_pool;
  device_.quiesce(current_pool_);
}

Result<std::optional<double>> Sampler::probe(const Timed& timed, double limit_microseconds) {
  enter_pool(timed.thread_pool);
  GEMMTUNE_TRY(const double first, launch(timed, 1));
  if (limit_microseconds <= 0 || first <= limit_microseconds) return std::optional(first);
  // A first call may pay for threads that slept and code that was never run, and another program may have had the
  // processor in a second one.
  for (int further = 0; further < 2; ++further) {
    device_.gather_threads();
    GEMMTUNE_TRY(const double time, launch(timed, 1));
    if (time <= limit_microseconds) return std::optional(time);
  }
  return std::optional<double>();
}

Status Sampler::prepare(Timed& timed) {
  if (!device_.times_single_calls()) {
    GEMMTUNE_TRY(const double time, launch(timed, std::max(1, policy_.warmup)));
    calibrate(timed, time);
    return {};
  }
  std::vector<double> calls;
  for (int i = 0; i < std::max(1, policy_.warmup); ++i) {
    GEMMTUNE_TRY(const double time, launch(timed, 1));
    calls.push_back(time);
    if (warms_itself(time)) break;
  }
  calibrate(timed, std::ranges::min(calls));
  return {};
}

bool Sampler::warms_itself(double call_microseconds) const {
  return device_.times_single_calls() && call_microseconds >= long_call * policy_.sample_microseconds;
}

void Sampler::calibrate(Timed& timed, double call_microseconds) const {
  const double wanted = std::ceil(policy_.sample_microseconds / call_microseconds);
  timed.launches =
      static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(std::max(1, policy_.iterations))));
  const double per_turn = std::ceil(min_turn_microseconds / call_microseconds);
  timed.warms_itself = warms_itself(call_microseconds);
  timed.launches_per_turn = static_cast<int>(std::clamp(per_turn, 1.0, static_cast<double>(timed.launches)));
}

int Sampler::turns(const Timed& timed) { return (timed.launches - 1) / timed.launches_per_turn + 1; }

Result<double> Sampler::sample(const Timed& timed) {
  enter_pool(timed.thread_pool);
  if (!device_.times_single_calls()) return launch(timed, timed.launches);
  const Timed* const kernels[] = {&timed};
  return sample_in_turns(kernels, turns(timed)).front();
}

Result<double> Sampler::batch(const Timed& timed) {
  if (timed.launches > 1) {
    const Result<double> uncounted = launch(timed, 1);
    if (!uncounted.ok()) return uncounted;
  }
  return launch(timed, timed.launches);
}

std::vector<Result<double>> Sampler::sample_in_turns(std::span<const Timed* const> kernels, int turns,
                                                     const BeforeTurn& before_turn) {
  return samples_of(take_turns(kernels, turns, before_turn));
}

std::vector<Sampler::Turns> Sampler::take_turns(std::span<const Timed* const> kernels, int turns,
                                                const BeforeTurn& before_turn) {
  if (!kernels.empty()) enter_pool(kernels.front()->thread_pool);
  if (device_.times_single_calls()) return take_single_calls(kernels, turns, before_turn);
  std::vector<Turns> taken(kernels.size());
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (before_turn) before_turn(i);
    const Result<double> time = batch(*kernels[i]);
    if (time.ok()) {
      taken[i].calm = {*time};
    } else {
      taken[i].failure = time.status();
    }
  }
  return taken;
}

void Sampler::take_turn(const Timed& timed, Turns& turns) {
  const Result<double> time = launch(timed, timed.launches_per_turn);
  const double waited = device_.processor_waits();
  if (!time.ok()) {
    turns.failure = time.status();
    return;
  }
  const bool is_calm = waited <= calm_share * *time * timed.launches_per_turn;
  (is_calm ? turns.calm : turns.disturbed).push_back(*time);
}

// Reading the waits takes a microsecond for each thread, and between two calls threads would fall asleep: so on a quiet
// machine they are read once, at the end, and only if threads waited, after each further turn.
std::vector<Sampler::Turns> Sampler::take_single_calls(std::span<const Timed* const> kernels, int turns,
                                                       const BeforeTurn& before_turn) {
  std::vector<Turns> taken(kernels.size());
  std::vector<std::size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!policy_.processor_time) device_.begin_processor_waits();
  double microseconds = 0;
  for (int turn = -1; turn < turns; ++turn) {
    shuffle(order, random_);
    for (const std::size_t i : order) {
      if (!taken[i].failure.ok() || (turn < 0 && kernels[i]->warms_itself)) continue;
      if (before_turn) before_turn(i);
      const Result<double> time = launch(*kernels[i], kernels[i]->launches_per_turn);
      if (!time.ok()) {
        taken[i].failure = time.status();
        continue;
      }
      microseconds += *time * kernels[i]->launches_per_turn;
      if (turn >= 0) taken[i].calm.push_back(*time);
    }
    const bool is_last = turn + 1 == turns;
    if (!policy_.processor_time && microseconds > 0 && (turn < 0 || is_last) &&
        device_.processor_waits() > calm_share * microseconds)
      break;
    if (is_last) return taken;
    if (turn < 0) microseconds = 0;
  }
  for (Turns& of_kernel : taken) of_kernel.calm.clear();  // which of these waited is not known
  find_calm_turns(kernels, turns, before_turn, taken);
  return taken;
}

// A turn that begins without its threads would be disturbed, and long.
void Sampler::find_calm_turns(std::span<const Timed* const> kernels, int turns, const BeforeTurn& before_turn,
                              std::vector<Turns>& taken) {
  std::vector<std::size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto wanted = static_cast<std::size_t>(std::clamp(turns, min_calm_turns, calm_turns));
  const int tries = std::min(turns_to_find_calm, 8 * turns);
  const int tries_without_any = std::min(8, 4 * turns);
  const auto is_complete = [&](const Turns& of_kernel) {
    return !of_kernel.failure.ok() || of_kernel.calm.size() >= wanted;
  };
  for (int turn = 0; turn < tries && !std::ranges::all_of(taken, is_complete); ++turn) {
    // Calls that last longer than a program has a processor without a break are never calm.
    if (turn == tries_without_any &&
        std::ranges::all_of(taken, [](const Turns& one) { return one.calm.empty(); }))
      break;
    shuffle(order, random_);
    for (const std::size_t i : order) {
      if (is_complete(taken[i]) || !device_.gather_threads()) continue;
      if (before_turn) before_turn(i);
      take_turn(*kernels[i], taken[i]);
    }
  }
  // A kernel that the machine left no turn has one as it comes.
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i].failure.ok() && taken[i].calm.empty() && taken[i].disturbed.empty())
      take_turn(*kernels[i], taken[i]);
  }
}

// Calm turns of one kernel and disturbed ones of another would compare what the machine did.
std::vector<Result<double>> Sampler::samples_of(std::span<const Turns> turns) {
  const bool all_calm = std::ranges::all_of(turns, [&](const Turns& of_kernel) {
    return !of_kernel.failure.ok() || of_kernel.disturbed.empty() || of_kernel.calm.size() >= min_calm_turns;
  });
  std::vector<Result<double>> samples;
  for (const Turns& of_kernel : turns) {
    if (!of_kernel.failure.ok()) {
      samples.emplace_back(of_kernel.failure);
    } else {
      const bool use_calm = all_calm || of_kernel.disturbed.empty();
      samples.emplace_back(lower_quartile(use_calm ? of_kernel.calm : of_kernel.disturbed));
    }
  }
  return samples;
}

Result<EnergySample> Sampler::energy_batch(const Timed& timed) {
  enter_pool(timed.thread_pool);
  SampleRequest request;
  request.kernel = timed.kernel;
  request.rotation = timed.rotation->operands;
  request.first = timed.rotation->cursor;
  request.workspace = timed.workspace;
  GEMMTUNE_TRY(const double call, launch(timed, timed.launches));
  double launches = std::ceil(energy_part_microseconds / call);
  if (!device_.times_single_calls()) {
    // Whole rotations, where they are short enough: a graph that runs again would find its last weights in the cache.
    const auto rotation = static_cast<double>(request.rotation.size());
    if (rotation <= max_energy_part) launches = std::ceil(launches / rotation) * rotation;
    launches = std::min(launches, std::max(rotation, max_energy_part));
  }
  request.launches = static_cast<int>(std::clamp(launches, 1.0, max_energy_launches));
  Result<EnergySample> sample = device_.sample_energy(request, energy_batch_seconds);
  if (sample.ok() && !(std::isfinite(sample->joules) && sample->joules > 0 && sample->microseconds > 0))
    return Status::internal("the device counted {} joules in {} microseconds", sample->joules,
                            sample->microseconds);
  return sample;
}

std::vector<Result<EnergySample>> Sampler::energy_round(std::span<const Timed* const> kernels,
                                                        const BeforeTurn& before_turn) {
  std::vector<Result<EnergySample>> samples(kernels.size(), Result<EnergySample>(EnergySample()));
  std::vector<std::size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random_);
  for (const std::size_t i : order) {
    if (before_turn) before_turn(i);
    samples[i] = energy_batch(*kernels[i]);
  }
  return samples;
}

std::vector<Result<double>> Sampler::round(std::span<const Timed* const> kernels,
                                           const BeforeTurn& before_turn) {
  std::vector<std::size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random_);
  int most = 1;
  int fewest = std::numeric_limits<int>::max();
  for (const Timed* kernel : kernels) {
    most = std::max(most, turns(*kernel));
    fewest = std::min(fewest, turns(*kernel));
  }
  const int wanted = std::min(most, max_samples_of_slow_kernel * fewest);
  std::vector<Turns> taken(kernels.size());
  for (auto begin = order.begin(); begin != order.end();) {
    const std::string_view pool = kernels[*begin]->thread_pool;
    const auto end = std::stable_partition(begin, order.end(),
                                           [&](std::size_t i) { return kernels[i]->thread_pool == pool; });
    const std::vector<std::size_t> group(begin, end);
    std::vector<const Timed*> timed;
    for (const std::size_t i : group) timed.push_back(kernels[i]);
    auto of_group = take_turns(timed, wanted, [&](std::size_t i) {
      if (before_turn) before_turn(group[i]);
    });
    for (std::size_t i = 0; i < group.size(); ++i) taken[group[i]] = std::move(of_group[i]);
    begin = end;
  }
  return samples_of(taken);
}

}  // namespace gemmtune
