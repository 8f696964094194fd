#include "cli/tune/tune_journal.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "evaluate/journal/journal_texts.h"

namespace gemmtune::cli {
namespace {

void warn(const Status& status) {
  if (!status.ok()) log(LogLevel::warning, "{}", status.message());
}

JournaledDecision decision_of(const ProblemReport& report) {
  JournaledDecision decision;
  decision.state = to_string(report.state);
  decision.reason = report.reason;
  if (!report.entry) return decision;
  decision.kernel = report.entry->kernel_name;
  decision.microseconds = report.entry->us;
  decision.speedup = report.entry->speedup;
  decision.verdict = to_string(report.entry->verdict);
  return decision;
}

}  // namespace

class TuneJournal::Observer final : public TuneObserver {
 public:
  Observer(TuneObserver& inner, TuneJournal& owner) : inner_(inner), owner_(owner) {}

  void run_started(std::span<const std::size_t> waiting, std::size_t evaluators) override {
    inner_.run_started(waiting, evaluators);
  }
  void problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) override {
    inner_.problem_started(index, count, shape);
  }
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override {
    inner_.candidate_done(index, trial, candidates_so_far);
  }
  void problem_done(std::size_t index, const ProblemReport& report) override {
    ProblemReport whole = report;
    if (whole.trials.empty()) whole.trials = undecided_trials(report.shape.problem);
    inner_.problem_done(index, whole);
    const bool open_end = report.state == ProblemState::out_of_budget || report.state == ProblemState::failed;
    const bool decided_before = report.state == ProblemState::skipped_done && whole.trials.empty();
    if (open_end || decided_before) return;
    // After the profile was written: a kill in between leaves the problem undecided, and the profile gets its
    // lines from the run that goes on.
    warn(owner_.journal_.add(owner_.run_.id, report.shape.problem, decision_of(report)));
  }
  void confirmation_started(std::size_t index, std::size_t done, std::size_t count) override {
    inner_.confirmation_started(index, done, count);
  }
  void problem_revised(std::size_t index, const ProblemReport& report) override {
    inner_.problem_revised(index, report);
    warn(owner_.journal_.add(owner_.run_.id, report.shape.problem, decision_of(report)));
  }

 private:
  std::vector<Trial> undecided_trials(const Problem& problem) const {
    auto outcomes = owner_.journal_.undecided(owner_.run_.id, problem);
    warn(outcomes.status());
    std::vector<Trial> trials;
    if (!outcomes.ok()) return trials;
    for (JournaledOutcome& record : *outcomes) {
      auto candidate = owner_.device_.resolve(record.candidate, problem);
      if (candidate.ok()) trials.push_back({std::move(*candidate), std::move(record.outcome)});
    }
    return trials;
  }

  TuneObserver& inner_;
  TuneJournal& owner_;
};

RunText run_text(const Device& device, const TuneRequest& request) {
  RunText text;
  text.policy = journal_policy_text(request.policy, request.max_err_ratio);
  text.environment = row_environment(device, request.policy).hash;
  text.device = journal_device_text(device.info());
  std::string families;
  for (const std::string& family : request.libtypes) families += (families.empty() ? "" : ",") + family;
  text.command = fmt::format("search={} libtypes={} splitK={} prefer_ratio={} shapes={}", request.strategy,
                             families.empty() ? "all" : families, request.split_k ? 1 : 0,
                             request.policy.prefer_ratio, request.shapes.size());
  if (request.pdl) text.command += " pdl=allow";
  if (request.m_range) {
    const MRange& range = request.m_range->range;
    text.command +=
        fmt::format(" m_range={}:{} m_regret={}", range.first, range.last, request.m_range->regret);
  }
  std::string all = fmt::format("{}\n{}\n{}\n{}\n", text.device, text.environment, text.policy, text.command);
  for (const ShapeRow& shape : request.shapes) all += print(shape.problem) + "\n";
  text.request = short_hash(all, 16);
  return text;
}

TuneJournal::TuneJournal(std::string path, Journal journal, RunStart run, const Device& device,
                         const TuneRequest& request)
    : path_(std::move(path)), journal_(std::move(journal)), run_(run), device_(device), request_(request) {}

TuneJournal::~TuneJournal() = default;

Result<std::unique_ptr<TuneJournal>> TuneJournal::open(const TuneOptions& options, const Outputs& outputs,
                                                       const Device& device, const TuneRequest& request) {
  std::optional<RecordingWriter> recording;
  if (!options.record.empty()) {
    auto writer =
        RecordingWriter::open(options.record, recorded_run(device, request.policy, request.max_err_ratio));
    if (!writer.ok()) return Status(writer.code(), fmt::format("--record {}", writer.message()));
    recording = std::move(*writer);
  }
  auto journal = Journal::open(journal_path(outputs.tuned));
  if (!journal.ok()) return journal.status();
  // A new recording must not miss what an earlier process measured.
  const bool go_on = options.resume && !options.all && (!recording || recording->goes_on());
  const RunText text = run_text(device, request);
  const auto run = journal->begin_run(text, go_on);
  if (!run.ok()) return Status(run.code(), fmt::format("the journal of measurements: {}", run.message()));
  auto opened = std::unique_ptr<TuneJournal>(
      new TuneJournal(journal_path(outputs.tuned), std::move(*journal), *run, device, request));
  opened->options_ = {run->id, text.policy, text.device, options.retry_failed};
  opened->recording_ = std::move(recording);
  return opened;
}

Result<Evaluator*> TuneJournal::around(Evaluator& inner) {
  Evaluator* measured = &inner;
  if (recording_) {
    if (recorder_ != nullptr) return Status::invalid("--record: one device can be recorded at a time");
    recorder_ = std::make_unique<RecordingEvaluator>(inner, *recording_, device_, request_.shapes);
    measured = recorder_.get();
  }
  auto journal = Journal::open(path_);
  if (!journal.ok()) return journal.status();
  Journaled& journaled = evaluators_.emplace_back(Journaled{std::move(*journal), nullptr});
  journaled.evaluator = std::make_unique<JournaledEvaluator>(*measured, journaled.journal, device_, options_);
  return journaled.evaluator.get();
}

TuneObserver& TuneJournal::around(TuneObserver& inner) {
  observer_ = std::make_unique<Observer>(inner, *this);
  return *observer_;
}

std::vector<std::string> TuneJournal::earlier_winners(const Problem& problem) {
  constexpr std::size_t most_hints = 4;
  auto hints = journal_.hints(options_.device, problem, most_hints, run_.id);
  warn(hints.status());
  std::vector<std::string> names;
  if (!hints.ok()) return names;
  for (const JournalHint& hint : *hints) names.push_back(hint.candidate);
  return names;
}

void TuneJournal::end(const TuneSummary* summary, bool interrupted) {
  const bool complete =
      summary != nullptr && !interrupted &&
      std::none_of(summary->problems.begin(), summary->problems.end(),
                   [](const ProblemReport& report) { return report.state == ProblemState::out_of_budget; });
  warn(journal_.end_run(run_.id, complete));
}

}  // namespace gemmtune::cli
