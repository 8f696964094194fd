// How long a run still takes, from what its finished shapes cost and took.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "tuning/tuner.h"

namespace gemmtune {

/// What tuning one shape costs with so many candidates that are tried, each of about this time, before it is
/// known how fast the machine is: both in seconds of an imagined one.
struct ShapeCost {
  double constant = 0;  // of its candidates: building, short samples, rounds of finals
  double growing = 0;   // with the problem: checking, warming up, calls longer than a sample's least length
};
ShapeCost shape_cost(double call_microseconds, std::size_t candidates);

struct DoneShape {
  ShapeCost cost;
  double seconds = 0;
};

/// Seconds for what remains: Σ a · constant + b · growing, with a and b ≥ 0 fitted to the finished shapes.
/// While those are few (one shape, or shapes of one size) the imagined machine's own proportion of the two
/// decides. `budget_left` caps the answer. nullopt: nothing is known yet.
std::optional<double> estimate_remaining(std::span<const DoneShape> done,
                                         std::span<const ShapeCost> remaining,
                                         std::optional<double> budget_left);

/// The estimate of one run of the tuner. The first question lists the candidates of every waiting shape.
class RunEstimate {
 public:
  /// Both must outlive this.
  RunEstimate(const Device& device, const TuneRequest& request) : device_(device), request_(request) {}

  /// The shapes that will be tuned, by index into the request, by so many evaluators at once.
  void begin(std::span<const std::size_t> waiting, std::size_t evaluators);
  void started(std::size_t index);
  void done(std::size_t index, double seconds);
  /// Confirmation passes: as TuneObserver::confirmation_started.
  void confirmation_started(std::size_t done, std::size_t count);
  std::optional<double> remaining() const;

 private:
  struct Shape {
    ShapeCost cost;
    bool waiting = false;         // not done
    std::optional<double> begin;  // in work since then
  };

  const Device& device_;
  const TuneRequest& request_;
  std::vector<Shape> shapes_;
  std::vector<DoneShape> done_;
  double begin_ = 0;
  std::size_t evaluators_ = 1;
  std::size_t confirmations_done_ = 0;
  std::size_t confirmations_ = 0;  // 0: none has begun
  double confirmations_begin_ = 0;
  double finals_seconds_ = 0;  // that all of them took

  std::optional<double> finals_remaining() const;
};

}  // namespace gemmtune
