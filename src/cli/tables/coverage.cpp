// gemmtune coverage: how tuned files serve a captured workload, by calls and by time.
#include "tuned/coverage.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>

#include "base/environment.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/inspect/bench_report.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "formats/capture/capture_file.h"
#include "formats/json.h"
#include "formats/json_text.h"
#include "formats/shapes/shape_list.h"
#include "resolve/row_kernel.h"
#include "resolve/table_set.h"
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
};

Result<Target> target_of(const CoverageOptions& options, const Environment& environment) {
  Target target{options.gfx, 0};
  if (!options.cu_num.empty()) {
    const auto cu_num = parse_integer(options.cu_num);
    if (!cu_num || *cu_num < 1 || *cu_num > 1'000'000) {
      return Status::invalid("--cu_num {}: expected a whole number of at least 1", options.cu_num);
    }
    target.cu_num = static_cast<int>(*cu_num);
  }
  if (!target.gfx.empty() && target.cu_num != 0) return target;
  const auto device = open_device(options.device, environment, false);
  if (!device.ok()) return device.status();
  if (target.gfx.empty()) target.gfx = (*device)->info().gfx;
  if (target.cu_num == 0) target.cu_num = (*device)->info().cu_num;
  return target;
}

Result<TableSet> tables_of(const CoverageOptions& options, Operation operation,
                           const Environment& environment) {
  TableSet tables = options.table.empty() ? production_tables(environment)
                                          : load_table_set(table_paths_of(operation, options.table));
  GEMMTUNE_RETURN_IF_ERROR(tables.first_fault());
  for (const TableSource& source : tables.sources) {
    if (!options.table.empty()) GEMMTUNE_RETURN_IF_ERROR(source.state);
  }
  return tables;
}

std::string tune_command(const CoverageOptions& options, Operation operation) {
  std::string command = fmt::format("gemmtune tune -i {}", options.capture);
  if (operation != Operation::a16w16) command += fmt::format(" --op {}", to_string(operation));
  return command + fmt::format(" -o {}", options.table.empty() ? tuned_file_name(operation) : options.table);
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

/// Buckets have no time, untuned shapes no row.
bool is_estimated(Match match) { return match == Match::untuned || match == Match::bucket; }

double percent_of(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string coverage_text(const Coverage& coverage, const Target& target, const std::string& command) {
  std::string text =
      fmt::format("{}, {:.0f} calls, asked for {} cu_num {}\n", counted(coverage.shapes.size(), "shape"),
                  coverage.total.calls, target.gfx, target.cu_num);
  TextTable table({{"level"},
                   {"shapes", true},
                   {"calls", true},
                   {"% of calls", true},
                   {"ms", true},
                   {"% of time", true}});
  for (const Match match : matches_in_order) {
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
  const auto misses = worst_misses(coverage, listed_misses);
  if (misses.empty()) return text;
  text += "untuned, most calls first:\n";
  for (const ServedShape* miss : misses) {
    text += fmt::format("  {:>10} calls  {}\n", miss->shape->calls, print(miss->shape->problem));
  }
  return text + fmt::format("to tune them: {}\n", command);
}

Json json_of(const Coverage& coverage, const Target& target, const std::string& command) {
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
  json["misses"] = Json::array();
  for (const ServedShape* miss : worst_misses(coverage, listed_misses)) {
    json["misses"].push_back({{"problem", print(miss->shape->problem)},
                              {"calls", miss->shape->calls},
                              {"estimated_us", miss->us}});
  }
  json["tune"] = command;
  return json;
}

int run_coverage(const CoverageOptions& options) {
  const auto operation = operation_word(options.operation);
  if (!operation.ok()) return usage_error("coverage", operation.message());
  ShapeListOptions list_options;
  list_options.operation = *operation;
  auto list = read_shape_list(options.capture, list_options);
  if (!list.ok()) return usage_error("coverage", list.message());
  take_captured_calls(options.capture, *list);
  for (const std::string& diagnostic : list->diagnostics) print_note(diagnostic);
  if (const std::string ignored = describe_ignored(*list); !ignored.empty()) print_note(ignored);
  const Environment environment = read_environment();
  const auto target = target_of(options, environment);
  if (!target.ok()) return usage_error("coverage", target.message());
  const auto tables = tables_of(options, list->operation, environment);
  if (!tables.ok()) return usage_error("coverage", tables.message());
  std::vector<WorkloadShape> workload;
  for (const ShapeRow& row : list->rows) workload.push_back({row.problem, row.calls});
  const Coverage coverage = cover(tables->table, target->gfx, target->cu_num, workload);
  const std::string command = tune_command(options, list->operation);
  if (options.json) {
    const Json json = json_of(coverage, *target, command);
    print_document(json_document(json));
  } else {
    print_text(coverage_text(coverage, *target, command));
  }
  const bool complete = coverage.at(Match::untuned).shapes == 0 && list->diagnostics.empty();
  return complete ? exit_done : exit_findings;
}

}  // namespace

std::function<int()> declare_coverage(CommandOptions& app) {
  auto options = std::make_shared<CoverageOptions>();
  app.add_option("CAPTURE", options->capture,
                 "The workload: an untuned CSV with a column calls, or several, colon-separated")
      .required();
  declare_file_operation(app, options->operation);
  app.add_option("--table", options->table,
                 "Tuned files, colon-separated (default: those that dispatch reads)");
  app.add_option("--gfx", options->gfx, "Ask for this architecture (default: this machine's)");
  app.add_option("--cu-num", options->cu_num,
                 "Ask for this number of compute units (default: this machine's)");
  declare_device_options(app, options->device);
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(coverage_footer);
  return [options] { return run_coverage(*options); };
}

}  // namespace gemmtune::cli
