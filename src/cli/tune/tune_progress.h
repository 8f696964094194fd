// What a running `tune` shows: one live line on a terminal, a plain line a problem elsewhere; and, on the
// way, the profile file.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "cli/shared/console.h"
#include "cli/tune/profile_file.h"
#include "tuning/time_estimate.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

class TuneProgress final : public TuneObserver {
 public:
  /// `profile` may be null. All must outlive this.
  TuneProgress(Console& console, const Device& device, ProfileFile* profile, const TuneRequest& request,
               bool verbose);

  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override;
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override;
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override;
  void problem_done(std::size_t index, const ProblemReport& report) override;
  void confirmation_started(std::size_t index, std::size_t done, std::size_t count) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct InWork {
    std::string baseline;  // a kernel's name
    std::optional<double> baseline_microseconds;
    std::optional<double> best_microseconds;
  };

  double seconds_since_start() const;
  std::string remaining() const;
  void show();

  Console& console_;
  const Device& device_;
  ProfileFile* profile_;
  RunEstimate estimate_;
  SecondsClock clock_;
  bool verbose_;
  double start_;
  std::size_t count_ = 0;
  std::vector<std::string> shapes_;        // texts of those that were started
  std::map<std::size_t, InWork> in_work_;  // by index; several evaluators have one each, the last is shown
  std::int64_t candidates_ = 0;
  Clock::time_point shown_at_{};
};

}  // namespace gemmtune::cli
