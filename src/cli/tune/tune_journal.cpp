#include "cli/tune/tune_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/temporary_file.h"
#include "cli/tune/option_table.h"
#include "evaluate/journal/journal_merge.h"
#include "evaluate/journal/journal_texts.h"

namespace gemmtune::cli {
namespace {

void warn(const Status& status) {
  if (!status.ok()) log(LogLevel::warning, "{}", status.message());
}

JournaledDecision decision_of(const ItemReport& report) {
  JournaledDecision decision;
  decision.state = to_string(report.state);
  decision.reason = report.reason;
  const TunedEntry* row = report.row();
  if (row == nullptr) return decision;
  decision.kernel = row->kernel_name;
  decision.microseconds = row->us;
  decision.speedup = row->speedup;
  decision.verdict = to_string(row->verdict);
  if (decision.reason.empty()) decision.reason = report.default_fault;
  return decision;
}

/// Of --journal: the disk of the output may have no locks, so SQLite opens nothing there.
Status fetch_journal(const Outputs& outputs) {
  const auto fetched = TemporaryFile::beside(outputs.working_journal);
  if (!fetched.ok()) return Status::io("{}: {}", outputs.working_journal, fetched.message());
  const std::string& local = fetched->path();
  std::error_code error;
  std::filesystem::copy_file(outputs.journal, local, std::filesystem::copy_options::overwrite_existing,
                             error);
  Status status = error
                      ? Status::io("{}: cannot be copied to {}: {}", outputs.journal, local, error.message())
                      : Status();
  if (status.ok()) status = merge_journal(outputs.working_journal, local).status();
  for (const char* ending : {"-wal", "-shm"}) std::filesystem::remove(local + ending, error);
  return status;
}

}  // namespace

TuneJournal::LocalJournal::~LocalJournal() {
  if (!is_copied) return;
  std::error_code error;
  for (const char* ending : {"", "-wal", "-shm", ".lock", ".runs"})
    std::filesystem::remove(path + ending, error);
  if (!made_folder.empty()) std::filesystem::remove(made_folder, error);
}

void TuneJournal::problem_done(std::size_t, const ItemReport& report) {
  const bool open_end = report.state == ProblemState::out_of_budget ||
                        report.state == ProblemState::interrupted || report.state == ProblemState::failed;
  const bool decided_before = report.state == ProblemState::skipped_done && report.trials.empty();
  if (open_end || decided_before) return;
  // After the profile was written: a kill in between leaves the problem undecided, and the profile gets its
  // lines from the run that goes on.
  warn(journal_.add(run_.id, report.shape.problem, decision_of(report)));
}

void TuneJournal::problem_revised(std::size_t, const ItemReport& report) {
  warn(journal_.add(run_.id, report.shape.problem, decision_of(report)));
}

std::vector<Trial> TuneJournal::unreported_trials(const Problem& problem) {
  auto outcomes = journal_.undecided(run_.id, problem);
  warn(outcomes.status());
  std::vector<Trial> trials;
  if (!outcomes.ok()) return trials;
  for (JournaledOutcome& record : *outcomes) {
    auto candidate = device_.resolve(record.candidate, problem);
    if (candidate.ok()) trials.push_back({std::move(*candidate), std::move(record.outcome)});
  }
  return trials;
}

RunText run_text(const Device& device, const TuneRequest& request, std::span<const ShapeRow> all_shapes) {
  RunText text;
  text.policy = journal_policy_text(request.policy, request.max_err_ratio);
  text.environment = row_environment(device, request.policy).hash;
  text.device = journal_device_text(device.info());
  text.command = fmt::format("{} shapes={}", identity_text(request), all_shapes.size());
  std::string all = fmt::format("{}\n{}\n{}\n{}\n", text.device, text.environment, text.policy, text.command);
  for (const ShapeRow& shape : all_shapes) all += print(shape.problem) + "\n";
  text.request = short_hash(all, 16);
  return text;
}

TuneJournal::TuneJournal(const Outputs& outputs, Journal journal, RunStart run, const Device& device,
                         const TuneRequest& request)
    : local_{outputs.working_journal, outputs.made_journal_folder},
      path_(outputs.working_journal),
      copy_path_(outputs.journal),
      journal_(std::move(journal)),
      run_(run),
      device_(device),
      request_(request) {}

Result<std::unique_ptr<TuneJournal>> TuneJournal::open(const TuneOptions& options, const Outputs& outputs,
                                                       const Device& device, TuneRequest& request,
                                                       std::span<const ShapeRow> all_shapes) {
  std::optional<RecordingWriter> recording;
  if (!options.record.empty()) {
    auto writer =
        RecordingWriter::open(options.record, recorded_run(device, request.policy, request.max_err_ratio));
    if (!writer.ok()) return Status(writer.code(), fmt::format("--record {}", writer.message()));
    recording = std::move(*writer);
  }
  // What an earlier process of this run, perhaps on another machine, left beside the output.
  if (outputs.working_journal != outputs.journal && file_exists(outputs.journal))
    GEMMTUNE_RETURN_IF_ERROR(fetch_journal(outputs));
  auto journal = Journal::open(outputs.working_journal);
  if (!journal.ok()) return journal.status();
  // A new recording must not miss what an earlier process measured.
  const bool go_on = options.resume && !options.request.all && (!recording || recording->goes_on());
  const RunText text = run_text(device, request, all_shapes);
  const auto run = journal->begin_run(text, go_on);
  if (!run.ok()) return Status(run.code(), fmt::format("the journal of measurements: {}", run.message()));
  auto opened =
      std::unique_ptr<TuneJournal>(new TuneJournal(outputs, std::move(*journal), *run, device, request));
  opened->options_ = {run->id, text.policy, text.device, options.retry_failed};
  opened->recording_ = std::move(recording);
  request.earlier_winners = [journal = opened.get()](const Problem& problem) {
    return journal->earlier_winners(problem);
  };
  if (!run->goes_on) return opened;
  request.unreported_trials = [journal = opened.get()](const Problem& problem) {
    return journal->unreported_trials(problem);
  };
  return opened;
}

Result<Evaluator*> TuneJournal::around(Evaluator& inner) {
  Evaluator* measured = &inner;
  if (recording_) {
    if (recorder_ != nullptr) return Status::invalid("--record: one device can be recorded at a time");
    recorder_ = std::make_unique<RecordingEvaluator>(inner, *recording_, device_, request_.shapes,
                                                     steady_seconds, request_.search_space);
    measured = recorder_.get();
  }
  GEMMTUNE_TRY(auto journal, Journal::open(path_));
  Journaled& journaled = evaluators_.emplace_back(Journaled{std::move(journal), nullptr});
  journaled.evaluator = std::make_unique<JournaledEvaluator>(*measured, journaled.journal, device_, options_);
  return journaled.evaluator.get();
}

std::vector<std::string> TuneJournal::earlier_winners(const Problem& problem) {
  constexpr std::size_t max_hints = 4;
  auto hints = journal_.hints(options_.device, problem, max_hints, run_.id);
  warn(hints.status());
  std::vector<std::string> names;
  if (!hints.ok()) return names;
  for (const JournalHint& hint : *hints) names.push_back(hint.candidate);
  return names;
}

void TuneJournal::end(const RunSummary* summary, bool interrupted) {
  const bool complete = summary != nullptr && !interrupted &&
                        std::ranges::none_of(summary->items, [](const ItemReport& report) {
                          return report.state == ProblemState::out_of_budget;
                        });
  warn(journal_.end_run(run_.id, complete));
  if (copy_path_ == path_) return;
  const Status copied = copy_journal(path_, copy_path_);
  warn(copied);
  local_.is_copied = copied.ok();
}

}  // namespace gemmtune::cli
