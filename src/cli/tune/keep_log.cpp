#include "cli/tune/keep_log.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/log.h"
#include "cli/tune/tune_report.h"

namespace gemmtune::cli {

Status make_keep_folder(const TuneOptions& options, Outputs& outputs) {
  if (!options.keep) return {};
  const std::filesystem::path output = outputs.tuned;
  outputs.keep_folder = join_path(parent_folder(outputs.tuned), output.stem().string() + "_keep");
  const Status made = make_folders(outputs.keep_folder);
  if (!made.ok()) return Status(made.code(), fmt::format("--keep: {}", made.message()));
  if (outputs.profile.empty()) outputs.profile = join_path(outputs.keep_folder, "candidates.csv");
  return {};
}

Result<std::unique_ptr<KeepLog>> KeepLog::open(const std::string& folder, const std::string& first_line) {
  const std::string path = join_path(folder, "run.log");
  if (const Status status = check_links(path); !status.ok())
    return Status(status.code(), fmt::format("--keep: {}", status.message()));
  auto file = LineFile::open(path);
  if (!file.ok()) return Status::io("--keep: {}", file.message());
  auto log = std::unique_ptr<KeepLog>(new KeepLog(std::move(*file)));
  log->write(first_line);
  return log;
}

void KeepLog::write(const std::string& line) {
  if (!file_) return;
  const Status written = file_->write(line);
  if (written.ok()) return;
  log_line(LogLevel::warning, fmt::format("--keep: {}; no more is logged", written.message()));
  file_.reset();
}

void KeepLog::problem_started(std::size_t, std::size_t, const ShapeRow& shape) {
  write(shape_text(shape) + ": begins");
}

void KeepLog::candidate_done(std::size_t, const Trial& trial, std::int64_t) {
  write("  " + trial_text(trial));
}

void KeepLog::problem_done(std::size_t, const ItemReport& report) {
  write(fmt::format("{}: {}", shape_text(report.shape), result_text(report)));
  for (const std::string& refusal : report.refusals) write("  " + refusal);
}

void KeepLog::problem_revised(std::size_t, const ItemReport& report) {
  write(fmt::format("{}: revised: {}", shape_text(report.shape), result_text(report)));
}

void KeepLog::range_done(std::size_t, std::size_t, const ItemReport& report) {
  write(fmt::format("{}: {}", weight_text(report.shape.problem), range_result_text(report)));
}

}  // namespace gemmtune::cli
