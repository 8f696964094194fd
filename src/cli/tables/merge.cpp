// gemmtune merge: several tuned files as one, and a dense table as ranges.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/environment.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/size_options.h"
#include "cli/tables/row_confirmation.h"
#include "cli/tables/shard_set.h"
#include "cli/tables/table_files.h"
#include "cli/tables/triton_tables.h"
#include "evaluate/journal/journal.h"
#include "evaluate/journal/journal_merge.h"
#include "formats/aiter/merge_tables.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

constexpr const char* merge_footer = R"(
One row a key: the smallest time of a row that may be chosen wins, ties keep the first file's row. Inputs are never
changed; what is left out is named on stderr. Rows keep their bytes where the headers agree.

--compress turns neighbours in M with one winner into one row with m_from: every M gets the same winner as before, but
for an M between two of them, which gets theirs: before, padding answered it, or, in the tables of batched operations,
which pad no M, no row did. A row that answers where a range cannot stays as it is. AITER reads a range as a row of its
largest M only: a compressed file is not equivalent for AITER.

Triton configs (JSON), or folders of them, are merged by file name and bucket: of one bucket the first file's stays, because
they have no times. Several names need -o FOLDER/.

--expect-shards N: the files are the outputs of `tune --shard`, as a pattern or a list, and perhaps further tables. Refused
are, unless --allow names them: missing shards, unfinished ones, unanswered shapes (no table has a row of them), rows of
several devices or environments, shards of runs with other options. Rows get the order of the list. What the journals
beside the files hold comes together in the one of -o.

--confirm measures each row whose kernel is not the default's again on this machine, beside the default, before the table
is written. A row that does not hold (wrong, slower, or no gain in both measurements together) gets the default's kernel
and the verdict undecided; `--confirm mark` leaves it. Both are noted in OUTPUT.env.json.

Exit codes: 0 merged, 1 rows are left out: they could not be read, or want another packed weight than their group
(--json lists them); something that --allow names was found; a row was not confirmed; a journal could not be added,
2 usage or input, refused.

Examples:
  gemmtune merge a.csv b.csv -o merged.csv
  gemmtune merge a.csv:b.csv --compress -o ranges.csv
  gemmtune merge mine/ shipped/ -o merged/
  gemmtune merge 'tuned.*of16.csv' --expect-shards 16 -o tuned.csv
  gemmtune merge 'tuned.*of16.csv' --expect-shards 16 --allow missing,unanswered -o part.csv
  gemmtune merge 'tuned.*of16.csv' --expect-shards 16 --confirm -o tuned.csv)";

struct MergeCommandOptions {
  std::vector<std::string> files;
  std::string operation;
  std::string output;
  std::string schema;
  bool compress = false;
  int expect_shards = 0;  // 0: not given
  std::string allow;
  std::optional<std::string> confirm;  // an empty text: replace
  ConfirmationOptions confirmation;
  bool quiet = false;
  bool json = false;
};

Result<MergeOptions> merge_options(const MergeCommandOptions& options) {
  MergeOptions merge;
  if (options.schema == "aiter") {
    merge.schema = CsvSchema::aiter;
  } else if (options.schema == "seed") {
    merge.schema = CsvSchema::seed;
  } else if (!options.schema.empty()) {
    return Status::invalid("--csv-schema {}: expected aiter or seed", options.schema);
  }
  return merge;
}

/// The merged table as ranges.
Result<CompressedTable> compressed(const MergedTable& merged, const TunedFile& first) {
  GEMMTUNE_TRY(const auto table,
               parse_tuned_csv(first.path, merged.text, {.operation = first.schema().operation}));
  GEMMTUNE_TRY(auto ranges, compress_table(table));
  const std::size_t saved = ranges.rows_before - ranges.rows_after;
  print_note(fmt::format(
      "{} became {}: {} saved ({:.1f} %); every tuned M has the same winner, which AITER, that reads "
      "no ranges, does not see",
      counted(ranges.rows_before, "row"), ranges.rows_after, counted(saved, "row"),
      ranges.rows_before == 0
          ? 0.0
          : 100.0 * static_cast<double>(saved) / static_cast<double>(ranges.rows_before)));
  return ranges;
}

OrderedJson compressed_json(const CompressedTable& table) {
  OrderedJson json{
      {"rows_before", table.rows_before}, {"rows_after", table.rows_after}, {"ranges", OrderedJson::array()}};
  for (const MadeRange& range : table.ranges) {
    json["ranges"].push_back({{"line", range.line},
                              {"gfx", range.row.gfx},
                              {"cu_num", range.row.cu_num},
                              {"problem", print(range.row.problem)},
                              {"m_from", range.m_from},
                              {"M", range.row.problem.m},
                              {"rows", range.rows},
                              {"kernelName", range.row.kernel_name}});
  }
  return json;
}

using LeftOutByFile = std::map<std::string, std::vector<LeftOut>>;

/// The rows that a merged table does not hold: those that could not be read, and other layouts.
LeftOutByFile rows_left_out(const std::vector<TunedFile>& files, const MergedTable& merged) {
  LeftOutByFile lost;
  for (const LeftOut& item : merged.left_out) lost[item.source].push_back(item);
  for (const TunedFile& file : files) {
    for (UnreadRow& row : unread_rows(file)) {
      lost[file.path].push_back({LeftOutKind::row, {}, row.line, 1, std::move(row.why)});
    }
  }
  return lost;
}

std::vector<LeftOut> flattened(const LeftOutByFile& lost) {
  std::vector<LeftOut> all;
  for (const auto& [path, items] : lost) all.insert(all.end(), items.begin(), items.end());
  return all;
}

std::size_t comment_count(const std::vector<TunedFile>& files) {
  std::size_t count = 0;
  for (const TunedFile& file : files) {
    for (const CsvLine& line : file.document.lines) count += trim(line.text).starts_with('#') ? 1 : 0;
  }
  return count;
}

struct MergedJournals {
  std::size_t problems = 0;           // that the output's journal got
  std::size_t known = 0;              // that it had already
  std::vector<std::string> left_out;  // journals that could not be added, and why
};

/// What a merge found and did beside its table.
struct MergeFindings {
  std::vector<ShardFinding> shards;  // all of them allowed
  std::optional<ConfirmationReport> confirmation;
  MergedJournals journals;
};

OrderedJson confirmation_json(const ConfirmationReport& report) {
  OrderedJson json = {{"device", report.device.name},
                      {"measured", report.measured},
                      {"held", report.measured - report.refuted.size()},
                      {"other_device", report.other_device},
                      {"refuted", OrderedJson::array()}};
  for (const RefutedRow& one : report.refuted) {
    json["refuted"].push_back({{"problem", print(one.row.problem)},
                               {"kernelName", one.row.kernel_name},
                               {"why", one.why},
                               {"becomes", one.becomes}});
  }
  return json;
}

/// The one finding that --allow does not name ends the merge.
Status check_allowed(const std::vector<ShardFinding>& findings,
                     const std::set<std::string, std::less<>>& allowed) {
  for (const ShardFinding& finding : findings) {
    if (!allowed.contains(finding.kind))
      return Status::invalid("{}; --allow {} merges nevertheless", finding.text, finding.kind);
  }
  return {};
}

Status check_merge_options(const MergeCommandOptions& options) {
  const bool to_file = !options.output.empty() && options.output != "-";
  if (options.json && !to_file)
    return Status::invalid("--json: stdout holds the document; name the file with -o");
  if (!options.allow.empty() && options.expect_shards == 0)
    return Status::invalid("--allow needs --expect-shards");
  if (options.confirm && !options.confirm->empty() && *options.confirm != "replace" &&
      *options.confirm != "mark")
    return Status::invalid("--confirm {}: expected replace or mark", *options.confirm);
  if (options.confirm && !to_file)
    return Status::invalid("--confirm: needs -o FILE, beside which its notes are kept");
  return {};
}

Result<TunedFile> parsed(const MergedTable& merged, const TunedFile& first) {
  return parse_tuned_csv(first.path, merged.text, {.operation = first.schema().operation});
}

/// What the inputs' journals hold comes into the output's.
MergedJournals merge_journals(const std::vector<TunedFile>& files, const std::string& output) {
  MergedJournals all;
  if (output.empty() || output == "-") return all;
  for (const TunedFile& file : files) {
    const std::string journal = journal_path(file.path);
    if (!file_exists(journal)) continue;
    const auto report = merge_journal(journal_path(output), journal);
    if (report.ok()) {
      all.problems += report->problems;
      all.known += report->known;
    } else {
      all.left_out.push_back(report.message());
    }
  }
  return all;
}

/// `ranges`: null without --compress.
void print_merge_json(const MergeCommandOptions& options, const MergedTable& merged,
                      const LeftOutByFile& lost, const CompressedTable* ranges,
                      const MergeFindings& findings) {
  OrderedJson json;
  json["command"] = "merge";
  json["output"] = options.output;
  json["rows"] = merged.rows;
  json["duplicates"] = merged.duplicates;
  json["compressed"] = ranges == nullptr ? OrderedJson() : compressed_json(*ranges);
  json["notes"] = merged.notes;
  json["findings"] = OrderedJson::array();
  for (const ShardFinding& finding : findings.shards)
    json["findings"].push_back({{"kind", finding.kind}, {"text", finding.text}});
  json["confirmation"] = findings.confirmation ? confirmation_json(*findings.confirmation) : OrderedJson();
  json["journal"] = {{"problems", findings.journals.problems},
                     {"known", findings.journals.known},
                     {"left_out", findings.journals.left_out}};
  json["left_out"] = OrderedJson::object();
  for (const auto& [path, items] : lost) json["left_out"][path] = left_out_json(items);
  print_document(json_document(json));
}

Result<int> run_merge(const MergeCommandOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_merge_options(options));
  GEMMTUNE_TRY(const auto allowed, allowed_findings(options.allow));
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  GEMMTUNE_TRY(const auto triton, are_triton_files(options.files));
  if (triton) {
    if (options.compress || !options.schema.empty() || options.expect_shards > 0 || options.confirm)
      return Status::invalid(
          "--compress, --csv-schema, --expect-shards and --confirm are of tuned CSV, expected no "
          "Triton config");
    return merge_triton({options.files, options.output, options.quiet, options.json});
  }
  GEMMTUNE_TRY(const auto how, merge_options(options));
  GEMMTUNE_TRY(auto files, read_tables(options.files, operation));
  GEMMTUNE_RETURN_IF_ERROR(check_no_input("-o", options.output, files));
  MergeFindings findings;
  std::optional<ShardSet> shards;
  if (options.expect_shards > 0) {
    GEMMTUNE_TRY(shards, ShardSet::read(files, static_cast<std::size_t>(options.expect_shards)));
    findings.shards = shards->findings();
    GEMMTUNE_RETURN_IF_ERROR(check_allowed(findings.shards, allowed));
  }
  GEMMTUNE_TRY(auto merged, merge_tables(files, how));
  if (shards) {
    GEMMTUNE_TRY(const auto table, parsed(merged, files.front()));
    for (ShardFinding& finding : shards->unanswered(table)) findings.shards.push_back(std::move(finding));
    GEMMTUNE_RETURN_IF_ERROR(check_allowed(findings.shards, allowed));
    merged.text = shards->in_list_order(table);
  }
  if (options.confirm) {
    GEMMTUNE_TRY(const auto table, parsed(merged, files.front()));
    ConfirmationOptions confirmation = options.confirmation;
    confirmation.keeps_rows = *options.confirm == "mark";
    confirmation.quiet = options.quiet;
    auto confirmed = confirm_rows(table, read_environment(), confirmation);
    if (!confirmed.ok()) return Status::invalid("--confirm: {}", confirmed.message());
    if (confirmed->interrupted) return exit_interrupted;
    merged.text = confirmed->text;
    merged.rows -= confirmed->removed;
    findings.confirmation = std::move(*confirmed);
  }
  for (const TunedFile& file : files) {
    for (const std::string& diagnostic : file.diagnostics) print_note(diagnostic);
  }
  if (!options.quiet) {
    for (const std::string& note : merged.notes) print_note(note);
  }
  std::optional<CompressedTable> ranges;
  if (options.compress) {
    GEMMTUNE_TRY(ranges, compressed(merged, files.front()));
  }
  // First: a table is never there without the measurements that it came from.
  if (shards) findings.journals = merge_journals(files, options.output);
  const EnvironmentObjects notes =
      findings.confirmation ? findings.confirmation->notes : EnvironmentObjects();
  GEMMTUNE_RETURN_IF_ERROR(
      write_table("-o", options.output, ranges ? ranges->text : merged.text, files, notes));
  print_note(fmt::format("{} of {} merged, {} left out as duplicates", counted(merged.rows, "row"),
                         counted(files.size(), "file"), merged.duplicates));
  for (const ShardFinding& finding : findings.shards) print_note(fmt::format("allowed: {}", finding.text));
  if (findings.confirmation) print_note(confirmation_text(*findings.confirmation));
  if (findings.journals.problems > 0)
    print_note(fmt::format("measurements of {} added to {}", counted(findings.journals.problems, "problem"),
                           journal_path(options.output)));
  for (const std::string& why : findings.journals.left_out)
    print_note(fmt::format("measurements left out: {}", why));
  const std::size_t comments = comment_count(files);
  if (comments != 0) print_note(fmt::format("{} not carried", counted(comments, "comment line")));
  const auto lost = rows_left_out(files, merged);
  if (!lost.empty()) print_note(summary_of(flattened(lost)));
  if (options.json) print_merge_json(options, merged, lost, ranges ? &*ranges : nullptr, findings);
  const bool all_hold = !findings.confirmation || findings.confirmation->refuted.empty();
  const bool whole = lost.empty() && findings.shards.empty() && findings.journals.left_out.empty();
  return whole && all_hold ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_merge(CommandOptions& app) {
  auto options = std::make_shared<MergeCommandOptions>();
  app.add_option("FILE", options->files,
                 "Tuned files, or colon-separated lists of them, of one operation; or Triton configs and "
                 "folders of these")
      .required();
  declare_file_operation(app, options->operation);
  app.add_option("-o,--output", options->output, "Where the table goes (default: - for stdout)");
  app.add_flag("--compress", options->compress, "Neighbours in M with one winner become one row with m_from");
  app.add_option("--csv-schema", options->schema,
                 "aiter (leading gfx) or seed (without); default: as the inputs");
  app.add_option("--expect-shards", options->expect_shards, "The files are the outputs of N shards of `tune`")
      .type_name("N")
      .integer_range(1, static_cast<int>(max_shards));
  app.add_option(
         "--allow", options->allow,
         "With --expect-shards, comma list of what is no reason to refuse: missing, unfinished, unanswered, "
         "devices, environments, options")
      .type_name("LIST");
  app.add_bare_option(
      "--confirm", options->confirm,
      "Measure the kernels again here before the table is written; replace (default): a row that does "
      "not hold gets the default's kernel; mark: it is only noted");
  app.add_option("--rounds", options->confirmation.rounds, "Interleaved rounds of --confirm")
      .capture_default_str()
      .positive();
  declare_device_options(app, options->confirmation.device);
  app.add_flag("--quiet", options->quiet, "Only unreadable rows and the summary on stderr");
  app.add_flag("--json", options->json,
               "One JSON document on stdout: what was left out, and the ranges; needs -o");
  app.footer(merge_footer);
  return [options] { return run_merge(*options); };
}

}  // namespace gemmtune::cli
