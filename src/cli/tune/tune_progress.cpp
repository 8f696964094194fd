#include "cli/tune/tune_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/tune/tune_report.h"
#include "measure/statistics.h"

namespace gemmtune::cli {

TuneProgress::TuneProgress(Console& console, const Device& device, ProfileFile* profile,
                           const TuneRequest& request, bool verbose)
    : console_(console),
      device_(device),
      profile_(profile),
      estimate_(device, request),
      clock_(request.clock),
      verbose_(verbose),
      start_(clock_()) {}

double TuneProgress::seconds_since_start() const { return clock_() - start_; }

std::string TuneProgress::remaining() const {
  const auto left = estimate_.remaining();
  return left ? fmt::format(", ETA {}", duration(*left)) : std::string();
}

void TuneProgress::run_started(std::span<const std::size_t> waiting, std::size_t evaluators) {
  estimate_.begin(waiting, evaluators);
}

void TuneProgress::problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) {
  count_ = count;
  estimate_.started(index);
  shapes_.resize(count);
  shapes_[index] = shape_text(shape);
  const auto baseline = device_.baseline(shape.problem);
  in_work_[index] = {baseline.ok() ? baseline->kernel_name() : std::string(), {}, {}};
  show();
}

void TuneProgress::candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) {
  candidates_ = candidates_so_far;
  const bool timed = trial.outcome.kind == OutcomeKind::ok && !trial.outcome.microseconds.empty();
  const auto found = in_work_.find(index);
  if (timed && found != in_work_.end()) {
    const double time = median(trial.outcome.microseconds);
    InWork& work = found->second;
    work.best_microseconds = std::min(time, work.best_microseconds.value_or(time));
    if (trial.candidate.kernel_name() == work.baseline) work.baseline_microseconds = time;
  }
  if (verbose_) {
    console_.line(timed ? fmt::format("  {} {:.2f} µs ±{:.2f}, err_ratio {:.4f}",
                                      trial.candidate.kernel_name(), median(trial.outcome.microseconds),
                                      spread(trial.outcome.microseconds), trial.outcome.err_ratio)
                        : fmt::format("  {} {}{}{}", trial.candidate.kernel_name(),
                                      to_string(trial.outcome.kind), trial.outcome.reason.empty() ? "" : ": ",
                                      trial.outcome.reason));
  }
  // Ten times a second is enough for a reader, and nothing is written while something is timed.
  if (Clock::now() - shown_at_ > std::chrono::milliseconds(100)) show();
}

void TuneProgress::show() {
  shown_at_ = Clock::now();
  if (!console_.is_live() || in_work_.empty()) return;
  const auto& [index, work] = *in_work_.rbegin();
  std::string line = fmt::format("[{}/{}] {}", index + 1, count_, shapes_[index]);
  const double gone = seconds_since_start();
  if (candidates_ > 0 && gone > 0) {
    line += fmt::format(", {:.1f} candidates/s", static_cast<double>(candidates_) / gone);
  }
  if (work.best_microseconds) line += fmt::format(", best {:.2f} µs", *work.best_microseconds);
  if (work.best_microseconds && work.baseline_microseconds) {
    line += fmt::format(" ({:.2f}x)", *work.baseline_microseconds / *work.best_microseconds);
  }
  console_.live_line(line + remaining());
}

void TuneProgress::problem_done(std::size_t index, const ProblemReport& report) {
  console_.clear_live_line();
  if (profile_ != nullptr && !report.trials.empty()) {
    if (const Status status = profile_->append(report); !status.ok()) {
      console_.urgent_line(fmt::format("gemmtune tune: -o2: {}", status.message()));
      profile_ = nullptr;  // said once
    }
  }
  in_work_.erase(index);
  estimate_.done(index, report.seconds);
  if (report.state == ProblemState::skipped_done && !verbose_) return;
  std::string line =
      fmt::format("[{}/{}] {}: {}", index + 1, count_, shape_text(report.shape), result_text(report));
  if (verbose_) {
    for (const std::string& refusal : report.refusals) line += fmt::format("\n  {}", refusal);
  }
  // The rest of the time only where somebody reads along in a file.
  if (!console_.is_live() && index + 1 < count_) line += remaining();
  console_.line(line);
}

void TuneProgress::confirmation_started(std::size_t index, std::size_t done, std::size_t count) {
  estimate_.confirmation_started(done, count);
  if (!console_.is_live()) {
    if (done == 0) console_.line(fmt::format("confirmation pass of {} shapes{}", count, remaining()));
    return;
  }
  console_.live_line(fmt::format("confirmation [{}/{}] {}{}", done + 1, count, shapes_[index], remaining()));
}

}  // namespace gemmtune::cli
