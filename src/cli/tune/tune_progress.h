// What a running `tune` shows: on a terminal a live view (live_view.h), and a plain line an item above it; elsewhere the plain lines,
// and one after ten seconds without any; and, on the way, the profile file. Over ranges of M it shows how much of
// the axis is settled, for the number of M is not known before the end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "cli/shared/console.h"
#include "cli/tune/live_view.h"
#include "cli/tune/profile_file.h"
#include "cli/tune/worker_activity.h"
#include "tuning/time_estimate.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

class TuneProgress final : public RunObserver {
 public:
  /// `profile` may be null, and so may `workers`: then nothing is shown between what is observed. All must outlive this.
  TuneProgress(Console& console, const Device& device, ProfileFile* profile, const TuneRequest& request,
               bool verbose, const WorkerActivities* workers);
  ~TuneProgress() override;

  void preparing(std::size_t done, std::size_t count) override;
  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override;
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override;
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override;
  void paired_rounds(std::size_t index, const PairedRatio& ratio) override;
  void problem_paused(std::size_t index) override;
  void problem_settled(std::size_t index, const ItemReport& report) override;
  void problem_done(std::size_t index, const ItemReport& report) override;
  void problem_revised(std::size_t index, const ItemReport& report) override;
  void confirmation_started(std::size_t index, std::size_t done, std::size_t count) override;
  void range_step(const RangeStep& step) override;
  void range_done(std::size_t item, std::size_t items, const ItemReport& report) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct InWork {
    Problem problem;
    std::optional<std::string> default_kernel;  // a kernel's name, empty for none; from the first time on
    std::optional<double> default_microseconds;
    std::optional<double> best_microseconds;
    std::int64_t candidates = 0;
    std::optional<PairedRatio> ratio;  // in finals
  };

  bool is_over_ranges() const { return request_.m_range.has_value(); }
  std::string remaining() const;
  void note_time(std::size_t index, const Trial& trial);
  void append_to_profile(const ItemReport& report);
  void show();
  void note_row(std::size_t index, const ItemReport& report);
  /// Shows the result, unless it is shown already.
  void note_settled(std::size_t index, const ItemReport& report);
  LiveRun live_run() const;
  /// Between items, where there is no live view: what is in work, how much is settled, the time left.
  std::string heartbeat() const;
  void plain_line(const std::string& text);
  std::string range_line() const;

  Console& console_;
  const Device& device_;
  ProfileFile* profile_;
  const TuneRequest& request_;
  RunEstimate estimate_;
  bool verbose_;
  double start_;
  std::size_t count_ = 0;
  std::vector<std::string> shapes_;        // texts of those that were started
  std::map<std::size_t, InWork> in_work_;  // by index; several evaluators have one each, the last is shown
  std::int64_t candidates_ = 0;
  RangeStep step_;
  int shown_tenths_ = 0;  // of the axis, on plain lines
  Clock::time_point shown_at_{};
  Clock::time_point line_at_ = Clock::now();  // of the latest plain line
  const WorkerActivities* workers_;
  std::map<std::size_t, ShapeState> states_;    // of the shapes that are tuned, by index
  std::map<std::size_t, std::string> settled_;  // result_text() of those that have a row or a reason
  std::map<std::size_t, double> speedups_;      // of the rows so far
  std::string live_step_;
  // The view goes on while a worker measures: a thread draws it again. What is observed comes from other threads.
  std::mutex lock_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread ticker_;
};

/// "45 % of the M axis settled, 16 M searched, about 2 min left": the rest of this item at its rate so far.
std::string progress_text(const RangeStep& step);

}  // namespace gemmtune::cli
