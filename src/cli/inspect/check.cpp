// gemmtune check: is every row of a tuned file, or one kernel at one size, right on this machine?
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/inspect/invariant_report.h"
#include "cli/shared/bench_report.h"
#include "cli/shared/check_report.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/size_options.h"
#include "cli/shared/worker_evaluator.h"
#include "cli/tables/table_files.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/json.h"
#include "formats/triton/bucket_rows.h"
#include "resolve/bind.h"
#include "resolve/candidate_list.h"
#include "resolve/errata.h"
#include "resolve/source_use.h"
#include "tuned/entry.h"
#include "tuning/row_check.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// A file's rows, or its buckets.
struct CheckedFile {
  std::string path;
  std::vector<TunedEntry> entries;
  std::vector<std::string> diagnostics;
};

/// The buckets of Triton configs.
Result<std::vector<CheckedFile>> read_bucket_files(const std::string& paths, const SizeOptions& size,
                                                   std::optional<OperationForm> operation,
                                                   const DeviceInfo& device) {
  GEMMTUNE_TRY(const auto n, dimension_word("-n", size.n));
  GEMMTUNE_TRY(const auto k, dimension_word("-k", size.k));
  GEMMTUNE_TRY(auto configs, read_triton_files({paths}));
  std::vector<CheckedFile> files;
  for (TritonFile& config : configs) {
    if (!config.name.n || !config.name.k) {
      config.name.n = n;
      config.name.k = k;
    }
    const bool own = config.name.arch.empty() || config.name.arch == device.gfx;
    // Of another device nothing runs, so that whole problems are not needed.
    auto rows = own ? rows_to_run(config, operation) : bucket_rows(config, operation);
    CheckedFile& file = files.emplace_back(CheckedFile{config.path, {}, std::move(config.diagnostics)});
    if (rows.ok()) {
      file.entries = std::move(*rows);
    } else {
      file.diagnostics.push_back(rows.message());
    }
  }
  return files;
}

/// Tuned files, or Triton configs and folders of them, colon-separated. Of a config for this device whose name says no N and
/// K those of `size` count; without them that is a diagnostic.
Result<std::vector<CheckedFile>> read_checked_files(const std::string& paths, const SizeOptions& size,
                                                    std::optional<OperationForm> operation,
                                                    const DeviceInfo& device) {
  GEMMTUNE_TRY(const auto triton, are_triton_files({paths}));
  if (triton) return read_bucket_files(paths, size, operation, device);
  if (size.any()) return Status::invalid("a file and a size: expected one of them");
  GEMMTUNE_RETURN_IF_ERROR(refuse_single_size_options(size));
  GEMMTUNE_TRY(auto tables, read_tables({paths}, operation));
  std::vector<CheckedFile> files;
  for (TunedFile& table : tables)
    files.push_back({std::move(table.path), std::move(table.entries), std::move(table.diagnostics)});
  return files;
}

constexpr const char* check_footer = R"(
Each row of this device is run on random data and compared with a float64 reference, at its M and at the other M
that it answers by padding. Kernels run in a worker process: one that crashes or does not end is a wrong row, and the
next row goes on. Rows of other devices are counted and left alone.

A Triton config (JSON), or a folder of them, is checked bucket by bucket: each kernel at the smallest and the largest M of
its bucket (of one without a largest M at twice the M before it). -n and -k give the sizes that a file's name does not say.

With a size (-m -n -k, or --problem) one kernel is verified: --kernel NAME, the first choice of --libtype NAME, or
what runs there without tuning. It runs even if an erratum says that it is wrong.

With --invariant the question is another one: do the rows of each weight give a row of y the same bits at every M? What
differs first is named by M, row and element. Of a single kernel (a size) its bit class is printed beside its errors.

Exit codes: 0 all right, 1 a row is wrong or its kernel does not exist here, 2 usage or input.

Examples:
  gemmtune check tuned.csv
  gemmtune check tuned.csv --errRatio 0.01 --json
  gemmtune check configs
  gemmtune check tuned.csv --invariant
  gemmtune check -m 33 -n 64 -k 63 --libtype onednn
  gemmtune check --problem 'a16w16 m=8 n=64 k=127 alignment=2' --kernel tiled_r1_…)";

struct CheckCommandOptions {
  DeviceOptions device;
  std::string file;
  SizeOptions size;
  std::string kernel;
  std::string libtype;
  double max_err_ratio = 0.05;
  bool invariant = false;
  bool quiet = false;
  bool json = false;
};

struct Checked {
  const CheckedFile* file = nullptr;
  const TunedEntry* entry = nullptr;
  bool own = false;  // a row of this device
  RowCheck check;
};

bool is_finding(const Checked& row) { return row.own && row.check.state != RowCheckState::right; }

std::string row_text(const Checked& row) {
  const std::string bucket = row.entry->bucket.empty() ? "" : row.entry->bucket + ", ";
  return fmt::format("{}:{}: {}{} {}: {}{}{}\n  repeat: {}", row.file->path, row.entry->line, bucket,
                     short_name(row.entry->problem), row.entry->kernel_name, to_string(row.check.state),
                     row.check.reason.empty() ? "" : ": ", row.check.reason,
                     check_command(row.entry->problem, row.entry->kernel_name));
}

/// Why nothing was checked: all rows are of other devices. Empty if some were.
std::string why_none(const std::vector<Checked>& rows, const DeviceInfo& device) {
  std::map<std::string, std::size_t> devices;
  for (const Checked& row : rows) {
    if (row.own) return {};
    ++devices[device_of_row(*row.entry)];
  }
  if (devices.empty()) return {};
  return fmt::format("nothing was checked: {}, none of this device, {}", rows_of_devices(devices),
                     device_of_rows(device));
}

std::string check_document(const std::string& file, const std::vector<Checked>& rows,
                           const std::string& warning) {
  Json json;
  json["command"] = "check";
  json["file"] = file;
  json["warnings"] = Json::array();
  if (!warning.empty()) json["warnings"].push_back(warning);
  json["rows"] = Json::array();
  for (const Checked& row : rows) {
    Json checked = {{"file", row.file->path},
                    {"line", row.entry->line},
                    {"bucket", row.entry->bucket.empty() ? Json() : Json(row.entry->bucket)},
                    {"problem", print(row.entry->problem)},
                    {"kernelName", row.entry->kernel_name},
                    {"this_device", row.own}};
    checked.update(check_json(row.check));
    if (is_finding(row))
      checked["repeat_command"] = check_command(row.entry->problem, row.entry->kernel_name);
    json["rows"].push_back(std::move(checked));
  }
  return json_document(json);
}

/// Appends the rows of `file`, of `count` in all files.
void check_file(const CheckedFile& file, std::size_t count, const Device& device, Evaluator& evaluator,
                Console& console, std::vector<Checked>& rows) {
  for (const TunedEntry& entry : file.entries) {
    if (interrupted()) break;
    console.live_line(fmt::format("[{}/{}] {}", rows.size() + 1, count, short_name(entry.problem)));
    Checked row;
    row.file = &file;
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
}

/// --kernel, the default config of --libtype, or what a user gets without tuning: errata do not count.
Result<Candidate> candidate_of_check(const CheckCommandOptions& options, const Device& device,
                                     const Problem& problem) {
  if (!options.kernel.empty()) return device.resolve(options.kernel, problem);
  if (options.libtype.empty()) {
    return default_kernel(device, problem, AccuracyPolicy::keep);
  }
  GEMMTUNE_RETURN_IF_ERROR(check_libtypes(device, {options.libtype}));
  const KernelFamily* const family = device.find_family(options.libtype);
  if (family == nullptr) return device.missing_family(options.libtype);
  if (const Status accepted = family->accepts(problem); !accepted.ok()) {
    return Status(accepted.code(), fmt::format("{}: {}", options.libtype, accepted.message()));
  }
  return Candidate{options.libtype, family->revision(), family->default_config(problem)};
}

/// One kernel at one size, in a worker.
Result<int> run_one_check(const CheckCommandOptions& options) {
  const Environment environment = read_environment();
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, false));
  GEMMTUNE_TRY(const auto problem, problem_of(options.size, device->info().gfx));
  GEMMTUNE_TRY(const auto candidate, candidate_of_check(options, *device, problem));
  watch_for_interrupts();
  InProcessOptions evaluation =
      in_process_options(*device, default_policy(device->info()), options.max_err_ratio);
  evaluation.odd_strides = true;
  evaluation.bit_classes = options.invariant;
  const auto evaluator = make_worker(*device, options.device, environment, evaluation);
  const Outcome outcome = evaluator->check_neighbour_m(problem, candidate, problem.m);
  if (interrupted()) return exit_interrupted;
  const bool right = outcome.kind == OutcomeKind::ok;
  const Accuracy accuracy = device->accuracy(candidate, problem);
  const DeviceErrata errata(device->info());
  const Erratum* const erratum = errata.find(problem, candidate);
  if (options.json) {
    Json json = {{"command", "check"},
                 {"problem", print(problem)},
                 {"kernelName", candidate.kernel_name()},
                 {"state", right ? "right" : to_string(outcome.kind)},
                 {"reason", outcome.reason},
                 {"err_ratio", outcome.err_ratio},
                 {"accuracy", to_string(accuracy)},
                 {"error", error_json(outcome.error)},
                 {"deterministic", outcome.deterministic},
                 {"erratum", erratum == nullptr ? Json() : Json(erratum->name)}};
    if (options.invariant) {
      json["bits"] = outcome.bits.id;
      json["no_bits"] = outcome.bits.reason;
    }
    print_document(json_document(json));
  } else {
    print_text(fmt::format("{} {}: {}{}\n", short_name(problem), candidate.kernel_name(),
                           right ? fmt::format("right, err_ratio {:.4f}, class {}{}", outcome.err_ratio,
                                               to_string(accuracy), error_text(outcome.error))
                                 : fmt::format("{}: {}", to_string(outcome.kind), outcome.reason),
                           erratum == nullptr ? std::string() : "; known: " + describe(*erratum)));
    if (options.invariant && right)
      print_text(fmt::format("bit class: {}\n",
                             outcome.bits.id.empty() ? "none: " + outcome.bits.reason : outcome.bits.id));
  }
  return right && (!options.invariant || !outcome.bits.id.empty()) ? exit_done : exit_findings;
}

Result<int> run_check(const CheckCommandOptions& options) {
  // -n and -k beside a Triton config are those that its name does not say.
  const bool names_sizes = !options.file.empty() && options.size.m.empty() && options.size.problem.empty();
  const bool one = !names_sizes && options.size.any();
  if (one == !options.file.empty()) {
    return Status::invalid("{}", one ? "a file and a size: expected one of them"
                                     : "expected a tuned file, or a size (-m -n -k, --problem)");
  }
  if (one) return run_one_check(options);
  if (!options.kernel.empty() || !options.libtype.empty()) {
    return Status::invalid("--kernel and --libtype go with a size, expected no file");
  }
  GEMMTUNE_TRY(const auto operation, operation_of(options.size));
  const Environment environment = read_environment();
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, false));
  GEMMTUNE_TRY(const auto files, read_checked_files(options.file, options.size, operation, device->info()));
  Console console(options.quiet);
  std::size_t count = 0;
  std::size_t unread = 0;
  for (const CheckedFile& file : files) {
    for (const std::string& diagnostic : file.diagnostics) console.urgent_line(diagnostic);
    count += file.entries.size();
    unread += file.diagnostics.size();
  }
  if (options.invariant) {
    std::vector<TunedEntry> entries;
    for (const CheckedFile& file : files)
      entries.insert(entries.end(), file.entries.begin(), file.entries.end());
    return report_invariant({"check", options.file, options.device, options.max_err_ratio, 0, options.json},
                            *device, kernels_of_rows(*device, entries), console);
  }
  std::vector<Checked> rows;
  watch_for_interrupts();
  const auto evaluator = make_verifying_worker(*device, options.device, environment, options.max_err_ratio);
  for (const CheckedFile& file : files) check_file(file, count, *device, *evaluator, console, rows);
  std::size_t right = 0;
  std::size_t findings = 0;
  for (const Checked& row : rows) {
    right += row.own && row.check.state == RowCheckState::right;
    findings += is_finding(row);
    if (is_finding(row) && !options.json) print_text(row_text(row) + "\n");
  }
  const std::string warning = interrupted() ? std::string() : why_none(rows, device->info());
  if (options.json) {
    print_document(check_document(options.file, rows, warning));
  } else {
    if (!warning.empty()) print_text(fmt::format("{}: warning: {}\n", options.file, warning));
    const bool buckets = !rows.empty() && !rows.front().entry->bucket.empty();
    print_text(fmt::format("{}: {} of this device: {} right, {} not; {} of other devices\n", options.file,
                           counted(right + findings, buckets ? "bucket" : "row"), right, findings,
                           rows.size() - right - findings));
  }
  if (interrupted()) return exit_interrupted;
  return findings > 0 || unread > 0 ? exit_findings : exit_done;
}

}  // namespace

std::function<Result<int>()> declare_check(CommandOptions& app) {
  auto options = std::make_shared<CheckCommandOptions>();
  app.add_option("file", options->file,
                 "A tuned file, a Triton config or a folder of these, or several, colon-separated");
  declare_size_options(app, options->size);
  app.add_option("--kernel", options->kernel, "The kernel to verify at the size");
  app.add_option("--libtype", options->libtype, "The family whose first choice is verified at the size");
  app.add_option("--errRatio", options->max_err_ratio, "Share of elements that may be outside tolerance")
      .capture_default_str()
      .number_range(0, 1);
  app.add_flag("--invariant", options->invariant, "Whether a row of y has the same bits at every M");
  declare_device_options(app, options->device);
  app.add_flag("-q,--quiet", options->quiet, "No progress");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(check_footer);
  return [options] { return run_check(*options); };
}

}  // namespace gemmtune::cli
