#include "formats/aiter/operation_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>

#include "base/text.h"
#include "formats/aiter/environment_json.h"

namespace gemmtune {
namespace {

struct BaseName {
  std::string_view text;
  TableKind table;
};

// A longer name stands before any that it contains.
constexpr std::array<BaseName, 15> base_names{{
    {"mxscale", TableKind::batched_mxscale},
    {"a8w8_blockscale_bpreshuffle", TableKind::a8w8_blockscale_bpreshuffle},
    {"a8w8_blockscale", TableKind::a8w8_blockscale},
    {"a8w8_bpreshuffle", TableKind::a8w8_bpreshuffle},
    {"a4w4_blockscale", TableKind::a4w4_blockscale},
    {"a4w4", TableKind::a4w4_blockscale},
    {"a8w8_tuned_batched", TableKind::batched_a8w8},
    {"a8w8_untuned_batched", TableKind::batched_a8w8},
    {"bf16_tuned_batched", TableKind::batched_bf16},
    {"bf16_untuned_batched", TableKind::batched_bf16},
    {"grouped_fmoe", TableKind::grouped_moe},
    {"fhmoe", TableKind::heterogeneous_moe},
    {"fmoe", TableKind::fused_moe},
    {"bf16", TableKind::bf16},
    {"a8w8", TableKind::a8w8},
}};

bool has(const CsvCells& header, std::string_view name) {
  for (std::size_t index = 0; index < header.size(); ++index) {
    if (header[index] == name) return true;
  }
  return false;
}

bool has_any(const CsvCells& header, std::initializer_list<std::string_view> names) {
  for (std::size_t index = 0; index < header.size(); ++index) {
    const std::string cell = to_lower(header[index]);
    if (std::find(names.begin(), names.end(), cell) != names.end()) return true;
  }
  return false;
}

bool has_dimensions(const CsvCells& header) {
  return has_any(header, {"m"}) && has_any(header, {"n"}) && has_any(header, {"k"});
}

std::vector<TableKind> moe_tables(const CsvCells& header) {
  if (has_any(header, {"shared_expert_id"})) return {TableKind::heterogeneous_moe};
  if (has_any(header, {"max_m", "grouped_persistent_m", "tile_m"})) return {TableKind::grouped_moe};
  return {TableKind::fused_moe};
}

std::vector<TableKind> own_tables(bool groups) {
  std::vector<TableKind> tables;
  for (const Schema& schema : own_schemas())
    if (schema.in_key(Column::w_group) == groups) tables.push_back(schema.kind);
  return tables;
}

std::vector<TableKind> tables_of_dimensions(const CsvCells& header) {
  if (has_any(header, {"q_dtype_a"})) return own_tables(has_any(header, {"group"}));
  if (has_any(header, {"dtype", "outdtype", "bias", "scaleab", "solidx"})) return {TableKind::bf16};
  if (has_any(header, {"q_dtype_w"})) return {TableKind::a8w8, TableKind::a8w8_bpreshuffle};
  const bool tuned = has_any(header, {"us", "kernelid"});
  if (tuned && has_any(header, {"libtype"}))
    return {TableKind::a8w8_blockscale, TableKind::a8w8_blockscale_bpreshuffle};
  if (tuned)
    return {TableKind::a8w8, TableKind::a8w8_bpreshuffle, TableKind::a8w8_blockscale,
            TableKind::a8w8_blockscale_bpreshuffle, TableKind::a4w4_blockscale};
  std::vector<TableKind> any{TableKind::bf16, TableKind::a8w8, TableKind::a8w8_blockscale,
                             TableKind::a8w8_blockscale_bpreshuffle, TableKind::a4w4_blockscale};
  for (const bool groups : {false, true})
    for (const TableKind table : own_tables(groups)) any.push_back(table);
  return any;
}

std::string operations_of(const std::vector<TableKind>& tables) {
  return joined(tables, ", ", [](const TableKind table) { return schema_of(table).name; });
}

/// Of an operation's tables the header knows best which one it is.
Result<const Schema*> schema_of_wanted(const std::string& source, const std::vector<TableKind>& candidates,
                                       OperationForm wanted) {
  for (const TableKind table : candidates) {
    if (schema_of(table).operation == wanted) return &schema_of(table);
  }
  // Sizes alone serve every operation, and q_dtype_w stands where no key has it.
  const bool only_sizes = candidates.size() > 1 && candidates.front() != TableKind::batched_bf16 &&
                          !traits(wanted.operation).mixture;
  if (candidates.empty() || only_sizes) return &schema_of(wanted);
  return Status::invalid("{}: the header is that of a table of {}, expected {}", source,
                         operations_of(candidates), to_string(wanted));
}

/// A batched header under the name of a table without batches: rows that differ in B alone would be one.
bool hides_batch(const std::vector<TableKind>& candidates, TableKind named) {
  return schema_of(candidates.front()).has(Column::batch) && !schema_of(named).has(Column::batch);
}

/// The one candidate whose operands have as many bits as those of the named table.
std::optional<TableKind> of_equal_bits(const std::vector<TableKind>& candidates, TableKind named) {
  const auto bits_of = [](TableKind table) {
    return bits(default_problem(schema_of(table).operation).w_type);
  };
  std::optional<TableKind> found;
  for (const TableKind candidate : candidates) {
    if (bits_of(candidate) != bits_of(named)) continue;
    if (found) return std::nullopt;
    found = candidate;
  }
  return found;
}

struct KernelNamePart {
  std::string_view text;
  TableKind table;
};

// Of AITER's kernels, in lower case; a longer part stands before any that it contains.
constexpr std::array<KernelNamePart, 9> kernel_name_parts{{
    {"bf16_batched", TableKind::batched_bf16},
    {"a8w8_batched", TableKind::batched_a8w8},
    {"blockscale_bpreshuffle", TableKind::a8w8_blockscale_bpreshuffle},
    {"a8w8_blockscale", TableKind::a8w8_blockscale},
    {"a8w8_bpreshuffle", TableKind::a8w8_bpreshuffle},
    {"flydsl_bpreshuflle", TableKind::a8w8_bpreshuffle},
    {"a8w8_rowwise", TableKind::a8w8},
    {"a4w4_blockscale", TableKind::a4w4_blockscale},
    {"f4gemm", TableKind::a4w4_blockscale},
}};

std::optional<TableKind> table_of_kernel_name(std::string_view name) {
  const std::string lowered = to_lower(name);
  for (const KernelNamePart& part : kernel_name_parts) {
    if (lowered.find(part.text) != std::string::npos) return part.table;
  }
  return std::nullopt;
}

/// The table on which all rows agree whose kernel's name states one.
std::optional<TableKind> table_of_kernels(const CsvDocument& document, std::size_t header,
                                          const CsvCells& names) {
  std::size_t column = 0;
  while (column < names.size() && to_lower(names[column]) != "kernelname") ++column;
  if (column == names.size()) return std::nullopt;
  std::optional<TableKind> found;
  CsvCells cells;
  for (std::size_t index = header + 1; index < document.lines.size(); ++index) {
    const std::string_view line = document.lines[index].text;
    if (is_blank_or_comment(line) || !cells.split(line) || cells.size() <= column) continue;
    const auto table = table_of_kernel_name(cells[column]);
    if (table && found && *table != *found) return std::nullopt;
    if (table) found = table;
  }
  return found;
}

/// What states the table beside the header and the file's own name: the first of them that names a candidate.
std::optional<TableKind> stated_table(const CsvDocument& document, std::size_t header, const CsvCells& names,
                                      const std::vector<TableKind>& candidates, const std::string& output) {
  const auto noted = [](const std::string& path) -> std::optional<TableKind> {
    const auto operation = path.empty() ? std::nullopt : noted_operation(path);
    return operation ? std::optional(schema_of(*operation).kind) : std::nullopt;
  };
  const auto is_candidate = [&](const std::optional<TableKind>& table) {
    return table && std::find(candidates.begin(), candidates.end(), *table) != candidates.end();
  };
  if (const auto table = table_of_file_name(output); is_candidate(table)) return table;
  if (const auto table = noted(document.source); is_candidate(table)) return table;
  if (const auto table = noted(output); is_candidate(table)) return table;
  const auto table = table_of_kernels(document, header, names);
  return is_candidate(table) ? table : std::nullopt;
}

}  // namespace

std::vector<TableKind> tables_of_header(const CsvCells& header) {
  if (has_any(header, {"token", "model_dim", "inter_dim"})) return moe_tables(header);
  if (!has_dimensions(header)) {
    // The reader of a bf16 table reports a header that lacks a dimension.
    if (has_any(header, {"bias", "dtype", "outdtype", "scaleab"})) return {TableKind::bf16};
    return {};
  }
  if (has(header, "b")) return {TableKind::batched_mxscale};
  if (has(header, "B")) return {TableKind::batched_bf16, TableKind::batched_a8w8};
  return tables_of_dimensions(header);
}

std::optional<TableKind> table_of_file_name(const std::string& path) {
  const std::string name = to_lower(std::filesystem::path(path).filename().string());
  if (name.find("tuned") == std::string::npos) return std::nullopt;  // "untuned" has it too
  const Schema* longest = nullptr;
  for (const Schema& schema : own_schemas())
    if (name.find(schema.name) != std::string::npos &&
        (longest == nullptr || schema.name.size() > longest->name.size()))
      longest = &schema;
  if (longest != nullptr) return longest->kind;
  for (const BaseName& base : base_names) {
    if (name.find(base.text) != std::string::npos) return base.table;
  }
  return std::nullopt;
}

std::string name_disagreement(const std::string& source, const Schema& schema) {
  const auto named = table_of_file_name(source);
  if (!named || *named == schema.kind) return {};
  return fmt::format("the header is that of a table of {}, but the file's name says {}", schema.name,
                     schema_of(*named).name);
}

Result<DetectedTable> detect_table(const CsvDocument& document, std::size_t header, const CsvCells& cells,
                                   const TableSources& sources) {
  const std::string& source = document.source;
  const auto candidates = tables_of_header(cells);
  if (has_any(cells, {"stage"}) && has_any(cells, {"token"})) {
    return Status::invalid(
        "{}: is a profile of AITER's MoE tuner (column stage: a row for each stage of each candidate), "
        "expected its tuned file",
        source);
  }
  if (sources.wanted) {
    const auto schema = schema_of_wanted(source, candidates, *sources.wanted);
    return schema.ok() ? Result<DetectedTable>({*schema}) : schema.status();
  }
  if (candidates.size() == 1) return DetectedTable{&schema_of(candidates.front())};
  if (candidates.empty()) {
    return Status::invalid(
        "{}: the header is none of a shape list or tuned file: expected columns M, N and K, or token, "
        "model_dim and inter_dim",
        source);
  }
  if (const auto named = table_of_file_name(source)) {
    if (!hides_batch(candidates, *named)) return DetectedTable{&schema_of(*named)};
    if (const auto fits = of_equal_bits(candidates, *named)) return DetectedTable{&schema_of(*fits)};
    return Status::invalid(
        "{}: the header is that of a table of {}, the file's name says {}; name it with --op", source,
        operations_of(candidates), schema_of(*named).name);
  }
  if (const auto stated = stated_table(document, header, cells, candidates, sources.output))
    return DetectedTable{&schema_of(*stated)};
  const bool is_bare = candidates.front() == TableKind::bf16 && candidates.size() > 1;
  if (is_bare && sources.bare_sizes) return DetectedTable{&schema_of(*sources.bare_sizes), true};
  return Status::invalid(
      "{}: neither the header, the file name, notes beside the file nor names of kernels state the "
      "operation; name it with --op ({})",
      source, operations_of(candidates));
}

}  // namespace gemmtune
