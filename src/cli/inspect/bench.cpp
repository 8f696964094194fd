// gemmtune bench: the production operator, timed.
#include "cli/inspect/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <unordered_set>
#include <utility>

#include "cli/command.h"
#include "cli/shared/bench_report.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/routing_options.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/triton/bucket_rows.h"
#include "resolve/bind.h"
#include "resolve/online_rows.h"
#include "resolve/shipped_tables.h"
#include "tuned/key.h"

namespace gemmtune::cli {
namespace {

constexpr const char* bench_footer = R"(
FILE is a tuned file: its rows of this device are timed against the default kernel (what a user without tuning
gets), or against the rows of a second tuned file. It may be a Triton config (JSON), or a folder of them: its buckets of
this device are timed at the smallest and the largest M of each. Or FILE is a shape list: then the tables that a program would
use now (GEMMTUNE_CONFIG_A16W16, else the config folder's, and the rows of online tuning if it is switched on) are timed
against the default kernel. What is timed is what dispatch runs: a row that it passes over is passed over here, and the
reason is printed.
Both sides run in interleaved rounds; the speed-up is the median of the ratios round by round.

Exit codes: 0 all right, 1 a result was wrong or did not run, or FILE is slower somewhere by more than
--max-regression with 99.9 % confidence (11 rounds or more), 2 usage or input. So it serves as a gate in CI.

Examples:
  gemmtune bench tuned.csv
  gemmtune bench new.csv --against old.csv --json
  gemmtune bench configs --against tuned.csv
  gemmtune bench tuned_fmoe.csv --routing zipf
  gemmtune bench shapes/llama-3.2-1b.csv)";

/// The buckets of this device at both ends of their M.
Status add_bucket_shapes(const std::string& path, std::optional<OperationForm> operation,
                         const DeviceInfo& device, std::vector<ShapeRow>& shapes) {
  GEMMTUNE_TRY(const auto files, read_triton_files({path}));
  for (const TritonFile& file : files) {
    if (!file.name.arch.empty() && file.name.arch != device.gfx) continue;
    GEMMTUNE_TRY(const auto rows, rows_to_run(file, operation));
    for (const TunedEntry& row : rows) {
      Problem first = row.problem;
      first.m = row.m_from.value_or(first.m);
      if (first.m != row.problem.m) shapes.push_back({first, 1, {}, row.line});
      shapes.push_back({row.problem, 1, {}, row.line});
    }
  }
  return {};
}

}  // namespace

Result<BenchInput> bench_input_of(ShapeList shapes, const Environment& environment, const Device& device) {
  for (const std::string& diagnostic : shapes.diagnostics) print_note(diagnostic);
  for (const std::string& note : notes_of(shapes)) print_note(note);
  BenchInput input;
  input.shapes = std::move(shapes.rows);
  input.tables = production_tables(environment);
  input.online = production_online_rows(environment, device);
  input.shipped = production_shipped_tables(environment, &device.info());
  GEMMTUNE_RETURN_IF_ERROR(input.tables.first_fault());
  return input;
}

Result<BenchInput> read_bench_input(const std::string& path, std::optional<OperationForm> operation,
                                    const Environment& environment, const Device& opened, bool strict) {
  const DeviceInfo& device = opened.info();
  BenchInput input;
  GEMMTUNE_TRY(const auto triton, are_triton_files({path}));
  if (triton) {
    GEMMTUNE_TRY(auto tables, read_table_set(path, operation));
    input.tuned_file = true;
    input.tables = std::move(tables);
    GEMMTUNE_RETURN_IF_ERROR(add_bucket_shapes(path, operation, device, input.shapes));
    if (!input.shapes.empty()) return input;
    return Status::not_found("{}: no bucket of this device ({})", path, device.gfx);
  }
  GEMMTUNE_TRY(const auto all_tuned, are_tuned_files(path));
  if (!all_tuned) {
    ShapeListOptions list;
    list.operation = operation;
    list.architecture = device.gfx;
    list.strict = strict;
    GEMMTUNE_TRY(auto shapes, read_shape_list(path, list));
    return bench_input_of(std::move(shapes), environment, opened);
  }
  input.tuned_file = true;
  GEMMTUNE_TRY(auto tuned, read_tables({path}, operation, strict));
  input.tables = table_set_of(std::move(tuned));
  for (const TableSource& source : input.tables.sources) {
    for (const std::string& diagnostic : source.diagnostics) print_note(diagnostic);
  }
  // As the files have them, not as the table keeps them for look-ups.
  std::vector<const TunedEntry*> rows;
  for (const TunedEntry& entry : input.tables.table.entries())
    if (row_is_of(entry, device)) rows.push_back(&entry);
  std::ranges::stable_sort(rows, {}, [](const TunedEntry* row) { return std::pair(row->source, row->line); });
  std::unordered_set<Problem, SameKeyHash, SameKey> seen;
  for (const TunedEntry* row : rows)
    if (seen.insert(row->problem).second) input.shapes.push_back({row->problem, 1, {}, row->line});
  if (input.shapes.empty()) {
    return Status::not_found("{}: no row of this device ({}, cu_num {})", path, device.gfx, device.cu_num);
  }
  return input;
}

Result<int> time_operator(const BenchOptions& options, BenchInput input, Device& device) {
  std::optional<TableSet> against;
  if (!options.against.empty()) {
    GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
    auto tables = read_table_set(options.against, operation);
    if (!tables.ok()) return Status(tables.code(), fmt::format("--against {}", tables.message()));
    against = std::move(*tables);
  }
  BenchRequest request{
      .shapes = std::move(input.shapes),
      .tables = {input.tables, input.online.get(), [shipped = input.shipped] { return shipped.get(); }}};
  if (options.limit > 0 && static_cast<std::size_t>(options.limit) < request.shapes.size())
    request.shapes.resize(static_cast<std::size_t>(options.limit));
  if (against) request.against = LookupTables(*against);
  request.rules = {.strict_environment = options.strict, .dependent_launches = options.pdl == "allow"};
  request.rounds = options.rounds;
  Policy policy = options.policy.value_or(default_policy(device.info()));
  if (!options.policy) GEMMTUNE_RETURN_IF_ERROR(read_routings(options.routing, {}, policy));
  GEMMTUNE_RETURN_IF_ERROR(check_routings(policy, request.shapes));
  std::vector<BenchRow> rows;
  {
    Console console(options.quiet);
    InProcessEvaluator evaluator(device, in_process_options(device, policy, options.max_err_ratio));
    rows = run_bench(device, evaluator, request, console);
  }
  const BenchNames names{input.tuned_file ? "tuned" : "operator", against ? "other" : "default"};
  print_answer(options.json,
               options.json ? bench_json("bench", rows, device.info()) : bench_text(rows, names));
  const std::string regressions = regressions_text(rows, options.max_regression);
  if (!options.json) print_text(regressions);
  const int code = bench_code(rows);
  return code == exit_done && !regressions.empty() ? exit_findings : code;
}

namespace {

Result<int> run_bench_command(const BenchOptions& options) {
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  const Environment environment = read_environment();
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, true));
  GEMMTUNE_TRY(auto input, read_bench_input(options.file, operation, environment, *device));
  return time_operator(options, std::move(input), *device);
}

}  // namespace

std::function<Result<int>()> declare_bench(CommandOptions& app) {
  auto options = std::make_shared<BenchOptions>();
  app.add_option(
         "file", options->file,
         "A tuned file, a Triton config or a folder of these, or a shape list, or several of one kind, "
         "colon-separated")
      .required();
  declare_file_operation(app, options->operation);
  app.add_option("--against", options->against, "Time against the rows of these tuned files");
  app.add_option("--routing", options->routing, routing_help).capture_default_str();
  app.add_option("--rounds", options->rounds, "Interleaved rounds").capture_default_str().positive();
  app.add_option("--limit", options->limit, "Only the first N shapes").positive();
  app.add_option("--max-regression", options->max_regression,
                 "Percent by which a row may be slower than the other side before that is a finding")
      .capture_default_str()
      .number_range(0, 1e6);
  app.add_option("--errRatio", options->max_err_ratio, "Share of elements that may be outside tolerance")
      .capture_default_str()
      .number_range(0, 1);
  app.add_flag("--strict", options->strict, "Rows of another environment do not answer");
  app.add_option(
         "--pdl", options->pdl,
         "allow: a row's programmatic dependent launch goes before its plain kernel, as for callers with "
         "constant_weights and predecessor_triggers")
      .capture_default_str()
      .one_of({"off", "allow"});
  declare_device_options(app, options->device);
  app.add_flag("-q,--quiet", options->quiet, "No progress");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(bench_footer);
  return [options] { return run_bench_command(*options); };
}

}  // namespace gemmtune::cli
