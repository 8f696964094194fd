#include "cli/report/follow.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>

#include "base/file.h"
#include "evaluate/outcome_json.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<double> number_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::size_t count_in(const Json& json, const char* key) {
  const double number = number_in(json, key).value_or(0);
  return number >= 0 && number < 1e15 ? static_cast<std::size_t>(number) : 0;
}

}  // namespace

Result<bool> EventReader::read() {
  if (!file_exists(path_)) return false;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error))
    return Status::invalid("--follow {}: is no file, expected what `gemmtune tune --events` writes", path_);
  there_ = true;
  std::ifstream file(path_, std::ios::binary);
  if (!file) return Status::io("--follow {}: {}", path_, std::strerror(errno));
  file.seekg(static_cast<std::streamoff>(offset_));
  bool any = false;
  for (std::string line;
       std::getline(file, line) && !file.eof();) {  // a line without its end is being written
    offset_ += line.size() + 1;
    any = true;
    GEMMTUNE_RETURN_IF_ERROR(add_line(line));
  }
  return any;
}

Status EventReader::add_line(const std::string& line) {
  ++line_;
  const Status taken = take(line);
  if (taken.ok()) return {};
  if (line_ == 1) return taken;
  ++skipped_;
  notes_.push_back(taken.message() + "; the line is left out");
  return {};
}

Status EventReader::take(const std::string& line) {
  const Json event = parse_json(line);
  if (!event.is_object() || !event.contains("event"))
    return Status::invalid("--follow {}:{}: is no event, expected what `gemmtune tune --events` writes",
                           path_, line_);
  const std::string kind = text_of(event, "event");
  const std::size_t index = count_in(event, "index");
  if (kind == "run_started") begin(event);
  if (kind == "run_ended") ended_ = true;
  if (kind == "problem_started") {
    Shape& shape = shapes_[index];
    shape.problem = text_of(event, "problem");
    shape.in_work = true;
    if (!begun_) waiting_ = std::max(waiting_, shapes_.size());
  }
  if (kind == "problem_paused") shapes_[index].in_work = false;
  if (kind == "candidate") take_candidate(event, index);
  if (kind == "problem_settled" || kind == "problem_done" || kind == "problem_revised")
    return take_row(event, index);
  return {};
}

void EventReader::begin(const Json& event) {
  auto keep = std::tuple(path_, offset_, line_, there_, skipped_, std::move(notes_));
  *this = EventReader(path_);
  std::tie(path_, offset_, line_, there_, skipped_, notes_) = std::move(keep);
  begun_ = true;
  if (const auto waiting = event.find("waiting"); waiting != event.end()) waiting_ = waiting->size();
  if (const auto device = event.find("device"); device != event.end() && device->is_object()) {
    gfx_ = text_of(*device, "gfx");
    cu_num_ = static_cast<int>(std::min<std::size_t>(count_in(*device, "cu_num"), 1'000'000));
  }
}

void EventReader::take_candidate(const Json& event, std::size_t index) {
  candidates_ = std::max(candidates_, count_in(event, "candidates"));
  Shape& shape = shapes_[index];
  shape.last = text_of(event, "kernelName");
  const auto problem = parse_problem(shape.problem);
  if (!problem.ok()) return;
  MeasuredCandidate& candidate = measurements_.problem(gfx_, cu_num_, *problem).candidate(shape.last);
  candidate.kind = parse_outcome_kind(text_of(event, "outcome")).value_or(OutcomeKind::ok);
  candidate.reason = text_of(event, "reason");
  candidate.us = number_in(event, "us");
}

Status EventReader::take_row(const Json& event, std::size_t index) {
  Shape& shape = shapes_[index];
  shape.in_work = false;
  shape.done = true;
  const auto problem = parse_problem(text_of(event, "problem"));
  if (!problem.ok()) return Status::invalid("--follow {}:{}: {}", path_, line_, problem.message());
  if (!event.contains("kernelName")) return {};
  TunedEntry row;
  row.gfx = gfx_;
  row.cu_num = cu_num_;
  row.problem = *problem;
  row.libtype = text_of(event, "libtype");
  row.kernel_name = text_of(event, "kernelName");
  row.us = number_in(event, "us").value_or(0);
  row.spread = number_in(event, "spread");
  row.default_us = number_in(event, "default_us");
  row.default_kernel = text_of(event, "default_kernel");
  row.speedup = number_in(event, "speedup");
  row.speedup_low = number_in(event, "speedup_low");
  row.speedup_high = number_in(event, "speedup_high");
  row.verdict = parse_verdict(text_of(event, "verdict")).value_or(Verdict::none);
  row.err_ratio = number_in(event, "err_ratio").value_or(0);
  row.accuracy = parse_accuracy(text_of(event, "accuracy"));
  row.env = text_of(event, "env");
  // The list has the winner too.
  if (const auto ties = event.find("ties"); ties != event.end() && !ties->empty())
    row.ties = static_cast<std::int64_t>(ties->size()) - 1;
  row.line = line_;
  MeasuredProblem& measured = measurements_.problem(gfx_, cu_num_, *problem);
  measured.noise_floor = number_in(event, "noise_floor");
  if (const auto rounds = event.find("rounds"); rounds != event.end() && rounds->is_object()) {
    measured.quietness = {static_cast<int>(count_in(*rounds, "used")),
                          static_cast<int>(count_in(*rounds, "disturbed")),
                          static_cast<int>(count_in(*rounds, "repeated"))};
  }
  rows_[index] = std::move(row);
  return {};
}

void EventReader::fill(ReportInputs& inputs) const {
  TunedFile file;
  file.path = path_;
  for (const auto& each : rows_) file.entries.push_back(each.second);
  inputs.tuned.files.clear();
  inputs.tuned.files.push_back(std::move(file));
  inputs.measurements = {};
  inputs.measurements.add_missing(measurements_);
  RunState run{std::max(waiting_, shapes_.size()), 0, candidates_, skipped_, ended_, {}};
  for (const auto& each : shapes_) {
    if (each.second.done) ++run.done;
    if (each.second.in_work) run.in_work.emplace_back(each.second.problem, each.second.last);
  }
  inputs.run = std::move(run);
}

}  // namespace gemmtune::cli
