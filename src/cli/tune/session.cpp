#include "cli/tune/session.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "backends/backend.h"
#include "backends/traits.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/help/help_text.h"
#include "cli/shared/device_options.h"
#include "cli/shared/family_names.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/worker_evaluator.h"
#include "cli/tune/dry_run.h"
#include "cli/tune/keep_log.h"
#include "cli/tune/shape_choice.h"
#include "cli/tune/tune_events.h"
#include "cli/tune/tune_progress.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_workers.h"
#include "evaluate/evaluator.h"
#include "evaluate/replay/replay_device.h"
#include "evaluate/replay/replay_evaluator.h"
#include "resolve/known_rows.h"
#include "tuning/budget.h"
#include "tuning/row_check.h"
#include "tuning/work_item.h"

namespace gemmtune::cli {
namespace {

/// Several observers of one run, each called in turn.
class ObserverList final : public RunObserver {
 public:
  /// All must outlive this.
  explicit ObserverList(std::vector<RunObserver*> observers) : observers_(std::move(observers)) {}

  void preparing(std::size_t done, std::size_t count) override {
    for (RunObserver* each : observers_) each->preparing(done, count);
  }
  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override {
    for (RunObserver* each : observers_) each->run_started(waiting, evaluators);
  }
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override {
    for (RunObserver* each : observers_) each->problem_started(index, count, shape);
  }
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override {
    for (RunObserver* each : observers_) each->candidate_done(index, trial, candidates_so_far);
  }
  void paired_rounds(std::size_t index, const PairedRatio& paired) override {
    for (RunObserver* each : observers_) each->paired_rounds(index, paired);
  }
  void problem_paused(std::size_t index) override {
    for (RunObserver* each : observers_) each->problem_paused(index);
  }
  void problem_settled(std::size_t index, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->problem_settled(index, report);
  }
  void problem_done(std::size_t index, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->problem_done(index, report);
  }
  void confirmation_started(std::size_t index, std::size_t done, std::size_t count) override {
    for (RunObserver* each : observers_) each->confirmation_started(index, done, count);
  }
  void problem_revised(std::size_t index, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->problem_revised(index, report);
  }
  void range_step(const RangeStep& step) override {
    for (RunObserver* each : observers_) each->range_step(step);
  }
  void range_done(std::size_t item, std::size_t items, const ItemReport& report) override {
    for (RunObserver* each : observers_) each->range_done(item, items, report);
  }

 private:
  std::vector<RunObserver*> observers_;
};

/// Verifies the row of each shape of the run; of shapes that were skipped the row in the outputs.
Result<std::vector<CheckedRow>> check_winners(const Device& device, Evaluator& evaluator,
                                              const RunSummary& summary, const Outputs& outputs) {
  std::vector<CheckedRow> rows;
  if (summary.items.empty()) return rows;
  std::vector<std::string> paths{outputs.tuned};
  paths.insert(paths.end(), outputs.also_read.begin(), outputs.also_read.end());
  GEMMTUNE_TRY(const auto known,
               KnownRows::read(paths, form_of(summary.items.front().shape.problem), device.info()));
  for (const ItemReport& report : summary.items) {
    if (interrupted()) break;
    const TunedEntry* row = report.row();
    if (row == nullptr && report.state == ProblemState::skipped_done) {
      if (const KnownRows::Row* found = known.find(report.shape.problem)) row = &found->entry;
    }
    if (row != nullptr) rows.push_back({*row, check_rows(device, evaluator, {row, 1}, {}).front()});
  }
  return rows;
}

/// All shapes of the recording, cut to --limit.
ShapeList shapes_of_recording(const TuneOptions& options, const Recording& recording) {
  ShapeList list;
  list.source = options.replay;
  for (const RecordedProblem& problem : recording.problems) {
    if (options.limit > 0 && list.rows.size() == static_cast<std::size_t>(options.limit)) break;
    list.rows.push_back({problem.problem, problem.calls, {}, 0});
  }
  return list;
}

/// The recorded times are of one policy: an error where the options ask for another.
Status take_recorded_policy(const RecordedRun& run, const TuneOptions& options, TuneRequest& request) {
  const std::string asked = policy_of(options, run.device).text();
  const std::string recorded = run.policy.text();
  if (asked != default_policy(run.device).text() && asked != recorded) {
    return Status::invalid("--replay {}: was recorded with {}, asked is {}", options.replay, recorded, asked);
  }
  request.policy.cache = run.policy.cache;
  request.policy.warmup = run.policy.warmup;
  request.policy.iterations = run.policy.iterations;
  request.policy.sample_microseconds = run.policy.sample_microseconds;
  request.policy.init = run.policy.init;
  request.policy.launch = run.policy.launch;
  request.policy.rotating_mb = run.policy.rotating_mb;
  request.policy.team = run.policy.team;
  request.policy.parallel_pass = run.policy.parallel_pass;
  request.policy.processor_time = run.policy.processor_time;
  return {};
}

/// --shard all/16 --list prints every shard.
constexpr std::string_view all_shards = "all/";

/// On a terminal sentences break at words. Commands and paths stay whole, because people copy them.
std::string for_terminal(const std::string& text) {
  if (!stdout_is_terminal()) return text;
  std::string result;
  for (const std::string_view line : split(text, '\n')) {
    const bool is_copied = line.find("gemmtune ") != std::string_view::npos ||
                           line.starts_with("written: ") || line.starts_with("next: ");
    result +=
        (result.empty() ? "" : "\n") + (is_copied ? std::string(line) : wrapped(line, 0, stdout_columns()));
  }
  return result;
}

}  // namespace

Status TuneSession::open_devices() {
  if (!options_.replay.empty()) {
    auto recording = read_recording(options_.replay);
    if (!recording.ok()) return Status(recording.code(), fmt::format("--replay {}", recording.message()));
    recording_ = std::move(*recording);
    devices_.push_back(std::make_unique<ReplayDevice>(*recording_));
    return {};
  }
  GEMMTUNE_TRY(devices_, open_tune_devices(options_, environment_));
  if (options_.compare && devices_.size() > 1) return Status::invalid("--compare takes one device");
  return resolve_families(options_.families, device()).status();
}

Status TuneSession::read_shapes() {
  if (is_replay() && !names_shapes(options_)) {
    shapes_ = shapes_of_recording(options_, *recording_);
    return {};
  }
  GEMMTUNE_TRY(shapes_, shapes_of(options_, environment_, devices_.empty() ? DeviceInfo() : device().info()));
  return add_bias(options_, shapes_);
}

Status TuneSession::take_shard() {
  if (options_.shard.empty()) return {};
  const bool all = options_.list && options_.shard.starts_with(all_shards);
  const std::string text = all ? "1/" + options_.shard.substr(all_shards.size()) : options_.shard;
  GEMMTUNE_TRY(const auto shard, shard_of(text, environment_));
  std::optional<MRange> range;
  if (!options_.m_range.empty()) range = m_range_of(options_).value().range;
  const bool runs_on_host =
      devices_.empty() ? options_.device.backend == "cpu" : traits_of(device().info()).runs_on_host;
  shard_.emplace(shard, runs_on_host, options_, range, shapes_);
  return options_.list ? Status() : name_outputs(shard, options_);
}

Result<TuneAnswer> TuneSession::list_shards() {
  if (!options_.replay.empty()) GEMMTUNE_RETURN_IF_ERROR(open_devices());
  GEMMTUNE_RETURN_IF_ERROR(read_shapes());
  GEMMTUNE_RETURN_IF_ERROR(take_shard());
  for (const std::string& diagnostic : shapes_.diagnostics) print_note(diagnostic);
  for (const std::string& note : shapes_.notes) print_note(note);
  return TuneAnswer{shapes_.diagnostics.empty() ? exit_done : exit_findings,
                    shard_->list(options_.shard.starts_with(all_shards), options_.json)};
}

Result<TuneAnswer> TuneSession::answer_dry_run() {
  std::optional<Shard> shard;
  if (shard_) shard = shard_->shard();
  GEMMTUNE_TRY(const auto outputs, outputs_of(options_, environment_, device().info(), shapes_, shard));
  GEMMTUNE_TRY(const auto request, request_of(options_, shapes_, outputs, device()));
  GEMMTUNE_TRY(const auto plan, dry_run(device(), request));
  console_->clear_live_line();
  for (const std::string& diagnostic : shapes_.diagnostics) console_->urgent_line(diagnostic);
  for (const std::string& note : shapes_.notes) console_->urgent_line(note);
  return TuneAnswer{
      shapes_.diagnostics.empty() ? exit_done : exit_findings,
      options_.json ? dry_run_json(plan, device().info()) : dry_run_text(plan, device().info())};
}

Status TuneSession::prepare() {
  std::optional<Shard> shard;
  if (shard_) shard = shard_->shard();
  GEMMTUNE_TRY(outputs_, outputs_of(options_, environment_, device().info(), shapes_, shard));
  if (!outputs_.keep_folder.empty())
    options_.device.source_folder = join_path(outputs_.keep_folder, "sources");
  Outputs tuned_into = outputs_;
  if (!outputs_.is_written) tuned_into.tuned.clear();
  if (options_.compare) {
    candidate_file_.emplace(outputs_.tuned);
    GEMMTUNE_RETURN_IF_ERROR(candidate_file_->make());
    tuned_into.also_read.insert(tuned_into.also_read.begin(), outputs_.tuned);
    tuned_into.tuned = candidate_file_->path();
  }
  GEMMTUNE_TRY(request_, request_of(options_, shapes_, tuned_into, device()));
  GEMMTUNE_RETURN_IF_ERROR(check_energy(device(), request_));
  if (is_replay()) GEMMTUNE_RETURN_IF_ERROR(take_recorded_policy(recording_->run, options_, request_));
  if (!options_.compare || options_.keep) GEMMTUNE_RETURN_IF_ERROR(prepare_profile());
  if (shard_) GEMMTUNE_RETURN_IF_ERROR(shard_->begin(outputs_, device(), request_));
  if (is_replay() || options_.compare) return {};
  GEMMTUNE_TRY(journal_,
               TuneJournal::open(options_, outputs_, device(), request_,
                                 shard_ ? shard_->all_shapes() : std::span<const ShapeRow>(request_.shapes)));
  return {};
}

Status TuneSession::prepare_profile() {
  if (outputs_.profile.empty()) return {};
  profile_.emplace(outputs_.profile, device(), row_environment(device(), request_.policy).hash,
                   form_of(request_.shapes.front().problem), request_.publish.schema,
                   weighs_energy(request_));
  return profile_->check_header();
}

std::string TuneSession::opening_line() const {
  if (request_.m_range) {
    const MRange& range = request_.m_range->range;
    const std::size_t weights = weights_of(request_.shapes, range.last).size();
    const std::string text =
        fmt::format("{} over M = {} to {}, regret up to {:g} %", counted(weights, "weight"), range.first,
                    range.last, 100 * request_.m_range->regret);
    return is_replay() ? fmt::format("{}, from {}", text, options_.replay) : text;
  }
  const std::string shapes = counted(shapes_.rows.size(), "shape");
  if (is_replay())
    return fmt::format("{} from {}, recorded on {}", shapes, options_.replay, device_line(device().info()));
  return fmt::format("{} on {}", shapes,
                     joined(devices_, "; ", [](const auto& device) { return device_line(device->info()); }));
}

void TuneSession::announce() {
  console_->clear_live_line();
  for (const std::string& diagnostic : shapes_.diagnostics) console_->urgent_line(diagnostic);
  for (const std::string& note : shapes_.notes) console_->urgent_line(note);
  for (const std::string& note : options_.notes) console_->urgent_line(note);
  if (options_.device.compile_threads > 0 && !traits_of(device().info()).compiles_ahead)
    console_->urgent_line(fmt::format("--num_threads {}: nothing is compiled at run time on {}",
                                      options_.device.compile_threads, device().info().name));
  if (!outputs_.keep_folder.empty())
    console_->line(fmt::format("--keep: sources, log and times are left in {}", outputs_.keep_folder));
  if (!is_replay() && options_.workers > static_cast<int>(devices_.size())) {
    console_->line(fmt::format(
        "--mp {}: one worker a device, and {} here; cores can be divided: --device cpu:0-7,cpu:8-15",
        options_.workers, devices_.size() == 1 ? "one is" : fmt::format("{} are", devices_.size())));
  }
  if (options_.compare) return;
  if (shard_) console_->line(shard_->line());
  const bool goes_on = journal_ != nullptr && journal_->goes_on();
  console_->line(opening_line() + (goes_on ? ", going on with an unfinished run" : ""));
}

Status TuneSession::make_evaluators() {
  if (is_replay()) {
    auto replay = std::make_unique<ReplayEvaluator>(*recording_, request_.policy.seed);
    request_.clock = [evaluator = replay.get()] { return evaluator->seconds(); };
    evaluators_.push_back(std::move(replay));
  } else {
    WorkerHooks hooks;
    hooks.is_spent = [this, budget = request_.budget_seconds] {
      return budget > 0 && !decides_buckets_ && seconds() - begin_ > cut_off_seconds(budget);
    };
    hooks.on_waited = [this](double waited) { waited_seconds_.fetch_add(waited); };
    request_.clock = [this] { return seconds(); };
    evaluators_ = cli::make_evaluators(options_, environment_, devices_, request_, hooks);
  }
  for (std::size_t i = 0; i < evaluators_.size(); ++i) {
    auto& evaluator = evaluators_[i];
    if (!is_replay() && console_->is_live())
      evaluator = make_watched_evaluator(std::move(evaluator), activities_, devices_[i]->info().name);
    if (options_.time_breakdown) evaluator = make_timed_evaluator(std::move(evaluator), time_breakdown_);
    if (journal_ == nullptr) {
      measuring_.push_back(evaluator.get());
      continue;
    }
    GEMMTUNE_TRY(const auto journaled, journal_->around(*evaluator));
    measuring_.push_back(journaled);
  }
  return {};
}

Result<RunSummary> TuneSession::tune() {
  TuneProgress progress(*console_, device(), profile_ ? &*profile_ : nullptr, request_, options_.verbose,
                        is_replay() ? nullptr : &activities_);
  std::unique_ptr<TuneEvents> events;
  std::vector<RunObserver*> observers;
  if (!options_.events.empty()) {
    GEMMTUNE_TRY(events, TuneEvents::open(options_.events, device().info()));
    observers.push_back(events.get());
  }
  observers.push_back(&progress);
  std::unique_ptr<KeepLog> log;
  if (!outputs_.keep_folder.empty()) {
    GEMMTUNE_TRY(log, KeepLog::open(outputs_.keep_folder, opening_line()));
    observers.push_back(log.get());
  }
  if (journal_ != nullptr) observers.push_back(journal_.get());
  ObserverList all(std::move(observers));
  if (!is_replay()) request_.seconds_spent = seconds() - begin_;
  auto summary = gemmtune::tune(device(), measuring_, request_, all);
  if (summary.ok()) summary->waited_seconds = waited_seconds_;
  if (events != nullptr) events->run_ended(!summary.ok() ? "failed" : interrupted() ? "interrupted" : "done");
  // Buckets are a part of the run: it is not complete before they are decided.
  const bool goes_on = summary.ok() && options_.buckets;
  if (journal_ != nullptr && !goes_on) journal_->end(summary.ok() ? &*summary : nullptr, interrupted());
  console_->clear_live_line();
  if (options_.time_breakdown && summary.ok())
    console_->urgent_line(time_breakdown_.text(request_.seconds_spent, summary->seconds));
  return summary;
}

Result<std::vector<CheckedRow>> TuneSession::winners_checked(const RunSummary& summary) {
  const auto verifier =
      make_verifying_worker(device(), options_.device, environment_, request_.max_err_ratio);
  return check_winners(device(), *verifier, summary, outputs_);
}

Result<BucketReport> TuneSession::decide_buckets() {
  const double budget = request_.budget_seconds;
  const double left = begin_ + cut_off_seconds(budget) - seconds();
  const Deadline deadline = budget > 0 && !is_replay() ? Deadline::in(left) : Deadline::never();
  decides_buckets_ = true;
  return write_buckets(options_, outputs_, device(), request_.policy, *measuring_.front(), deadline);
}

Result<TuneAnswer> TuneSession::report(const RunSummary& summary) {
  if (!request_.m_range) {
    for (const std::string& line : failed_families(summary.items)) console_->urgent_line(line);
  }
  std::optional<MRange> range;
  if (request_.m_range) range = request_.m_range->range;
  RunEnding ending{summary, shapes_, outputs_, device().info(), range, interrupted()};
  if (options_.buckets) {
    auto buckets = decide_buckets();
    if (journal_ != nullptr) journal_->end(buckets.ok() ? &summary : nullptr, interrupted());
    if (!buckets.ok()) return buckets.status();
    ending.buckets = std::move(*buckets);
    ending.interrupted = interrupted();
  }
  if (options_.checks_winners && !ending.interrupted) {
    GEMMTUNE_TRY(ending.correctness, winners_checked(summary));
    ending.interrupted = interrupted();
  }
  return TuneAnswer{ending_code(ending),
                    options_.json ? ending_json(ending) : for_terminal(ending_text(ending))};
}

Result<TuneAnswer> TuneSession::run() {
  if (options_.list) return list_shards();
  begin_ = steady_seconds();
  GEMMTUNE_RETURN_IF_ERROR(open_devices());
  console_.emplace(options_.quiet);
  if (!options_.input.empty()) console_->live_line("reading " + options_.input);
  begin_ = seconds();
  GEMMTUNE_RETURN_IF_ERROR(read_shapes());
  GEMMTUNE_RETURN_IF_ERROR(take_shard());
  if (options_.dry_run) return answer_dry_run();
  GEMMTUNE_RETURN_IF_ERROR(prepare());
  announce();
  watch_for_interrupts();
  GEMMTUNE_RETURN_IF_ERROR(make_evaluators());
  GEMMTUNE_TRY(const auto summary, tune());
  if (shard_) GEMMTUNE_RETURN_IF_ERROR(shard_->end(summary, request_, interrupted()));
  if (!options_.compare) return report(summary);
  if (interrupted()) return TuneAnswer{exit_interrupted, {}};
  return TuneAnswer{
      compare_rows(options_, outputs_, device(), request_, summary, *console_, *evaluators_.front()), {}};
}

}  // namespace gemmtune::cli
