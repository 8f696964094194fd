// gemmtune diff: what changed from one set of tuned files to another.
#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>

#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "cli/tables/triton_tables.h"
#include "formats/json.h"
#include "tuned/difference.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* diff_footer = R"(
Compares the chosen row of every key. Another kernel, libtype or splitK is a changed winner; the same winner is faster
or slower where its time moved by more than both spreads, or by more than --tolerance where a row has none; it is
timed where only the new time is valid, untimed where only the old one is. Another number (kernelId, solidx) of a
kernel that its name selects is no difference.

Triton configs (JSON), or folders of them, are compared by file name and bucket (two single files whatever their names are):
another kernelName, or without one other parameters, is a changed winner.

Exit codes: 0 equal, 1 different, 2 usage or input.

Examples:
  gemmtune diff old.csv new.csv
  gemmtune diff a.csv:b.csv merged.csv --tolerance 5 --json
  gemmtune diff configs.old configs)";

struct DiffOptions {
  std::string before;
  std::string after;
  std::string operation;
  double tolerance = 3;
  bool quiet = false;
  bool json = false;
};

struct Side {
  std::vector<TunedFile> files;
  std::vector<TunedEntry> entries;
  std::string place(const TunedEntry& row) const {
    return fmt::format("{}:{}", files[row.source].path, row.line);
  }
};

Result<Side> read_side(const std::string& word, std::optional<OperationForm> operation) {
  GEMMTUNE_TRY(auto files, read_tables({word}, operation));
  Side side{std::move(files), {}};
  for (std::uint32_t source = 0; source < side.files.size(); ++source) {
    for (const TunedEntry& entry : side.files[source].entries) {
      side.entries.push_back(entry);
      side.entries.back().source = source;
    }
  }
  return side;
}

constexpr std::array<ChangeKind, change_kind_count> kinds{
    ChangeKind::added,  ChangeKind::removed, ChangeKind::winner, ChangeKind::faster,
    ChangeKind::slower, ChangeKind::timed,   ChangeKind::untimed};
/// Operation → changes by kind.
using Summary = std::map<OperationForm, std::array<std::size_t, kinds.size()>>;

Summary summary_of(const Difference& difference) {
  Summary summary;
  for (const RowChange& change : difference.changes) {
    ++summary[form_of(change.row().problem)][static_cast<std::size_t>(change.kind)];
  }
  return summary;
}

std::string winner_text(const TunedEntry& row) {
  std::string text = row.kernel_name.empty() ? row.libtype : row.kernel_name;
  if (row.stages != nullptr && !row.stages->kernel_name2.empty()) text += " + " + row.stages->kernel_name2;
  return text + (row.split_k > 1 ? fmt::format(" splitK {}", row.split_k) : std::string());
}

std::string change_text(const RowChange& change, const Side& before, const Side& after) {
  const std::string row = describe_row(change.row());
  switch (change.kind) {
    case ChangeKind::added:
      return fmt::format("{}: added: {}: {}, {}\n", after.place(*change.after), row,
                         row_time_text(change.after->us), winner_text(*change.after));
    case ChangeKind::removed:
      return fmt::format("{}: removed: {}: {}, {}\n", before.place(*change.before), row,
                         row_time_text(change.before->us), winner_text(*change.before));
    case ChangeKind::winner:
      return fmt::format("{}: winner: {}: {} ({}), before {} ({})\n", after.place(*change.after), row,
                         winner_text(*change.after), row_time_text(change.after->us),
                         winner_text(*change.before), row_time_text(change.before->us));
    case ChangeKind::timed:
    case ChangeKind::untimed:
      return fmt::format("{}: {}: {}: {}, before {}\n", after.place(*change.after), to_string(change.kind),
                         row, row_time_text(change.after->us), row_time_text(change.before->us));
    case ChangeKind::faster:
    case ChangeKind::slower:
      break;
  }
  return fmt::format("{}: {}: {}: {} µs, before {} µs ({:+.1f} %)\n", after.place(*change.after),
                     to_string(change.kind), row, change.after->us, change.before->us,
                     100 * (change.after->us / change.before->us - 1));
}

std::string difference_text(const DiffOptions& options, const Difference& difference, const Side& before,
                            const Side& after) {
  std::string text;
  for (const RowChange& change : difference.changes) {
    if (!options.quiet) text += change_text(change, before, after);
  }
  TextTable table({{"operation"},
                   {"added", true},
                   {"removed", true},
                   {"winner", true},
                   {"faster", true},
                   {"slower", true},
                   {"timed", true},
                   {"untimed", true}});
  for (const auto& [operation, counts] : summary_of(difference)) {
    std::vector<std::string> cells{std::string(to_string(operation))};
    for (const std::size_t count : counts) cells.push_back(std::to_string(count));
    table.add(std::move(cells));
  }
  if (!table.empty()) text += table.text(0);
  text += fmt::format("{}, {} as before\n", counted(difference.changes.size(), "difference"),
                      counted(difference.equal, "key"));
  return text;
}

Json side_row_json(const TunedEntry* row, const Side& side) {
  if (row == nullptr) return {};
  const Json us = valid_time(row->us) ? Json(row->us) : Json();
  return {{"place", side.place(*row)},
          {"us", us},
          {"libtype", row->libtype},
          {"kernelName", row->kernel_name},
          {"splitK", row->split_k}};
}

std::string difference_json(const Difference& difference, const Side& before, const Side& after) {
  Json json;
  json["command"] = "diff";
  json["equal"] = difference.equal;
  json["summary"] = Json::object();
  for (const auto& [operation, counts] : summary_of(difference)) {
    Json& of_operation = json["summary"][std::string(to_string(operation))];
    for (const ChangeKind kind : kinds) {
      of_operation[std::string(to_string(kind))] = counts[static_cast<std::size_t>(kind)];
    }
  }
  json["changes"] = Json::array();
  for (const RowChange& change : difference.changes) {
    json["changes"].push_back({{"kind", to_string(change.kind)},
                               {"gfx", change.row().gfx},
                               {"cu_num", change.row().cu_num},
                               {"problem", print(change.row().problem)},
                               {"before", side_row_json(change.before, before)},
                               {"after", side_row_json(change.after, after)}});
  }
  return json_document(json);
}

Result<int> run_diff(const DiffOptions& options) {
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  GEMMTUNE_TRY(const auto triton, are_triton_files({options.before, options.after}));
  if (triton) return diff_triton({options.before, options.after, options.quiet, options.json});
  GEMMTUNE_TRY(const auto before, read_side(options.before, operation));
  GEMMTUNE_TRY(const auto after, read_side(options.after, operation));
  for (const Side* side : {&before, &after}) {
    for (const TunedFile& file : side->files) {
      for (const std::string& diagnostic : file.diagnostics) print_note(diagnostic);
    }
  }
  const Difference difference = compare_rows(before.entries, after.entries, options.tolerance / 100);
  print_answer(options.json, options.json ? difference_json(difference, before, after)
                                          : difference_text(options, difference, before, after));
  return difference.changes.empty() ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_diff(CommandOptions& app) {
  auto options = std::make_shared<DiffOptions>();
  app.add_option("BEFORE", options->before,
                 "A tuned file, a Triton config or a folder of these, or a colon-separated list")
      .required();
  app.add_option("AFTER", options->after, "The same").required();
  declare_file_operation(app, options->operation);
  app.add_option("--tolerance", options->tolerance,
                 "Percent that a time may move without a spread (default: 3)")
      .number_range(0, 1e6);
  app.add_flag("--quiet", options->quiet, "Only the summary");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(diff_footer);
  return [options] { return run_diff(*options); };
}

}  // namespace gemmtune::cli
