// Where the time of a `tune` went (--time_breakdown).
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>

#include "evaluate/evaluator.h"

namespace gemmtune::cli {

/// Sums over all evaluators; safe from any thread.
class TimeBreakdown {
 public:
  enum class Part { search, finals, energy, neighbours };
  void add(Part part, double seconds);
  /// "time breakdown of 12.3 s: reading 0.10 s; search (build, verify, sample) 8.20 s in 40 calls; …; the rest". With
  /// several devices their seconds add up.
  std::string text(double reading_seconds, double run_seconds) const;

 private:
  struct Sum {
    double seconds = 0;
    int calls = 0;
  };
  mutable std::mutex lock_;
  std::array<Sum, 4> sums_;  // by part
};

/// `inner` with its calls timed. The breakdown must outlive it.
std::unique_ptr<Evaluator> make_timed_evaluator(std::unique_ptr<Evaluator> inner, TimeBreakdown& breakdown);

}  // namespace gemmtune::cli
