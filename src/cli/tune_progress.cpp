#include "cli/tune_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/tune_report.h"
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
  index_ = index;
  count_ = count;
  estimate_.started(index);
  shape_ = shape_text(shape);
  shapes_.resize(count);
  shapes_[index] = shape_;
  baseline_microseconds_.reset();
  best_microseconds_.reset();
  const auto baseline = device_.baseline(shape.problem);
  baseline_ = baseline.ok() ? baseline->kernel_name() : std::string();
  show();
}

void TuneProgress::candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) {
  candidates_ = candidates_so_far;
  const bool timed = trial.outcome.kind == OutcomeKind::ok && !trial.outcome.microseconds.empty();
  // Of several problems in work the one that began last is shown.
  if (timed && index == index_) {
    const double time = median(trial.outcome.microseconds);
    best_microseconds_ = std::min(time, best_microseconds_.value_or(time));
    if (trial.candidate.kernel_name() == baseline_) baseline_microseconds_ = time;
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
  if (!console_.is_live()) return;
  std::string line = fmt::format("[{}/{}] {}", index_ + 1, count_, shape_);
  const double gone = seconds_since_start();
  if (candidates_ > 0 && gone > 0) {
    line += fmt::format(", {:.1f} candidates/s", static_cast<double>(candidates_) / gone);
  }
  if (best_microseconds_) line += fmt::format(", best {:.2f} µs", *best_microseconds_);
  if (best_microseconds_ && baseline_microseconds_) {
    line += fmt::format(" ({:.2f}x)", *baseline_microseconds_ / *best_microseconds_);
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
  index_ = index + 1;
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

void TuneProgress::looking_again(std::size_t index, std::size_t done, std::size_t count) {
  estimate_.looking_again(done, count);
  if (!console_.is_live()) {
    if (done == 0) console_.line(fmt::format("second look at {} shapes{}", count, remaining()));
    return;
  }
  console_.live_line(fmt::format("second look [{}/{}] {}{}", done + 1, count, shapes_[index], remaining()));
}

}  // namespace gemmtune::cli
