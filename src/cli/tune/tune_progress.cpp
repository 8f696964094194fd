#include "cli/tune/tune_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/default_kernels.h"
#include "base/clock.h"
#include "cli/tune/tune_report.h"
#include "measure/statistics.h"

namespace gemmtune::cli {
namespace {

/// Between two live lines: ten a second are enough for a reader.
constexpr auto min_pause = std::chrono::milliseconds(100);
/// Between two live views while nothing is observed.
constexpr auto tick = std::chrono::milliseconds(500);
/// Without a live view: between two lines, and before the first one.
constexpr auto max_silence = std::chrono::seconds(10);
constexpr auto first_silence = std::chrono::seconds(5);

std::string_view activity(MQuestion::Kind kind) {
  switch (kind) {
    case MQuestion::Kind::tune:
      return "searching";
    case MQuestion::Kind::compare:
      return "comparing";
    default:
      return "checking";
  }
}

}  // namespace

TuneProgress::TuneProgress(Console& console, const Device& device, ProfileFile* profile,
                           const TuneRequest& request, bool verbose, const WorkerActivities* workers)
    : console_(console),
      device_(device),
      profile_(profile),
      request_(request),
      estimate_(device, request),
      verbose_(verbose),
      start_(request.clock()),
      workers_(workers) {
  if (workers == nullptr || console.quiet()) return;
  ticker_ = std::thread([this] {
    std::unique_lock lock(lock_);
    auto silence = std::chrono::seconds(first_silence);
    while (!ends_.wait_for(lock, tick, [this] { return ended_; })) {
      if (is_over_ranges() ? step_.items == 0 : states_.empty()) continue;
      if (console_.is_live()) {
        if (Clock::now() - shown_at_ >= tick) show();
      } else if (Clock::now() - line_at_ >= silence) {
        plain_line(is_over_ranges() ? range_line() : heartbeat());
        silence = max_silence;
      }
    }
  });
}

TuneProgress::~TuneProgress() {
  {
    const std::lock_guard guard(lock_);
    ended_ = true;
  }
  ends_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  console_.clear_live_line();
}

std::string TuneProgress::remaining() const {
  const auto left = estimate_.remaining();
  return left ? fmt::format(", ETA {}", duration(*left)) : std::string();
}

void TuneProgress::preparing(std::size_t done, std::size_t count) {
  console_.live_line(fmt::format("{} of {} shapes looked at", done, count));
}

void TuneProgress::run_started(std::span<const std::size_t> waiting, std::size_t evaluators) {
  const std::lock_guard guard(lock_);
  estimate_.begin(waiting, evaluators);
  for (const std::size_t index : waiting) states_[index] = ShapeState::waiting;
}

void TuneProgress::problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) {
  if (is_over_ranges()) return;
  const std::lock_guard guard(lock_);
  if (!settled_.contains(index)) states_[index] = ShapeState::in_work;
  count_ = count;
  estimate_.started(index);
  shapes_.resize(count);
  shapes_[index] = shape_text(shape);
  in_work_[index] = {shape.problem, {}, {}, {}, 0, {}};
  if (Clock::now() - shown_at_ > min_pause) show();
}

void TuneProgress::note_time(std::size_t index, const Trial& trial) {
  const auto found = in_work_.find(index);
  if (found == in_work_.end()) return;
  ++found->second.candidates;
  if (!is_timed(trial)) return;
  const double time = median(trial.outcome.microseconds);
  InWork& work = found->second;
  if (!work.default_kernel) {
    const auto candidate = default_kernel(device_, work.problem, request_.policy.accuracy);
    work.default_kernel = candidate.ok() ? candidate->kernel_name() : std::string();
  }
  work.best_microseconds = std::min(time, work.best_microseconds.value_or(time));
  if (trial.candidate.kernel_name() == *work.default_kernel) work.default_microseconds = time;
}

void TuneProgress::candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) {
  const std::lock_guard guard(lock_);
  candidates_ = candidates_so_far;
  estimate_.tried(index);
  note_time(index, trial);
  if (verbose_ && !is_over_ranges()) console_.line("  " + trial_text(trial));
  if (Clock::now() - shown_at_ > min_pause) show();
}

void TuneProgress::paired_rounds(std::size_t index, const PairedRatio& ratio) {
  const std::lock_guard guard(lock_);
  const auto found = in_work_.find(index);
  if (found == in_work_.end()) return;
  found->second.ratio = ratio;
  estimate_.rounds(index, ratio.rounds);
  if (Clock::now() - shown_at_ > min_pause) show();
}

void TuneProgress::show() {
  shown_at_ = Clock::now();
  if (!console_.is_live()) return;
  if (!is_over_ranges()) {
    console_.live_lines(live_lines(live_run(), live_columns()));
  } else if (step_.items > 0) {
    console_.live_line(range_line());
  }
}

void TuneProgress::plain_line(const std::string& text) {
  console_.line(text);
  line_at_ = Clock::now();
}

void TuneProgress::note_row(std::size_t index, const ItemReport& report) {
  states_[index] = state_of(report);
  settled_[index] = result_text(report);
  speedups_.erase(index);
  if (report.row() != nullptr && report.row()->speedup) speedups_[index] = *report.row()->speedup;
}

LiveRun TuneProgress::live_run() const {
  LiveRun run;
  for (const auto& each : states_) run.shapes.push_back(each.second);
  run.step = live_step_;
  run.seconds = request_.clock() - start_;
  run.remaining = estimate_.remaining();
  run.candidates = candidates_;
  std::vector<double> speedups;
  for (const auto& each : speedups_) speedups.push_back(each.second);
  run.gain = geometric_mean(speedups);
  const auto worker_of = [&](const Problem& problem) {
    LiveWorker worker;
    worker.shape = short_name(problem);
    for (const auto& [index, work] : in_work_) {
      if (!(work.problem == problem)) continue;
      worker.shape = shapes_[index];
      worker.best_microseconds = work.best_microseconds;
      worker.default_microseconds = work.default_microseconds;
      worker.candidates = work.candidates;
      worker.ratio = work.ratio;
    }
    return worker;
  };
  if (workers_ == nullptr) {
    for (const auto& each : in_work_) run.workers.push_back(worker_of(each.second.problem));
    return run;
  }
  for (const WorkerActivity& activity : workers_->all()) {
    LiveWorker worker = activity.problem ? worker_of(*activity.problem) : LiveWorker();
    worker.name = activity.worker;
    worker.doing = activity.doing;
    worker.seconds = steady_seconds() - activity.since;
    run.workers.push_back(std::move(worker));
  }
  return run;
}

std::string TuneProgress::heartbeat() const {
  std::string line = fmt::format("{} of {} settled", settled_.size(), counted(states_.size(), "shape"));
  for (const auto& [index, work] : in_work_) {
    line += fmt::format("; [{}/{}] {}: {}", index + 1, count_, shapes_[index],
                        counted(static_cast<std::size_t>(work.candidates), "candidate"));
    if (work.ratio) {
      line += fmt::format(", {}", ratio_text(*work.ratio));
    } else {
      line += screened_text(work.best_microseconds, work.default_microseconds);
    }
  }
  if (in_work_.empty() && !live_step_.empty()) line += "; " + live_step_;
  return line + remaining();
}

std::string TuneProgress::range_line() const {
  return fmt::format("[{}/{}] {}, {} M = {}: {}", step_.item + 1, step_.items, weight_text(step_.problem),
                     activity(step_.kind), step_.problem.m, progress_text(step_));
}

void TuneProgress::append_to_profile(const ItemReport& report) {
  if (profile_ == nullptr || report.trials.empty()) return;
  if (const Status status = profile_->append(report); !status.ok()) {
    console_.urgent_line(fmt::format("gemmtune tune: -o2: {}", status.message()));
    profile_ = nullptr;  // one message is enough
  }
}

void TuneProgress::problem_paused(std::size_t index) {
  const std::lock_guard guard(lock_);
  in_work_.erase(index);
  // A shape that was settled before and is visited again keeps its row.
  if (!settled_.contains(index)) states_[index] = ShapeState::left;
  estimate_.paused(index);
}

void TuneProgress::problem_settled(std::size_t index, const ItemReport& report) {
  const std::lock_guard guard(lock_);
  note_settled(index, report);
  show();
}

void TuneProgress::note_settled(std::size_t index, const ItemReport& report) {
  const auto before = settled_.find(index);
  const std::string text = result_text(report);
  const bool is_first = before == settled_.end();
  if (!is_first && before->second == text) return;
  if (states_.contains(index)) note_row(index, report);
  std::string line = fmt::format("[{}/{}] {}: {}{}", index + 1, count_, shape_text(report.shape),
                                 is_first ? "" : "revised: ", text);
  if (verbose_) {
    for (const std::string& refusal : report.refusals) line += fmt::format("\n  {}", refusal);
  }
  // On a terminal the live view has the remaining time.
  if (!console_.is_live() && settled_.size() < states_.size()) line += remaining();
  plain_line(line);
}

void TuneProgress::problem_done(std::size_t index, const ItemReport& report) {
  const std::lock_guard guard(lock_);
  console_.clear_live_line();
  append_to_profile(report);
  if (is_over_ranges()) {
    if (verbose_) console_.line(fmt::format("  {}: {}", shape_text(report.shape), result_text(report)));
    return;
  }
  in_work_.erase(index);
  estimate_.done(index, report.trials.empty() ? 0 : report.seconds);
  const bool untouched = report.state == ProblemState::skipped_done ||
                         report.state == ProblemState::out_of_budget ||
                         report.state == ProblemState::interrupted;
  if (untouched && !verbose_) {  // the summary counts them
    if (states_.contains(index)) note_row(index, report);
    return;
  }
  note_settled(index, report);
  show();
}

void TuneProgress::problem_revised(std::size_t index, const ItemReport& report) {
  const std::lock_guard guard(lock_);
  if (!is_over_ranges() && states_.contains(index)) note_settled(index, report);
}

void TuneProgress::confirmation_started(std::size_t index, std::size_t done, std::size_t count) {
  const std::lock_guard guard(lock_);
  estimate_.confirmation_started(done, count);
  if (!console_.is_live()) {
    if (done == 0) plain_line(fmt::format("confirmation pass of {} shapes{}", count, remaining()));
  }
  live_step_ = fmt::format("confirmation {} of {}: {}", done + 1, count, shapes_[index]);
  show();
}

void TuneProgress::range_step(const RangeStep& step) {
  const std::lock_guard guard(lock_);
  if (step.item != step_.item) shown_tenths_ = 0;
  step_ = step;
  show();
  if (verbose_) console_.line(fmt::format("  {} {}", activity(step.kind), short_name(step.problem)));
  const int tenths = static_cast<int>(10 * step.settled_share);
  if (console_.is_live() || verbose_ || tenths <= shown_tenths_) return;
  shown_tenths_ = tenths;
  plain_line(fmt::format("[{}/{}] {}: {}", step.item + 1, step.items, weight_text(step.problem),
                         progress_text(step)));
}

void TuneProgress::range_done(std::size_t item, std::size_t items, const ItemReport& report) {
  const std::lock_guard guard(lock_);
  console_.clear_live_line();
  if (report.state == ProblemState::skipped_done && !verbose_) return;
  plain_line(fmt::format("[{}/{}] {}: {}", item + 1, items, weight_text(report.shape.problem),
                         range_result_text(report)));
}

std::string progress_text(const RangeStep& step) {
  const auto left = estimate_remaining(step);
  if (step.searched < step.first_ms) {
    const std::string text = fmt::format("{} of the first {} M searched", step.searched, step.first_ms);
    return left ? fmt::format("{}, {} for these", text, duration(*left)) : text;
  }
  const std::string text =
      fmt::format("{:.0f} % of the M axis settled, {} M searched", 100 * step.settled_share, step.searched);
  return left ? fmt::format("{}, about {} left", text, duration(*left)) : text;
}

}  // namespace gemmtune::cli
