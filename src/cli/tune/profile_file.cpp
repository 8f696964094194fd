#include "cli/tune/profile_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "measure/statistics.h"
#include "select/energy.h"

namespace gemmtune::cli {
namespace {

/// One cell: no comma, no quote, no line break, so that every reader of the tuned file reads this one too.
std::string cell(std::string text) {
  for (char& c : text) {
    if (c == ',') c = ';';
    if (c == '"' || c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

/// Empty if it was not measured.
std::string error_text(double error) { return std::isfinite(error) ? fmt::format("{:.3g}", error) : ""; }

}  // namespace

ProfileFile::ProfileFile(std::string path, const Device& device, std::string environment_hash,
                         OperationForm operation, CsvSchema schema, bool has_joules)
    : path_(std::move(path)),
      device_(device),
      environment_hash_(std::move(environment_hash)),
      operation_(operation),
      schema_(schema),
      has_joules_(has_joules) {}

std::string ProfileFile::header() const {
  const std::string text = write_tuned_csv(operation_, {}, schema_);
  return std::string(trim(std::string_view(text).substr(0, text.find('\n')))) +
         ",rms_error,max_error,one_sign_error," + (has_joules_ ? "joules,joules_spread," : "") +
         "outcome,reason\n";
}

Status ProfileFile::check_header() const {
  if (!file_exists(path_)) return {};
  GEMMTUNE_TRY(const auto content, read_file(path_));
  const std::string expected = header();
  if (content.empty() || content.substr(0, expected.size()) == expected) return {};
  return Status::invalid("-o2 {}:1: has other columns than a profile; expected: {}", path_, trim(expected));
}

std::string ProfileFile::lines_of(const ItemReport& report) const {
  std::string lines;
  for (const Trial& trial : report.trials) {
    const Outcome& outcome = trial.outcome;
    const bool timed = outcome.kind == OutcomeKind::ok && !outcome.microseconds.empty();
    TunedEntry entry;
    entry.gfx = device_.info().gfx;
    entry.cu_num = device_.info().cu_num;
    entry.problem = report.shape.problem;
    entry.problem.moe.shared_experts = 0;  // profiles have no column for it
    entry.libtype = trial.candidate.family;
    entry.split_k = trial.candidate.config.number("sk");
    entry.solidx = trial.candidate.config.number("sol");
    entry.us = timed ? median(outcome.microseconds) : -1;
    entry.kernel_name = trial.candidate.kernel_name();
    entry.err_ratio = outcome.err_ratio;
    if (timed) entry.spread = spread(outcome.microseconds);
    entry.env = environment_hash_;
    entry.accuracy = device_.accuracy(trial.candidate, report.shape.problem);
    const std::string text = write_tuned_csv(operation_, {entry}, schema_);
    const std::string_view row = trim(std::string_view(text).substr(text.find('\n') + 1));
    const MeasuredError& error = outcome.error;
    std::string joules = has_joules_ ? ",," : "";
    if (const auto* energy = find_energy(report.energies, entry.kernel_name);
        has_joules_ && energy != nullptr)
      joules = fmt::format("{:.6g},{:.3g},", energy->joules, energy->spread);
    lines += fmt::format("{},{},{},{},{}{},{}\n", row.substr(0, row.find('\n')), error_text(error.rms),
                         error_text(error.max), error_text(error.one_sign), joules, to_string(outcome.kind),
                         cell(outcome.reason));
  }
  return lines;
}

Status ProfileFile::append(const ItemReport& report) const {
  const std::string lines = lines_of(report);
  std::FILE* file = std::fopen(path_.c_str(), "ab");
  if (file == nullptr) return Status::io("{}: {}", path_, std::strerror(errno));
  std::fseek(file, 0, SEEK_END);
  const std::string text = std::ftell(file) == 0 ? header() + lines : lines;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  return written && closed ? Status() : Status::io("{}: {}", path_, std::strerror(errno));
}

}  // namespace gemmtune::cli
