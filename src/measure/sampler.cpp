#include "measure/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "measure/statistics.h"

namespace gemmtune {
namespace {

constexpr double min_turn_microseconds = 20;  // a thousand times what reading the clock takes
constexpr double long_call = 10;              // samples' lengths

}  // namespace

Result<double> Sampler::launch(const Timed& timed, int launches) {
  SampleRequest request;
  request.kernel = timed.kernel;
  request.rotation = timed.rotation->operands;
  request.first = timed.rotation->cursor;
  request.launches = launches;
  request.workspace = timed.workspace;
  Result<double> time = device_.sample(request);
  timed.rotation->cursor =
      (timed.rotation->cursor + static_cast<std::size_t>(launches)) % timed.rotation->operands.size();
  if (time.ok() && !(std::isfinite(*time) && *time > 0))
    return Status::internal("the device measured {} microseconds for {} launches", *time, launches);
  return time;
}

Result<std::optional<double>> Sampler::probe(const Timed& timed, double limit_microseconds) {
  const Result<double> first = launch(timed, 1);
  if (!first.ok()) return first.status();
  if (limit_microseconds <= 0 || *first <= limit_microseconds) return std::optional(*first);
  // A first call may pay for threads that slept and code that was never run: the second decides.
  const Result<double> second = launch(timed, 1);
  if (!second.ok()) return second.status();
  if (*second > limit_microseconds) return std::optional<double>();
  return std::optional(*second);
}

Status Sampler::prepare(Timed& timed) {
  if (!device_.times_single_calls()) {
    const Result<double> time = launch(timed, std::max(1, policy_.warmup));
    if (!time.ok()) return time.status();
    calibrate(timed, *time);
    return {};
  }
  std::vector<double> calls;
  for (int i = 0; i < std::max(1, policy_.warmup); ++i) {
    const Result<double> time = launch(timed, 1);
    if (!time.ok()) return time.status();
    calls.push_back(*time);
    if (warms_itself(*time)) break;
  }
  calibrate(timed, lower_quartile(calls));
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
  std::vector<Result<double>> samples(kernels.size(), Result<double>(0.0));
  std::vector<std::size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!device_.times_single_calls()) {
    for (const std::size_t i : order) {
      if (before_turn) before_turn(i);
      samples[i] = batch(*kernels[i]);
    }
    return samples;
  }
  std::vector<std::vector<double>> times(kernels.size());
  for (int turn = -1; turn < turns; ++turn) {
    shuffle(order, random_);
    for (const std::size_t i : order) {
      if (!samples[i].ok() || (turn < 0 && kernels[i]->warms_itself)) continue;
      if (before_turn) before_turn(i);
      const Result<double> time = launch(*kernels[i], kernels[i]->launches_per_turn);
      if (!time.ok()) samples[i] = time;
      if (time.ok() && turn >= 0) times[i].push_back(*time);
    }
  }
  for (const std::size_t i : order)
    if (samples[i].ok()) samples[i] = lower_quartile(times[i]);
  return samples;
}

}  // namespace gemmtune
