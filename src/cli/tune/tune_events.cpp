#include "cli/tune/tune_events.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

#include "base/log.h"
#include "cli/shared/report_parts.h"
#include "cli/tune/tune_report.h"
#include "formats/json.h"
#include "measure/statistics.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// Of a file that has lines already: they are events. A pipe has none.
Status check_lines(const std::string& path) {
  struct stat information {};
  if (stat(path.c_str(), &information) != 0 || !S_ISREG(information.st_mode) || information.st_size == 0)
    return {};
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  if (line.starts_with("{\"event\":")) return {};
  return Status::invalid("--events {}:1: is no event of a run; choose another file", path);
}

}  // namespace

Result<std::unique_ptr<TuneEvents>> TuneEvents::open(const std::string& path, const DeviceInfo& device) {
  if (const Status status = check_links(path); !status.ok())
    return Status(status.code(), fmt::format("--events {}", status.message()));
  GEMMTUNE_RETURN_IF_ERROR(check_lines(path));
  auto file = LineFile::open(path);
  if (!file.ok()) return Status::io("--events {}", file.message());
  return std::unique_ptr<TuneEvents>(new TuneEvents(std::move(*file), device));
}

void TuneEvents::write(const std::string& line) {
  if (!file_) return;
  const Status written = file_->write(line);
  if (written.ok()) return;
  log_line(LogLevel::warning, fmt::format("--events {}; no more events are written", written.message()));
  file_.reset();
}

void TuneEvents::run_started(std::span<const std::size_t> waiting, std::size_t) {
  started_ = true;
  write(json_line(Json{{"event", "run_started"},
                       {"waiting", std::vector(waiting.begin(), waiting.end())},
                       {"device", device_json(device_)}}));
}

void TuneEvents::problem_started(std::size_t index, std::size_t count, const ShapeRow& shape) {
  if (!started_) run_started({}, 1);  // over ranges of M nobody knows what waits
  write(json_line(Json{
      {"event", "problem_started"}, {"index", index}, {"shapes", count}, {"problem", print(shape.problem)}}));
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
  write(json_line(event));
}

void TuneEvents::paired_rounds(std::size_t index, const PairedRatio& ratio) {
  write(json_line(Json{{"event", "rounds"},
                       {"index", index},
                       {"kernelName", ratio.kernel_name},
                       {"speedup", ratio.ratio},
                       {"speedup_low", ratio.interval.low},
                       {"speedup_high", ratio.interval.high},
                       {"rounds", ratio.rounds}}));
}

void TuneEvents::problem_paused(std::size_t index) {
  write(json_line(Json{{"event", "problem_paused"}, {"index", index}}));
}

void TuneEvents::problem_settled(std::size_t index, const ItemReport& report) {
  write(problem_event("problem_settled", index, report));
}

void TuneEvents::problem_done(std::size_t index, const ItemReport& report) {
  write(problem_event("problem_done", index, report));
}

void TuneEvents::problem_revised(std::size_t index, const ItemReport& report) {
  write(problem_event("problem_revised", index, report));
}

void TuneEvents::run_ended(std::string_view state) {
  write(json_line(Json{{"event", "run_ended"}, {"state", state}}));
}

}  // namespace gemmtune::cli
