// How long a run still takes, from what its finished shapes cost and took.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend.h"
#include "tuning/run_observer.h"
#include "tuning/tune_request.h"

namespace gemmtune {

/// How fast an imagined machine is while it is tuned, checks and warming up included; only ratios count.
struct ImaginedMachine {
  double bytes_per_microsecond = 2e4;  // 20 GB/s
  double flops_per_microsecond = 4e5;  // 400 GFLOP/s
};
inline constexpr ImaginedMachine imagined_cpu{};
inline constexpr ImaginedMachine imagined_gpu{
    2e5, 1e8};  // as long as shapes of the recorded H200 took, not its peaks

/// A rough time of one call, microseconds: the larger of traffic and arithmetic. Only ratios of it are used.
double expected_microseconds(const Problem& problem, const ImaginedMachine& machine = imagined_cpu);

/// What tuning one shape costs with so many candidates that are tried, each of about this time, before it is
/// known how fast the machine is: both in seconds of an imagined one.
struct ShapeCost {
  double constant = 0;  // of its candidates: building, short samples, rounds of finals
  double growing = 0;   // with the problem: checking, warming up, calls longer than a sample's least length

  ShapeCost& operator+=(const ShapeCost& other);
  ShapeCost& operator-=(const ShapeCost& other);  // not below 0: the other was added before
};
ShapeCost shape_cost(double call_microseconds, std::size_t candidates);

/// What finished shapes took, as sums. Seconds are a · constant + b · growing with a and b ≥ 0 fitted to them;
/// while they are few (one shape, or shapes of one size) the imagined machine's own proportion of the two
/// decides.
class DoneShapes {
 public:
  void add(const ShapeCost& cost, double seconds);
  bool empty() const { return count_ == 0; }
  /// Of all that costs so much together. Requires !empty().
  double seconds_of(const ShapeCost& cost) const;

 private:
  void add_weighted(const ShapeCost& cost, double seconds, double weight);
  ShapeCost speeds() const;

  ShapeCost all_;
  double seconds_ = 0;
  double count_ = 0;
  double cc_ = 0, cg_ = 0, gg_ = 0, cs_ = 0, gs_ = 0;  // of the normal equations
};

/// Seconds for what remains (the sum of its costs), at most `budget_left`. nullopt: nothing is known yet.
std::optional<double> estimate_remaining(const DoneShapes& done, const ShapeCost& remaining,
                                         std::optional<double> budget_left);

/// Seconds for what remains of an item over a range of M, at its rate so far: of the first M until those are
/// searched, then of the axis. nullopt: nothing is known yet, which is so up to the first M that is searched,
/// and from there on until a tenth of the axis was settled by questions between the first M.
std::optional<double> estimate_remaining(const RangeStep& step);

/// The estimate of one run of the tuner, which begins when this is made. Nothing but begin() takes longer where
/// the list of shapes is longer.
class RunEstimate {
 public:
  /// Both must outlive this.
  RunEstimate(const Device& device, const TuneRequest& request)
      : device_(device), request_(request), begin_(request.clock()) {}

  /// The shapes that will be tuned, by index into the request, by so many evaluators at once. Lists the
  /// candidates of some of them.
  void begin(std::span<const std::size_t> waiting, std::size_t evaluators);
  void started(std::size_t index);
  /// A candidate of the shape was tried: the first estimate needs no finished shape.
  void tried(std::size_t index);
  /// So many paired rounds of the shape's finals are measured: its search is over.
  void rounds(std::size_t index, int rounds);
  /// The shape is left, and may be started again.
  void paused(std::size_t index);
  /// `seconds` 0: it was not tuned after all.
  void done(std::size_t index, double seconds);
  /// Confirmation passes: as RunObserver::confirmation_started.
  void confirmation_started(std::size_t done, std::size_t count);
  std::optional<double> remaining() const;

 private:
  struct Shape {
    ShapeCost cost;
    double trials = 0;     // expected
    bool waiting = false;  // not done
    double tried = 0;      // candidates, before it was left
    /// The share of its time that so many candidates and this share of its finals are.
    double share_of(double candidates, double finals) const;
    ShapeCost rest() const;
  };
  struct InWork {
    double begin = 0;
    double tried = 0;     // candidates
    double finals = 0;    // share of its finals; above 0: the search is over
    double known_at = 0;  // when the latest of these was done
  };

  const Device& device_;
  const TuneRequest& request_;
  std::vector<Shape> shapes_;
  ShapeCost waiting_;                      // of all that wait and are not in work
  std::map<std::size_t, InWork> in_work_;  // by index
  DoneShapes done_;
  DoneShapes left_;  // what was done of shapes that were left
  double begin_;
  std::size_t evaluators_ = 1;
  std::size_t confirmations_done_ = 0;
  std::size_t confirmations_ = 0;  // 0: none has begun
  double confirmations_begin_ = 0;
  double finals_seconds_ = 0;  // that all of them took

  DoneShapes known() const;
  std::optional<double> finals_remaining() const;
};

}  // namespace gemmtune
