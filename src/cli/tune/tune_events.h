// --events: what a run does, for other programs while it does it; JSON, one object a line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "base/file.h"
#include "base/status.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Writes an event for what it observes:
///   run_started {waiting (empty over ranges of M), device}; problem_started {index, shapes, problem}; candidate {index, candidates, kernelName,
///   outcome, us, reason}; problem_paused {index}; problem_settled {index, and what --json has of the shape: its row is in the
///   file, and under a budget it may be visited again}; problem_done {the same, when no visit follows}; problem_revised {the
///   same, after its confirmation pass}; run_ended {state}.
/// Each line is in the operating system's hands when the call returns.
class TuneEvents final : public RunObserver {
 public:
  /// Appends to `path`, which is made if it does not exist. The device must outlive this.
  static Result<std::unique_ptr<TuneEvents>> open(const std::string& path, const DeviceInfo& device);

  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override;
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override;
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override;
  void paired_rounds(std::size_t index, const PairedRatio& ratio) override;
  void problem_paused(std::size_t index) override;
  void problem_settled(std::size_t index, const ItemReport& report) override;
  void problem_done(std::size_t index, const ItemReport& report) override;
  void problem_revised(std::size_t index, const ItemReport& report) override;
  /// "done", "interrupted" or "failed": the last event of a run that was not killed.
  void run_ended(std::string_view state);

 private:
  TuneEvents(LineFile file, const DeviceInfo& device) : file_(std::move(file)), device_(device) {}
  /// Says a full disk once and goes on without events.
  void write(const std::string& line);

  std::optional<LineFile> file_;  // until a line could not be written
  const DeviceInfo& device_;
  bool started_ = false;
};

}  // namespace gemmtune::cli
