#include "cli/tune/tune_events.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/tune/tune_report.h"
#include "measure/statistics.h"

namespace gemmtune::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Json& event) { return event.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

Result<std::unique_ptr<TuneEvents>> TuneEvents::open(const std::string& path, TuneObserver& inner) {
  std::FILE* file = nullptr;
  if (!path.empty()) {
    file = std::fopen(path.c_str(), "ae");
    if (file == nullptr) return Status::io("--events {}: {}", path, std::strerror(errno));
  }
  return std::unique_ptr<TuneEvents>(new TuneEvents(file, path, inner));
}

void TuneEvents::write(const std::string& line) {
  if (!file_) return;
  if (std::fputs((line + "\n").c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0) return;
  log_line(LogLevel::warning,
           fmt::format("--events {}: {}; no more events are written", path_, std::strerror(errno)));
  file_.reset();
}

void TuneEvents::run_started(std::span<const std::size_t> waiting, std::size_t evaluators) {
  write(line_of({{"event", "run_started"}, {"waiting", std::vector(waiting.begin(), waiting.end())}}));
  inner_.run_started(waiting, evaluators);
}

void TuneEvents::problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) {
  write(line_of({{"event", "problem_started"},
                 {"index", index},
                 {"shapes", count},
                 {"problem", print(shape.problem)}}));
  inner_.problem_started(index, count, shape);
}

void TuneEvents::candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) {
  const Outcome& outcome = trial.outcome;
  Json event = {{"event", "candidate"},
                {"index", index},
                {"candidates", candidates_so_far},
                {"kernelName", trial.candidate.kernel_name()},
                {"outcome", to_string(outcome.kind)}};
  if (!outcome.microseconds.empty()) event["us"] = median(outcome.microseconds);
  if (!outcome.reason.empty()) event["reason"] = outcome.reason;
  write(line_of(event));
  inner_.candidate_done(index, trial, candidates_so_far);
}

void TuneEvents::problem_done(std::size_t index, const ProblemReport& report) {
  write(problem_event("problem_done", index, report));
  inner_.problem_done(index, report);
}

void TuneEvents::confirmation_started(std::size_t index, std::size_t done, std::size_t count) {
  inner_.confirmation_started(index, done, count);
}

void TuneEvents::problem_revised(std::size_t index, const ProblemReport& report) {
  write(problem_event("problem_revised", index, report));
  inner_.problem_revised(index, report);
}

}  // namespace gemmtune::cli
