#include "cli/tables/row_confirmation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/interrupt.h"
#include "cli/shared/bench_report.h"
#include "cli/shared/console.h"
#include "cli/shared/worker_evaluator.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/aiter/tuned_row.h"
#include "formats/csv/csv.h"
#include "formats/json.h"
#include "measure/timing_lock.h"
#include "resolve/bind.h"
#include "resolve/table_set.h"
#include "tuned/choice.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

std::string node_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// Why the row does not hold here; empty if it does.
std::string why_not(const TunedEntry& row, const BenchRow& measured, double prefer_ratio) {
  if (measured.kernel != row.kernel_name) {
    // Another row answers its M (token tiers of a fused MoE): it is measured in its own turn.
    if (!measured.kernel.empty() && !measured.passed_rows) return {};
    return fmt::format("does not run here: {}", measured.rule.empty() ? measured.reason : measured.rule);
  }
  if (measured.status != BenchStatus::ok) return measured.reason;
  if (!measured.ratio) return {};  // there is no default to compare with
  if (measured.verdict == BenchVerdict::slower)
    return fmt::format("takes {:.3f} times as long as the default here", *measured.ratio);
  // Of two machines as of two passes on one: the geometric mean.
  const double before = row.speedup && *row.speedup > 0 ? 1 / *row.speedup : *measured.ratio;
  const double both = std::sqrt(before * *measured.ratio);
  if (both < prefer_ratio) return {};
  return fmt::format(
      "takes {:.3f} times as long as the default here and {:.3f} in its row: no gain in both together",
      *measured.ratio, before);
}

/// The row with the default's kernel; nullopt where there is none that may run.
std::optional<TunedEntry> default_row(const Device& device, const TunedEntry& row, const BenchRow& measured) {
  const bool has_default = row.verdict != Verdict::default_wrong && !measured.other_kernel.empty();
  if (!has_default || is_packed(row.problem) || row.stages) return std::nullopt;
  const auto candidate = device.resolve(measured.other_kernel, row.problem);
  const std::optional<double> us = row.default_us ? row.default_us : measured.other_microseconds;
  if (!candidate.ok() || !us) return std::nullopt;
  TunedEntry changed = row;
  changed.libtype = candidate->family;
  changed.kernel_name = measured.other_kernel;
  changed.split_k = candidate->config.number("sk", 0);
  changed.solidx = candidate->config.number("sol", 0);
  changed.us = *us;
  changed.err_ratio = std::numeric_limits<double>::quiet_NaN();  // not measured
  changed.spread.reset();
  changed.ties.reset();
  changed.regret.reset();
  changed.default_us = us;
  changed.default_kernel = measured.other_kernel;
  changed.speedup = 1;
  changed.speedup_low.reset();
  changed.speedup_high.reset();
  changed.verdict = Verdict::undecided;
  changed.pdl_kernel_name.clear();
  changed.pdl_us.reset();
  changed.accuracy = measured.other_accuracy;
  return changed;
}

/// Changes the lines of a table: cells that another row has otherwise are written anew, or the line goes.
class TableText {
 public:
  explicit TableText(const TunedFile& table) : table_(table) {
    for (const CsvLine& line : table.document.lines) lines_.emplace_back(line.text);
  }
  void remove(std::size_t line) { lines_[line - 1].reset(); }
  void replace(const TunedEntry& before, const TunedEntry& row) {
    RawRow cells(*lines_[row.line - 1]);
    for (std::size_t position = 0; position < table_.columns.width(); ++position) {
      const Column* column = table_.columns.known_at(position);
      const auto text = column != nullptr ? cell_text(row, *column) : std::nullopt;
      if (text && text != cell_text(before, *column)) cells.set(position, csv_cell(*text));
    }
    lines_[row.line - 1] = cells.text();
  }
  std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i]) all += *lines_[i] + std::string(table_.document.lines[i].end);
    }
    return all;
  }

 private:
  const TunedFile& table_;
  std::vector<std::optional<std::string>> lines_;
};

/// A note for each environment of the measured rows, in the member `confirmation`.
EnvironmentObjects notes_of(const ConfirmationReport& report, const std::vector<const TunedEntry*>& rows,
                            const std::string& environment_here) {
  EnvironmentObjects notes;
  std::map<std::string, std::size_t> counts;
  for (const TunedEntry* row : rows) {
    if (!row->env.empty()) ++counts[row->env];
  }
  for (const auto& [hash, count] : counts) {
    Json refuted = Json::array();
    for (const RefutedRow& one : report.refuted) {
      if (one.row.env != hash) continue;
      refuted.push_back({{"problem", print(one.row.problem)},
                         {"kernelName", one.row.kernel_name},
                         {"speedup", one.row.speedup ? Json(*one.row.speedup) : Json()},
                         {"speedup_here", one.speedup ? Json(*one.speedup) : Json()},
                         {"why", one.why},
                         {"becomes", one.becomes}});
    }
    const std::size_t held = count - refuted.size();
    const Json note = {{"recorded", utc_text()},       {"node", node_name()}, {"device", report.device.model},
                       {"env", environment_here},      {"rows", count},       {"held", held},
                       {"refuted", std::move(refuted)}};
    notes[hash] = json_line(Json{{"confirmation", note}});
  }
  return notes;
}

/// Rows of the device with another kernel than the default's: what a table claims.
std::vector<const TunedEntry*> claims_of(const TunedFile& table, const DeviceInfo& device,
                                         std::size_t& others) {
  std::vector<const TunedEntry*> rows;
  for (const TunedEntry& row : table.entries) {
    if (!may_be_chosen(row) || row.kernel_name == row.default_kernel) continue;
    if (row_is_of(row, device)) {
      rows.push_back(&row);
    } else {
      ++others;
    }
  }
  return rows;
}

}  // namespace

Result<ConfirmationReport> confirm_rows(const TunedFile& table, const Environment& environment,
                                        const ConfirmationOptions& options) {
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, true));
  ConfirmationReport report;
  report.device = device->info();
  const std::vector<const TunedEntry*> rows = claims_of(table, report.device, report.other_device);
  TableText text(table);
  GEMMTUNE_TRY(auto copy, parse_tuned_csv(table.path, text.text(), {.operation = table.schema().operation}));
  const TableSet tables = table_set_of(std::move(copy));
  const Policy policy = default_policy(report.device);
  InProcessOptions evaluation = in_process_options(*device, policy, stored_err_limit);
  evaluation.timing_lock = timing_lock_path(environment.runtime_folder, report.device);
  const auto worker = make_worker(*device, options.device, environment, evaluation);
  BenchRequest request{.shapes = {}, .tables = LookupTables(tables)};
  request.rounds = options.rounds;
  for (const TunedEntry* row : rows) request.shapes.push_back({row->problem, 1, {}, row->line});
  std::vector<BenchRow> measured;
  {
    Console console(options.quiet);
    console.line(
        fmt::format("{} measured again on {}", counted(rows.size(), "row"), device_line(report.device)));
    measured = run_bench(*device, *worker, request, console);
  }
  report.measured = measured.size();
  report.interrupted = interrupted();
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const TunedEntry& row = *rows[i];
    RefutedRow refuted{row, why_not(row, measured[i], policy.prefer_ratio), {}, row.kernel_name};
    if (refuted.why.empty()) continue;
    if (measured[i].ratio && measured[i].kernel == row.kernel_name) refuted.speedup = 1 / *measured[i].ratio;
    const bool is_wrong = measured[i].kernel == row.kernel_name && measured[i].status != BenchStatus::ok;
    if (!options.keeps_rows && (is_wrong || !is_packed(row.problem))) {
      if (const auto changed = default_row(*device, row, measured[i])) {
        text.replace(row, *changed);
        refuted.becomes = changed->kernel_name;
      } else {
        text.remove(row.line);
        ++report.removed;
        refuted.becomes = "no row";
      }
    }
    report.refuted.push_back(std::move(refuted));
  }
  report.text = text.text();
  report.notes = notes_of(report, rows, row_environment(*device, policy).hash);
  return report;
}

std::string confirmation_text(const ConfirmationReport& report) {
  std::string text = fmt::format("confirmed on {}: {} of {} hold", device_line(report.device),
                                 report.measured - report.refuted.size(), counted(report.measured, "row"));
  if (report.other_device > 0) text += fmt::format("; {} of other devices not measured", report.other_device);
  for (const RefutedRow& one : report.refuted) {
    text += fmt::format("\nnot confirmed: {}: {} {}; published: {}", short_name(one.row.problem),
                        one.row.kernel_name, one.why, one.becomes);
  }
  return text;
}

}  // namespace gemmtune::cli
