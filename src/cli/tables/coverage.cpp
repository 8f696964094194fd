// gemmtune coverage: how tuned files serve a captured workload, by calls and by time.
#include "tuned/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "base/environment.h"
#include "base/path_list.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/bench_report.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "formats/capture/capture_file.h"
#include "formats/json.h"
#include "formats/shapes/shape_list.h"
#include "resolve/lookup_report.h"
#include "resolve/row_kernel.h"
#include "resolve/source_use.h"
#include "resolve/table_set.h"
#include "tuned/choice.h"
#include "tuned/entry.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* coverage_footer = R"(
CAPTURE is an untuned CSV of any operation; its column calls, or what capture counted beside it, weights the shapes (1
where neither is there). The time of an answered call is its row's; that of an untuned call, and of one that a bucket of a
Triton config answers, is an estimate: its operations at the median rate that the table's rows achieve. Only the table is asked, not whether a row's kernel can run here. For an AMD GPU the rows' libtypes are counted too: which of them
name kernels that gemmtune has, and which are served by the device's fallback.

Exit codes: 0 every shape is answered, 1 some are untuned or could not be read, 2 usage or input.

Examples:
  gemmtune coverage captured.csv
  gemmtune coverage captured.csv --table a.csv:b.csv --gfx gfx942 --cu_num 304 --json)";

constexpr std::size_t listed_misses = 10;

struct CoverageOptions {
  std::string capture;
  std::string operation;
  std::string table;
  std::string gfx;
  std::string cu_num;
  bool json = false;
  DeviceOptions device;
};

/// For whom the table is asked.
struct Target {
  std::string gfx;
  int cu_num = 0;
  bool here = true;  // it is the device that `tune` would take, as far as is known
};

Result<Target> target_of(const CoverageOptions& options, const Environment& environment) {
  const auto device = open_device(options.device, environment, false);
  if (!device.ok() && options.gfx.empty() && options.cu_num.empty()) return device.status();
  const DeviceInfo* const here = device.ok() ? &(*device)->info() : nullptr;
  GEMMTUNE_TRY(const auto asked, asked_device(options.gfx, options.cu_num, here));
  if (!asked.note.empty()) print_note(asked.note);
  return Target{asked.gfx, asked.cu_num,
                here != nullptr && asked.gfx == here->gfx && asked.cu_num == here->cu_num};
}

Result<TableSet> tables_of(const CoverageOptions& options, OperationForm operation,
                           const Environment& environment) {
  TableSet tables = options.table.empty() ? production_tables(environment)
                                          : load_table_set(table_paths_of(operation, options.table));
  tables.fewer_threads = environment.fewer_threads;
  GEMMTUNE_RETURN_IF_ERROR(tables.first_fault());
  for (const TableSource& source : tables.sources) {
    if (!options.table.empty()) GEMMTUNE_RETURN_IF_ERROR(source.state);
  }
  return tables;
}

DeviceInfo device_of(const Target& target) {
  DeviceInfo device;
  device.gfx = target.gfx;
  device.cu_num = target.cu_num;
  return device;
}

/// The files of --table with one to write first: a file that is to be made, or has rows of the target alone or none. A table
/// of other devices is not tuned into without a word.
std::string output_of(const CoverageOptions& options, OperationForm operation, const TableSet& tables,
                      const Target& target) {
  if (options.table.empty()) return tuned_file_name(operation);
  const auto uses = uses_of_sources(tables, device_of(target), false);
  std::string others;
  std::string first;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const TableSource& source = tables.sources[i];
    if (source.triton) continue;
    const bool is_own = uses[i].own > 0 || uses[i].devices.empty();
    std::string& list = is_own && first.empty() ? first : others;
    list += (list.empty() ? "" : ":") + source.path;
  }
  if (first.empty()) {
    first = fmt::format("{}_{}_{}", target.gfx, target.cu_num, tuned_file_name(operation));
  }
  return others.empty() ? first : fmt::format("{}:{}", first, others);
}

/// Where it is to be run, if that is not this machine; empty for here.
std::string elsewhere(const Target& target) {
  if (target.here) return {};
  return fmt::format(" (on {} with {} {})", target.gfx, target.cu_num,
                     cpu_architecture(target.gfx) ? "threads" : "compute units");
}

std::string tune_command(const CoverageOptions& options, OperationForm operation, const TableSet& tables,
                         const Target& target) {
  std::string command = fmt::format("gemmtune tune -i {}", options.capture);
  if (operation != Operation::a16w16) command += fmt::format(" --op {}", to_string(operation));
  return command + fmt::format(" -o {}", output_of(options, operation, tables, target));
}

std::vector<std::string> warnings_of(const TableSet& tables, OperationForm operation, const Target& target) {
  std::vector<std::string> texts;
  for (SourceWarning& warning : source_warnings(tables, device_of(target), false))
    if (warning.operation == operation) texts.push_back(std::move(warning.text));
  return texts;
}

/// Shapes that rows of one libtype answer.
struct LibtypeShare {
  std::size_t shapes = 0;
  double calls = 0;
  std::string_view missing;  // what gemmtune does not have; empty: the rows may run
};

/// By libtype; empty unless it is asked for an AMD GPU, whose tables name kernels of several libraries.
std::map<std::string, LibtypeShare> by_libtype(const Coverage& coverage, const Target& target) {
  std::map<std::string, LibtypeShare> shares;
  if (!amd_architecture(target.gfx)) return shares;
  for (const ServedShape& shape : coverage.shapes) {
    if (shape.row == nullptr) continue;
    LibtypeShare& share = shares[std::string(libtype_of(*shape.row))];
    ++share.shapes;
    share.calls += static_cast<double>(shape.shape->calls);
    share.missing = missing_library(*shape.row);
  }
  return shares;
}

std::string libtype_text(const std::map<std::string, LibtypeShare>& shares) {
  if (shares.empty()) return {};
  TextTable table({{"libtype"}, {"shapes", true}, {"calls", true}, {"on an AMD GPU with gemmtune"}});
  for (const auto& [libtype, share] : shares) {
    table.add({libtype, std::to_string(share.shapes), fmt::format("{:.0f}", share.calls),
               share.missing.empty()
                   ? "its row runs"
                   : fmt::format("the device's fallback runs: {} is not here", share.missing)});
  }
  return "answered by rows of:\n" + table.text(0);
}

/// Untuned shapes of which the table has rows that are never chosen, and from which AITER answers.
std::size_t withheld_shapes(const Coverage& coverage, const TableSet& tables, const Target& target) {
  const auto& rows = tables.table.entries();
  if (std::ranges::all_of(rows, may_be_chosen)) return 0;
  std::size_t shapes = 0;
  for (const ServedShape& shape : coverage.shapes) {
    if (shape.row != nullptr) continue;
    LookupRequest request;
    request.problem = shape.shape->problem;
    request.gfx = target.gfx;
    request.cu_num = target.cu_num;
    request.as_aiter = true;
    const auto report = explain_lookup(tables, nullptr, request);
    shapes += report.ok() && report->row != nullptr ? 1 : 0;
  }
  return shapes;
}

/// Buckets have no time, untuned shapes no row.
bool is_estimated(Match match) { return match == Match::untuned || match == Match::bucket; }

double percent_of(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string coverage_text(const Coverage& coverage, const Target& target, const std::string& command,
                          const std::vector<std::string>& warnings, std::size_t withheld) {
  std::string text =
      fmt::format("{}, {:.0f} calls, asked for {} cu_num {}\n", counted(coverage.shapes.size(), "shape"),
                  coverage.total.calls, target.gfx, target.cu_num);
  TextTable table({{"level"},
                   {"shapes", true},
                   {"calls", true},
                   {"% of calls", true},
                   {"ms", true},
                   {"% of time", true}});
  for (const std::string& warning : warnings) text += fmt::format("warning: {}\n", warning);
  for (const Match match : matches_in_order) {
    if (match == Match::fewer_threads && !cpu_architecture(target.gfx)) continue;
    const LevelShare& level = coverage.at(match);
    const bool estimate = is_estimated(match) && level.us > 0;
    table.add({std::string(to_string(match)), std::to_string(level.shapes),
               fmt::format("{:.0f}", level.calls),
               fmt::format("{:.1f}", percent_of(level.calls, coverage.total.calls)),
               fmt::format("{}{:.3f}", estimate ? "~" : "", level.us / 1000),
               fmt::format("{}{:.1f}", estimate ? "~" : "", percent_of(level.us, coverage.total.us))});
  }
  text += table.text(0);
  if (coverage.at(Match::untuned).us + coverage.at(Match::bucket).us > 0) {
    text += fmt::format("~ is an estimate at {:.4g} TFLOP/s, the median of the table's rows\n",
                        coverage.median_tflops);
  }
  text += libtype_text(by_libtype(coverage, target));
  if (withheld != 0)
    text +=
        fmt::format("{} of the untuned have rows that are never chosen; AITER answers from them\n", withheld);
  const auto misses = worst_misses(coverage, listed_misses);
  if (misses.empty()) return text;
  text += "untuned, most calls first:\n";
  for (const ServedShape* miss : misses) {
    text += fmt::format("  {:>10} calls  {}\n", miss->shape->calls, print(miss->shape->problem));
  }
  return text + fmt::format("to tune them{}: {}\n", elsewhere(target), command);
}

Json json_of(const Coverage& coverage, const Target& target, const std::string& command,
             const std::vector<std::string>& warnings, std::size_t withheld) {
  Json json{{"command", "coverage"},
            {"gfx", target.gfx},
            {"cu_num", target.cu_num},
            {"shapes", coverage.shapes.size()},
            {"calls", coverage.total.calls},
            {"us", coverage.total.us},
            {"median_tflops", coverage.median_tflops}};
  for (const Match match : matches_in_order) {
    const LevelShare& level = coverage.at(match);
    json["levels"][std::string(to_string(match))] = {
        {"shapes", level.shapes},
        {"calls", level.calls},
        {"calls_percent", percent_of(level.calls, coverage.total.calls)},
        {"us", level.us},
        {"us_percent", percent_of(level.us, coverage.total.us)},
        {"estimated", is_estimated(match)}};
  }
  for (const auto& [libtype, share] : by_libtype(coverage, target)) {
    json["libtypes"][libtype] = {{"shapes", share.shapes},
                                 {"calls", share.calls},
                                 {"runs", share.missing.empty()},
                                 {"missing", share.missing}};
  }
  json["withheld_shapes"] = withheld;
  json["misses"] = Json::array();
  for (const ServedShape* miss : worst_misses(coverage, listed_misses)) {
    json["misses"].push_back({{"problem", print(miss->shape->problem)},
                              {"calls", miss->shape->calls},
                              {"estimated_us", miss->us}});
  }
  json["tune"] = command;
  json["warnings"] = warnings;
  return json;
}

Result<int> run_coverage(const CoverageOptions& options) {
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  const Environment environment = read_environment();
  GEMMTUNE_TRY(const auto target, target_of(options, environment));
  ShapeListOptions list_options;
  list_options.operation = operation;
  list_options.architecture = target.gfx;
  if (const auto tuned = path_list(options.table); !tuned.empty()) list_options.output = tuned.front();
  GEMMTUNE_TRY(auto list, read_shape_list(options.capture, list_options));
  take_captured_calls(options.capture, list);
  for (const std::string& diagnostic : list.diagnostics) print_note(diagnostic);
  for (const std::string& note : notes_of(list)) print_note(note);
  GEMMTUNE_TRY(const auto tables, tables_of(options, list.operation, environment));
  std::vector<WorkloadShape> workload;
  for (const ShapeRow& row : list.rows) workload.push_back({row.problem, row.calls});
  const Coverage coverage = cover(tables.table, target.gfx, target.cu_num, workload, tables.fewer_threads);
  const std::string command = tune_command(options, list.operation, tables, target);
  const auto warnings = warnings_of(tables, list.operation, target);
  const std::size_t withheld = withheld_shapes(coverage, tables, target);
  print_answer(options.json, options.json
                                 ? json_document(json_of(coverage, target, command, warnings, withheld))
                                 : coverage_text(coverage, target, command, warnings, withheld));
  const bool complete = coverage.at(Match::untuned).shapes == 0 && list.diagnostics.empty();
  return complete ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_coverage(CommandOptions& app) {
  auto options = std::make_shared<CoverageOptions>();
  app.add_option("CAPTURE", options->capture,
                 "The workload: an untuned CSV with a column calls, or several, colon-separated")
      .required();
  declare_file_operation(app, options->operation);
  app.add_option("tables,--table", options->table,
                 "Tuned files, colon-separated (default: those that dispatch reads)");
  app.add_option("--gfx", options->gfx, "Ask for this architecture (default: this machine's)");
  app.add_option(
      "--cu-num", options->cu_num,
      "Ask for this number of compute units (default: this machine's); without --gfx as in lookup");
  declare_device_options(app, options->device);
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(coverage_footer);
  return [options] { return run_coverage(*options); };
}

}  // namespace gemmtune::cli
