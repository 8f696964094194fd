// gemmtune merge: several tuned files as one, and a dense table as ranges.
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>

#include "base/text.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "cli/tables/triton_tables.h"
#include "formats/aiter/merge_tables.h"
#include "formats/json.h"
#include "formats/json_text.h"

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

Exit codes: 0 merged, 1 rows are left out: they could not be read, or want another packed weight than their group
(--json lists them), 2 usage or input.

Examples:
  gemmtune merge a.csv b.csv -o merged.csv
  gemmtune merge a.csv:b.csv --compress -o ranges.csv
  gemmtune merge mine/ shipped/ -o merged/)";

struct MergeCommandOptions {
  std::vector<std::string> files;
  std::string operation;
  std::string output;
  std::string schema;
  bool compress = false;
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
  const auto table = parse_tuned_csv(first.path, merged.text, {.operation = first.schema().operation});
  if (!table.ok()) return table.status();
  auto ranges = compress_table(*table);
  if (!ranges.ok()) return ranges.status();
  const std::size_t saved = ranges->rows_before - ranges->rows_after;
  print_note(fmt::format(
      "{} became {}: {} saved ({:.1f} %); every tuned M has the same winner, which AITER, that reads "
      "no ranges, does not see",
      counted(ranges->rows_before, "row"), ranges->rows_after, counted(saved, "row"),
      ranges->rows_before == 0
          ? 0.0
          : 100.0 * static_cast<double>(saved) / static_cast<double>(ranges->rows_before)));
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

/// `ranges`: null without --compress.
void print_merge_json(const MergeCommandOptions& options, const MergedTable& merged,
                      const LeftOutByFile& lost, const CompressedTable* ranges) {
  OrderedJson json;
  json["command"] = "merge";
  json["output"] = options.output;
  json["rows"] = merged.rows;
  json["duplicates"] = merged.duplicates;
  json["compressed"] = ranges == nullptr ? OrderedJson() : compressed_json(*ranges);
  json["notes"] = merged.notes;
  json["left_out"] = OrderedJson::object();
  for (const auto& [path, items] : lost) json["left_out"][path] = left_out_json(items);
  print_document(json_document(json));
}

int run_merge(const MergeCommandOptions& options) {
  if (options.json && (options.output.empty() || options.output == "-")) {
    return usage_error("merge", "--json: stdout holds the document; name the file with -o");
  }
  const auto operation = operation_word(options.operation);
  if (!operation.ok()) return usage_error("merge", operation.message());
  const auto triton = are_triton_files(options.files);
  if (!triton.ok()) return usage_error("merge", triton.message());
  if (*triton) {
    if (options.compress || !options.schema.empty())
      return usage_error("merge", "--compress and --csv-schema are of tuned CSV, expected no Triton config");
    return merge_triton({options.files, options.output, options.quiet, options.json});
  }
  const auto how = merge_options(options);
  if (!how.ok()) return usage_error("merge", how.message());
  const auto files = read_tables(options.files, *operation);
  if (!files.ok()) return usage_error("merge", files.message());
  if (const Status status = check_no_input("-o", options.output, *files); !status.ok()) {
    return usage_error("merge", status.message());
  }
  const auto merged = merge_tables(*files, *how);
  if (!merged.ok()) return usage_error("merge", merged.message());
  for (const TunedFile& file : *files) {
    for (const std::string& diagnostic : file.diagnostics) print_note(diagnostic);
  }
  if (!options.quiet) {
    for (const std::string& note : merged->notes) print_note(note);
  }
  std::optional<CompressedTable> ranges;
  if (options.compress) {
    auto made = compressed(*merged, files->front());
    if (!made.ok()) return usage_error("merge", made.message());
    ranges = std::move(*made);
  }
  const Status written = write_table("-o", options.output, ranges ? ranges->text : merged->text, *files);
  if (!written.ok()) return usage_error("merge", written.message());
  print_note(fmt::format("{} of {} merged, {} left out as duplicates", counted(merged->rows, "row"),
                         counted(files->size(), "file"), merged->duplicates));
  const std::size_t comments = comment_count(*files);
  if (comments != 0) print_note(fmt::format("{} not carried", counted(comments, "comment line")));
  const auto lost = rows_left_out(*files, *merged);
  if (!lost.empty()) print_note(summary_of(flattened(lost)));
  if (options.json) print_merge_json(options, *merged, lost, ranges ? &*ranges : nullptr);
  return lost.empty() ? exit_done : exit_findings;
}

}  // namespace

std::function<int()> declare_merge(CommandOptions& app) {
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
  app.add_flag("--quiet", options->quiet, "Only unreadable rows and the summary on stderr");
  app.add_flag("--json", options->json,
               "One JSON document on stdout: what was left out, and the ranges; needs -o");
  app.footer(merge_footer);
  return [options] { return run_merge(*options); };
}

}  // namespace gemmtune::cli
