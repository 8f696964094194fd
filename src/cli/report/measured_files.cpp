// What runs left in files: journals and profiles.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/text.h"
#include "cli/report/measurements.h"
#include "evaluate/journal/journal.h"
#include "evaluate/journal/journal_report.h"
#include "evaluate/journal/journal_schema.h"
#include "evaluate/journal/journal_texts.h"
#include "evaluate/outcome_json.h"
#include "formats/aiter/tuned_csv.h"

namespace gemmtune::cli {
namespace {

/// "2026-01-31T12:00:00Z" in seconds; NaN for another text.
double seconds_of_utc(const std::string& text) {
  std::tm time{};
  if (strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time) == nullptr)
    return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(timegm(&time));
}

/// The problems of a journal, each with its newest run alone.
class JournalProblems {
 public:
  explicit JournalProblems(Measurements& measurements) : measurements_(measurements) {}

  /// Null for a problem that cannot be read, and for what an older run says of it.
  MeasuredProblem* of(const std::string& device, const std::string& text, std::int64_t run) {
    const auto [found, made] = known_.try_emplace(device + '\n' + text);
    Known& known = found->second;
    if (made) {
      const auto problem = parse_problem(text);
      if (!problem.ok()) return nullptr;
      const auto [gfx, cu_num] = device_of_journal_text(device);
      known.measured = &measurements_.problem(gfx, cu_num, *problem);
    }
    if (known.measured == nullptr || run < known.run) return nullptr;
    if (run > known.run) *known.measured = {};
    known.run = known.measured->run = run;
    return known.measured;
  }

 private:
  struct Known {
    MeasuredProblem* measured = nullptr;
    std::int64_t run = 0;
  };
  Measurements& measurements_;
  std::unordered_map<std::string, Known> known_;
};

void add_line(MeasuredProblem& problem, const JournalLine& line) {
  if (line.reference_us) problem.reference_us = line.reference_us;
  MeasuredCandidate& candidate = problem.candidate(line.candidate);
  const OutcomeKind kind = parse_outcome_kind(line.kind).value_or(OutcomeKind::ok);
  if (kind != OutcomeKind::ok) {
    candidate.kind = kind;
    candidate.reason = line.reason;
  } else {
    candidate.err_ratio = line.err_ratio;
  }
  candidate.error = worst_of(candidate.error, line.error);
  if (line.stage != to_string(JournalStage::screen)) return;
  candidate.samples.insert(candidate.samples.end(), line.samples.begin(), line.samples.end());
  if (candidate.samples.empty()) return;
  candidate.us = median(candidate.samples);
  candidate.spread = spread(candidate.samples);
  if (std::isnan(candidate.second)) candidate.second = seconds_of_utc(line.at);
}

double number_of(const TunedEntry& row, std::string_view column) {
  const std::string* cell = find_carried(row, column);
  const auto number = cell != nullptr ? parse_number(*cell) : std::nullopt;
  return number.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

Result<Measurements> measurements_of_journal(const std::string& path) {
  GEMMTUNE_TRY(auto journal, open_existing_journal(path));
  Measurements measurements;
  JournalProblems problems(measurements);
  GEMMTUNE_RETURN_IF_ERROR(for_each_outcome(journal, [&](const JournalLine& line) {
    if (MeasuredProblem* problem = problems.of(line.device, line.problem, line.run)) add_line(*problem, line);
  }));
  GEMMTUNE_RETURN_IF_ERROR(for_each_rounds(journal, [&](const JournalRounds& call) {
    MeasuredProblem* problem = problems.of(call.device, call.problem, call.run);
    if (problem == nullptr) return;
    problem->add_rounds(call.candidates, call.result.times);
    problem->same_ratios.insert(problem->same_ratios.end(), call.result.same_ratios.begin(),
                                call.result.same_ratios.end());
    problem->noise_floor = noise_floor(problem->same_ratios);
    problem->quietness += call.result.quietness;
  }));
  return measurements;
}

Result<Measurements> measurements_of_profile(const std::string& path, std::vector<std::string>& diagnostics) {
  GEMMTUNE_TRY(auto file, read_tuned_csv(path));
  const auto& unknown = file.columns.unknown();
  if (std::ranges::none_of(unknown, [](const auto& column) { return column.name == "outcome"; }))
    return Status::invalid("{}:1: has no column outcome, expected a profile of `gemmtune tune -o2`", path);
  diagnostics.insert(diagnostics.end(), file.diagnostics.begin(), file.diagnostics.end());
  Measurements measurements;
  for (const TunedEntry& row : file.entries) {
    MeasuredCandidate& candidate =
        measurements.problem(row.gfx, row.cu_num, row.problem).candidate(row.kernel_name);
    const std::string* outcome = find_carried(row, "outcome");
    const std::string* reason = find_carried(row, "reason");
    candidate.kind = parse_outcome_kind(outcome != nullptr ? *outcome : "").value_or(OutcomeKind::ok);
    candidate.reason = reason != nullptr ? *reason : "";
    if (valid_time(row.us)) candidate.us = row.us;
    candidate.spread = row.spread;
    candidate.err_ratio = row.err_ratio;
    candidate.error = {number_of(row, "rms_error"), number_of(row, "max_error"),
                       number_of(row, "one_sign_error")};
  }
  return measurements;
}

}  // namespace gemmtune::cli
