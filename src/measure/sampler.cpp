#include "measure/sampler.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {

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

Result<std::optional<double>> Sampler::first_look(const Timed& timed, double limit_microseconds) {
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
  const Result<double> time = launch(timed, std::max(1, policy_.warmup));
  if (!time.ok()) return time.status();
  calibrate(timed, *time);
  return {};
}

void Sampler::calibrate(Timed& timed, double call_microseconds) const {
  const double wanted = std::ceil(policy_.sample_microseconds / call_microseconds);
  timed.launches =
      static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(std::max(1, policy_.iterations))));
}

Result<double> Sampler::sample(const Timed& timed) { return launch(timed, timed.launches); }

Result<double> Sampler::sample_interleaved(const Timed& timed) {
  if (timed.launches > 1) {
    const Result<double> uncounted = launch(timed, 1);
    if (!uncounted.ok()) return uncounted;
  }
  return launch(timed, timed.launches);
}

}  // namespace gemmtune
