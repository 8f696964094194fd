#include "formats/capture/capture_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/path_list.h"
#include "formats/aiter/operation_header.h"
#include "formats/aiter/problem_cells.h"
#include "formats/csv/columns.h"
#include "formats/csv/csv.h"
#include "formats/json.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  return b > std::numeric_limits<std::uint64_t>::max() - a ? std::numeric_limits<std::uint64_t>::max()
                                                           : a + b;
}

// ---- the side store
// ----------------------------------------------------------------------------------------

constexpr std::array matches{Match::exact,   Match::range,  Match::fine,         Match::coarse,
                             Match::untuned, Match::bucket, Match::fewer_threads};  // by value
static_assert(matches.size() == match_count);

/// Takes the counts of one member; false where it is no object of them.
bool read_counts(const Json& json, CapturedProblem& counted) {
  if (!json.is_object()) return false;
  const auto number = [&](std::string_view name, std::uint64_t& value) {
    const auto at = json.find(name);
    if (at == json.end() || !at->is_number_unsigned()) return false;
    value = at->get<std::uint64_t>();
    return true;
  };
  for (const Match match : matches) {
    const bool is_new =
        match == Match::bucket || match == Match::fewer_threads;  // stores of earlier versions lack them
    if (is_new && !json.contains(to_string(match))) continue;
    if (!number(to_string(match), counted.by_match[static_cast<std::size_t>(match)])) return false;
  }
  if (const auto seen = json.find("last_seen"); seen != json.end()) {
    if (!seen->is_string()) return false;
    counted.last_seen = seen->get<std::string>();
  }
  return number("calls", counted.calls);
}

Result<CallStore> parse_store(const std::string& path, const std::string& text) {
  GEMMTUNE_TRY(const auto json, parse_json_object(path, text));
  CallStore store;
  for (const auto& [key, counts] : json.items()) {
    auto problem = parse_problem(key);
    if (!problem.ok()) return Status::invalid("{}: {}", path, problem.message());
    CapturedProblem& counted = store[key];
    counted.problem = *problem;
    if (read_counts(counts, counted)) continue;
    return Status::invalid("{}: '{}': expected calls and the counts of each match", path, key);
  }
  return store;
}

/// One line a problem, so that people can read it and tools can search it.
std::string write_store(const CallStore& store) {
  std::string text = "{";
  for (const auto& [key, counted] : store) {
    OrderedJson counts;
    counts["calls"] = counted.calls;
    for (const Match match : matches) {
      counts[std::string(to_string(match))] = counted.by_match[static_cast<std::size_t>(match)];
    }
    counts["last_seen"] = counted.last_seen;
    text += text.size() == 1 ? "\n" : ",\n";
    text += json_line(OrderedJson(key)) + ": " + json_line(counts);
  }
  return text + "\n}\n";
}

/// As read_call_store(); a damaged one is put aside and described in `damage`.
Result<CallStore> load_captures_for_merge(const std::string& path, std::string& damage) {
  const auto text = read_file(path);
  if (text.code() == StatusCode::not_found) return CallStore();
  if (!text.ok()) return text.status();
  auto store = parse_store(path, *text);
  if (store.ok()) return store;
  const std::string aside = path + ".damaged";
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(aside, *text));
  damage = fmt::format("{}; kept as {} and begun anew", store.message(), aside);
  return CallStore();
}

Status merge_store(const std::string& path, const std::vector<CapturedProblem>& seen, std::string& damage) {
  GEMMTUNE_TRY(auto store, load_captures_for_merge(path, damage));
  for (const CapturedProblem& one : seen) {
    CapturedProblem& counted = store[print(one.problem)];
    counted.calls = add(counted.calls, one.calls);
    for (std::size_t match = 0; match < matches.size(); ++match) {
      counted.by_match[match] = add(counted.by_match[match], one.by_match[match]);
    }
    counted.last_seen = std::max(counted.last_seen, one.last_seen);
  }
  return write_file_atomically(path, write_store(store));
}

// ---- the untuned CSV
// ---------------------------------------------------------------------------------------

/// AITER's header of an untuned file: the key without the device, and the groups of a mixture that has them.
std::string untuned_header(const Schema& schema, const std::vector<CapturedProblem>& seen) {
  std::string text;
  for (const SchemaColumn& column : schema.key()) {
    if (column.column == Column::gfx || column.column == Column::cu_num) continue;
    text += (text.empty() ? "" : ",") + std::string(column.name);
  }
  for (const Column column : {Column::w_group, Column::zero_points}) {
    const bool needed = std::ranges::any_of(
        seen, [&](const CapturedProblem& one) { return needs_column(one.problem, column); });
    if (!schema.in_key(column) && schema.has(column) && needed)
      text += fmt::format(",{}", schema.column_name(column));
  }
  return text;
}

/// A file's text, which problems it has, and how to write one more.
class UntunedFile {
 public:
  UntunedFile(std::string path, OperationForm operation) : path_(std::move(path)), operation_(operation) {}

  /// An error: the file is there, but is no list of the operation's problems. `seen`: what a new file is to express.
  Status read(const std::vector<CapturedProblem>& seen);
  /// False where the header cannot express the problem.
  bool add(const Problem& problem);
  std::size_t added() const { return added_; }
  Status write() const;

 private:
  Status read_rows(const CsvDocument& document);
  void begin_new(const std::vector<CapturedProblem>& seen);
  void end_last_line();

  std::string path_;
  OperationForm operation_;
  std::string text_;
  std::size_t read_bytes_ = 0;
  std::string line_end_ = "\n";
  Columns columns_;
  std::unordered_set<std::string> known_;
  std::size_t added_ = 0;
};

Status UntunedFile::read(const std::vector<CapturedProblem>& seen) {
  auto content = read_file(path_);
  if (!content.ok() && content.code() != StatusCode::not_found) return content.status();
  if (content.ok()) text_ = *content;
  read_bytes_ = text_.size();
  GEMMTUNE_TRY(const auto document, parse_csv(path_, text_));
  if (header_line(document) < document.lines.size()) return read_rows(document);
  begin_new(seen);
  return {};
}

Status UntunedFile::read_rows(const CsvDocument& document) {
  const std::size_t header = header_line(document);
  const CsvLine& line = document.lines[header];
  CsvCells cells;
  if (!cells.split(without_mark(line.text))) {
    return Status::invalid("{}:{}: {}", path_, line.number, unclosed_quote);
  }
  GEMMTUNE_TRY(const auto detected, detect_table(document, header, cells, {.wanted = operation_}));
  const Schema& schema = *detected.schema;
  if (!schema.dispatched) {
    return Status::unsupported("{}: is a table of {}, which is only read", path_, schema.name);
  }
  columns_ = Columns(cells, schema);
  if (line.end == "\r\n") line_end_ = "\r\n";
  ProblemReader reader(columns_, {});
  Diagnostics ignored(path_);
  Problem problem;
  for (std::size_t index = header + 1; index < document.lines.size(); ++index) {
    const CsvLine& row = document.lines[index];
    if (!split_row(row, columns_, cells, ignored)) continue;
    if (!reader.read(cells, row.number, problem, nullptr)) continue;
    const Problem stated = problem_of_row(problem);
    if (stated.m == problem.m) known_.insert(print(stated));
  }
  return {};
}

/// A header of our own behind whatever comments there are.
void UntunedFile::begin_new(const std::vector<CapturedProblem>& seen) {
  const std::string header = untuned_header(schema_of(operation_), seen);
  CsvCells cells;
  cells.split(header);
  columns_ = Columns(cells, schema_of(operation_));
  end_last_line();
  text_ += header + line_end_;
}

void UntunedFile::end_last_line() {
  if (!text_.empty() && text_.back() != '\n') text_ += line_end_;
}

bool UntunedFile::add(const Problem& problem) {
  std::string name = print(problem);
  if (known_.contains(name)) return true;
  std::string line;
  for (std::size_t position = 0; position < columns_.width(); ++position) {
    if (position != 0) line += ',';
    const Column* column = columns_.known_at(position);
    if (column != nullptr) line += csv_cell(problem_cell(problem, *column).value_or(std::string()));
  }
  CsvCells cells;
  ProblemReader reader(columns_, {});
  Problem back;
  // What does not read back as itself would be tuned as something else.
  if (!cells.split(line) || !reader.read(cells, 0, back, nullptr) || problem_of_row(back) != problem) {
    return false;
  }
  end_last_line();
  text_ += line + line_end_;
  known_.insert(std::move(name));
  ++added_;
  return true;
}

Status UntunedFile::write() const {
  const auto appended = append_within_page(path_, read_bytes_, std::string_view(text_).substr(read_bytes_));
  if (!appended.ok() || *appended) return appended.status();
  return write_file_atomically(path_, text_);
}

/// Appends what the file lacks.
Result<CaptureMerge> merge_rows(const std::string& path, const std::vector<CapturedProblem>& seen) {
  CaptureMerge merge;
  UntunedFile file(path, form_of(seen.front().problem));
  if (const Status status = file.read(seen); !status.ok()) {
    merge.diagnostic =
        fmt::format("{}; its problems are counted in {} only", status.message(), calls_path(path));
    return merge;
  }
  for (const CapturedProblem& one : seen) {
    if (file.add(one.problem) || !merge.diagnostic.empty()) continue;
    merge.diagnostic = fmt::format("{}: its columns cannot express {}, which is counted in {} only", path,
                                   print(one.problem), calls_path(path));
  }
  merge.added = file.added();
  if (merge.added > 0) GEMMTUNE_RETURN_IF_ERROR(file.write());
  return merge;
}

}  // namespace

std::string calls_path(const std::string& untuned_path) {
  return resolve_links(untuned_path) + ".calls.json";
}

Problem problem_of_row(const Problem& problem) {
  Problem row = problem;
  if (problem.operation != Operation::a16w16) {
    const Schema& schema = schema_of(form_of(problem));
    row = default_problem(form_of(problem));
    row.m = problem.m;
    row.n = problem.n;
    row.k = problem.k;
    row.batch = problem.batch;
    if (schema.has(Column::q_dtype_w)) row.x_type = row.w_type = problem.w_type;
    if (schema.has(Column::q_dtype_a)) row.x_type = problem.x_type;
    if (schema.has(Column::dtype) || schema.has(Column::outdtype)) row.y_type = problem.y_type;
    if (schema.has(Column::bias) && !is_mixture(problem)) row.bias = problem.bias;
    if (schema.has(Column::w_group)) {
      row.w_group = problem.w_group;
      row.zero_points = problem.zero_points;
    }
    row.moe = problem.moe;
    row.moe.shared_experts = 0;
    if (is_mixture(problem)) row.m = token_tier(problem.m);  // the only M of a row that answers
  }
  row.alignment = Problem().alignment;
  row.weight_layout = group_of(problem).weight_layout;
  return row;
}

Result<CaptureMerge> merge_capture(const std::string& untuned_path,
                                   const std::vector<CapturedProblem>& seen) {
  if (seen.empty()) return CaptureMerge();
  const std::string target = resolve_links(untuned_path);
  GEMMTUNE_RETURN_IF_ERROR(make_folders(parent_folder(target)));
  GEMMTUNE_TRY(const auto lock, FileLock::acquire(target + ".lock"));
  GEMMTUNE_TRY(auto merge, merge_rows(target, seen));
  GEMMTUNE_RETURN_IF_ERROR(merge_store(calls_path(target), seen, merge.damage));
  return merge;
}

Result<std::optional<CaptureMerge>> try_add_lines(const std::string& untuned_path,
                                                  const std::vector<CapturedProblem>& seen) {
  if (seen.empty()) return std::optional<CaptureMerge>(CaptureMerge());
  const std::string target = resolve_links(untuned_path);
  GEMMTUNE_RETURN_IF_ERROR(make_folders(parent_folder(target)));
  GEMMTUNE_TRY(const auto lock, FileLock::try_acquire(target + ".lock"));
  if (!lock) return std::optional<CaptureMerge>();
  GEMMTUNE_TRY(auto merge, merge_rows(target, seen));
  return std::optional<CaptureMerge>(std::move(merge));
}

Result<CallStore> read_call_store(const std::string& path) {
  const auto text = read_file(path);
  if (text.code() == StatusCode::not_found) return CallStore();
  if (!text.ok()) return text.status();
  return parse_store(path, *text);
}

void take_captured_calls(const std::string& untuned_paths, ShapeList& list) {
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  std::unordered_map<std::string, std::uint64_t> calls;
  for (const std::string& path : path_list(untuned_paths)) {
    const auto store = read_call_store(calls_path(path));
    if (!store.ok()) list.diagnostics.push_back(store.message());
    if (!store.ok()) continue;
    for (const auto& [problem, counted] : *store) {
      std::uint64_t& sum = calls[problem];
      sum += std::min(counted.calls, limit - sum);
    }
  }
  for (ShapeRow& row : list.rows) {
    const auto counted = calls.find(print(problem_of_row(row.problem)));
    if (counted != calls.end()) row.calls = static_cast<std::int64_t>(counted->second);
  }
}

}  // namespace gemmtune
