// gemmtune check: is every row of a tuned file right on this machine?
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <span>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/inspect/bench_report.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/interrupt.h"
#include "cli/shared/number_range.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/aiter/tuned_csv.h"
#include "resolve/bind.h"
#include "tuning/row_check.h"

namespace gemmtune::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* check_footer = R"(
Each row of this device is run on random data and compared with a float64 reference, at its M and at the other M
that it answers by padding. Rows of other devices are counted and left alone.

Exit codes: 0 all right, 1 a row is wrong or its kernel does not exist here, 2 usage or input.

Examples:
  gemmtune check tuned.csv
  gemmtune check tuned.csv --errRatio 0.01 --json)";

struct CheckOptions {
  DeviceOptions device;
  std::string file;
  double max_err_ratio = 0.05;
  bool quiet = false;
  bool json = false;
};

struct Checked {
  const TunedEntry* entry = nullptr;
  bool own = false;  // a row of this device
  RowCheck check;
};

bool is_finding(const Checked& row) { return row.own && row.check.state != RowCheckState::right; }

std::string row_text(const std::string& file, const Checked& row) {
  return fmt::format("{}:{}: {} {}: {}{}{}", file, row.entry->line, short_name(row.entry->problem),
                     row.entry->kernel_name, to_string(row.check.state), row.check.reason.empty() ? "" : ": ",
                     row.check.reason);
}

std::string check_json(const std::string& file, const std::vector<Checked>& rows) {
  Json json;
  json["command"] = "check";
  json["file"] = file;
  json["rows"] = Json::array();
  for (const Checked& row : rows) {
    json["rows"].push_back({{"line", row.entry->line},
                            {"problem", print(row.entry->problem)},
                            {"kernelName", row.entry->kernel_name},
                            {"this_device", row.own},
                            {"state", to_string(row.check.state)},
                            {"reason", row.check.reason},
                            {"err_ratio", row.check.err_ratio},
                            {"deterministic", row.check.deterministic}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<Checked> check_file(const TunedFile& file, Device& device, double max_err_ratio,
                                Console& console) {
  InProcessEvaluator evaluator(device,
                               in_process_options(device, default_policy(device.info()), max_err_ratio));
  watch_for_interrupts();
  std::vector<Checked> rows;
  for (const TunedEntry& entry : file.entries) {
    if (interrupted()) break;
    console.live_line(
        fmt::format("[{}/{}] {}", rows.size() + 1, file.entries.size(), short_name(entry.problem)));
    Checked row;
    row.entry = &entry;
    row.own = row_is_of(entry, device.info());
    if (row.own) {
      row.check = check_rows(device, evaluator, std::span(&entry, 1), {}).front();
    } else {
      row.check.reason = "a row of another device";
    }
    rows.push_back(std::move(row));
  }
  console.clear_live_line();
  return rows;
}

int run_check(const CheckOptions& options) {
  auto device = open_device(options.device, read_environment(), true);
  if (!device.ok()) return usage_error("check", device.message());
  const auto file = read_tuned_csv(options.file);
  if (!file.ok()) return usage_error("check", file.message());
  Console console(options.quiet);
  for (const std::string& diagnostic : file->diagnostics) console.urgent_line(diagnostic);
  const std::vector<Checked> rows = check_file(*file, **device, options.max_err_ratio, console);
  std::size_t right = 0;
  std::size_t findings = 0;
  for (const Checked& row : rows) {
    right += row.own && row.check.state == RowCheckState::right;
    findings += is_finding(row);
    if (is_finding(row) && !options.json) fmt::print("{}\n", row_text(options.file, row));
  }
  if (options.json) {
    fmt::print("{}", check_json(options.file, rows));
  } else {
    fmt::print("{}: {} of this device: {} right, {} not; {} of other devices\n", options.file,
               counted(right + findings, "row"), right, findings, rows.size() - right - findings);
  }
  if (interrupted()) return exit_interrupted;
  return findings > 0 || !file->diagnostics.empty() ? exit_findings : exit_done;
}

}  // namespace

std::function<int()> declare_check(CLI::App& app) {
  auto options = std::make_shared<CheckOptions>();
  app.add_option("file", options->file, "A tuned file")->required();
  app.add_option("--errRatio", options->max_err_ratio, "Share of elements that may be outside tolerance")
      ->capture_default_str()
      ->check(number_range(0, 1));
  declare_device_options(app, options->device);
  app.add_flag("-q,--quiet", options->quiet, "No progress");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(check_footer);
  return [options] { return run_check(*options); };
}

}  // namespace gemmtune::cli
