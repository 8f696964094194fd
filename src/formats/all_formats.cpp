#include "formats/all_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "formats/aic/aic_csv.h"
#include "formats/aiter/operation_header.h"
#include "formats/aiter/tuned_row.h"
#include "formats/bench/bench_call.h"
#include "formats/csv/csv.h"
#include "formats/flashinfer/flashinfer_cache.h"
#include "formats/triton/triton_json.h"
#include "formats/triton/triton_lookup.h"
#include "formats/tunableop/tunableop_csv.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "formats/tune_gemm/gemm_result_yaml.h"

namespace gemmtune {
namespace {

constexpr std::array held_by_triton{Column::gfx};  // in the file's name
constexpr std::array held_by_tune_gemm{Column::us};
constexpr std::array held_by_hipblaslt{Column::dtype, Column::outdtype, Column::scale_ab, Column::bpreshuffle,
                                       Column::solidx};
constexpr std::array held_by_tunableop{Column::bias, Column::dtype, Column::outdtype, Column::scale_ab,
                                       Column::us};
constexpr std::array held_by_aic{Column::dtype,   Column::outdtype,  Column::scale_ab,  Column::bpreshuffle,
                                 Column::us,      Column::q_dtype_a, Column::q_dtype_w, Column::q_type,
                                 Column::experts, Column::topk,      Column::act_type,  Column::use_g1u1,
                                 Column::env,     Column::routing};
constexpr std::array held_by_size_lists{Column::bias,
                                        Column::dtype,
                                        Column::outdtype,
                                        Column::scale_ab,
                                        Column::bpreshuffle,
                                        Column::q_dtype_a,
                                        Column::q_dtype_w,
                                        Column::q_type,
                                        Column::experts,
                                        Column::topk,
                                        Column::act_type,
                                        Column::use_g1u1,
                                        Column::doweight_stage1,
                                        Column::shared_experts,
                                        Column::w_group,
                                        Column::zero_points};

constexpr std::array<Format, 15> formats{{
    {"aiter",
     "AITER's tuned CSV with today's header, gemmtune's columns behind",
     "*_tuned_*.csv",
     {.all = true, .known = {}},
     read_aiter_rows,
     write_aiter_rows},
    {"seed",
     "the same without the column gfx: rows of AMD devices",
     "*_tuned_*.csv",
     {.all = true, .known = {}},
     read_aiter_rows,
     write_seed_rows},
    {"untuned",
     "AITER's untuned CSV: sizes and types",
     "*_untuned_*.csv",
     {.known = held_by_size_lists, .calls = true, .sizes_only = true},
     read_untuned_rows,
     write_untuned_rows},
    {"triton_json",
     "AITER's Triton configs by buckets of M, one (N, K) a file; no times",
     "*.json",
     {.known = held_by_triton, .problem = false},
     read_triton_rows,
     write_triton_rows},
    {"vllm_json",
     "vLLM's and SGLang's Triton configs by the nearest M, one (N, K) or (E, N) a file; no times",
     "*,device_name=*.json",
     {.known = {}, .problem = false},
     read_triton_rows,
     write_nearest_rows},
    {"tune_gemm_yaml_v2",
     "tune_gemm's results as version 2 prints them",
     "*.yaml",
     {.known = held_by_tune_gemm},
     read_tune_gemm_rows,
     write_tune_gemm_v2_rows},
    {"tune_gemm_yaml",
     "tune_gemm's results as version 3.4 prints them, with orders",
     "*.yaml",
     {.known = held_by_tune_gemm},
     read_tune_gemm_rows,
     write_tune_gemm_rows},
    {"tune_gemm_sizes",
     "tune_gemm's list of sizes",
     "*.yaml",
     {.known = {}, .sizes_only = true},
     read_tune_gemm_rows,
     write_tune_gemm_sizes},
    {"hipblaslt_csv",
     "hipBLASLt's online tuning table; no times, no device",
     "hip_online_tuning_res.csv",
     {.known = held_by_hipblaslt},
     read_hipblaslt_rows,
     write_hipblaslt_rows},
    {"tunableop",
     "PyTorch TunableOp's results and its calls that wait; no device",
     "tunableop_*.csv",
     {.known = held_by_tunableop},
     read_tunableop_rows,
     write_tunableop_rows},
    {"rocblas_yaml",
     "calls of rocblas-bench and hipblaslt-bench: sizes and types",
     "*.yaml",
     {.known = held_by_size_lists, .sizes_only = true},
     read_bench_rows,
     nullptr},
    {"cutlass_csv",
     "what CUTLASS's profiler timed: sizes and types",
     "*.csv",
     {.known = held_by_size_lists, .sizes_only = true},
     read_cutlass_rows,
     nullptr},
    {"aic",
     "NVIDIA aiconfigurator's latencies (gemm_perf, moe_perf) as CSV",
     "*_perf.csv",
     {.known = held_by_aic},
     read_aic_rows,
     write_aic_rows},
    {"flashinfer",
     "FlashInfer's cache: runners and tactics, which are indices of one version on one GPU",
     "*.json",
     {.known = {}, .problem = false},
     read_flashinfer_rows,
     nullptr},
    {"listing",
     "a line for each row or entry, to be read",
     "*",
     {.all = true, .known = {}, .problem = false},
     nullptr,
     write_listing},
}};

const Format& format_named(std::string_view name) {
  for (const Format& format : formats) {
    if (format.name == name) return format;
  }
  return formats.front();
}

/// By the header: algo_index is hipBLASLt's, a time a tuned file's.
const Format& csv_format(std::string_view content) {
  if (is_tunableop(first_row(content))) return format_named("tunableop");
  if (is_cutlass_header(first_row(content))) return format_named("cutlass_csv");
  if (is_aic_header(first_row(content))) return format_named("aic");
  CsvCells header;
  if (!header.split(first_row(content))) return format_named("untuned");
  bool has_time = false;
  bool has_gfx = false;
  for (std::size_t index = 0; index < header.size(); ++index) {
    const std::string name = to_lower(header[index]);
    if (name == "algo_index") return format_named("hipblaslt_csv");
    has_time = has_time || name == "us" || name == "soltimes" || name == "total_us";
    has_gfx = has_gfx || name == "gfx";
  }
  return format_named(!has_time ? "untuned" : has_gfx ? "aiter" : "seed");
}

/// Columns that say nothing of their own: sizes and the kernel are in every row, rates are computed, and the
/// numbers of splits are in the names of Triton kernels.
bool is_everywhere(Column column) {
  constexpr std::array everywhere{Column::m,      Column::n,       Column::k,
                                  Column::batch,  Column::libtype, Column::kernel_name,
                                  Column::tflops, Column::bw,      Column::split_k};
  return std::find(everywhere.begin(), everywhere.end(), column) != everywhere.end();
}

bool is_type(Column column) { return column == Column::dtype || column == Column::outdtype; }

bool is_of_size(Column column) {
  return std::find(held_by_size_lists.begin(), held_by_size_lists.end(), column) != held_by_size_lists.end();
}

/// A cell that says no more than its absence.
bool says_nothing(std::string_view cell) {
  constexpr std::array<std::string_view, 5> words{"", "0", "0.0", "0.0%", "False"};
  return std::find(words.begin(), words.end(), cell) != words.end();
}

/// Columns of the rows that the format has no place for, with the counts of their cells.
class LostColumns {
 public:
  LostColumns(const Format& format, const ConversionRows& rows) : format_(format) {
    const Schema& schema = schema_of(rows.operation);
    for (std::size_t index = 0; index < rows.entries.size(); ++index) {
      if (rows.is_gone(index)) continue;
      for (const SchemaColumn& column : schema.columns) count_known(rows, rows.entries[index], column);
      for (const SchemaColumn& column : own_columns()) count_known(rows, rows.entries[index], column);
      count_carried(schema, rows.entries[index]);
    }
  }
  void name(ConversionRows& rows) const {
    for (const auto& [column, count] : counts_) {
      rows.left_out.push_back(
          {LeftOutKind::column, column, 0, count, fmt::format("{} has no place for it", format_.name)});
    }
    if (winners_ == 0) return;
    rows.notes.push_back(fmt::format("{}: the winners of {} row{} are no part of a list of sizes",
                                     rows.source, winners_, winners_ == 1 ? "" : "s"));
  }

 private:
  bool holds(Column column) const {
    const auto& known = format_.holds.known;
    return is_everywhere(column) || std::find(known.begin(), known.end(), column) != known.end();
  }
  void count_known(const ConversionRows& rows, const TunedEntry& entry, const SchemaColumn& column) {
    if (format_.holds.all || holds(column.column) || (is_type(column.column) && !rows.has_types)) return;
    const auto cell = cell_text(entry, column.column);
    if (!cell || says_nothing(*cell)) return;
    if (!format_.holds.sizes_only || is_of_size(column.column)) {
      ++counts_[std::string(column.name)];
    } else if (column.column == Column::us) {
      ++winners_;
    }
  }
  void count_carried(const Schema& schema, const TunedEntry& entry) {
    if (entry.carried == nullptr || format_.holds.all) return;
    for (const CarriedCell& cell : *entry.carried) {
      const auto known = schema.column_of(cell.column);
      const bool of_list = known == Column::calls || known == Column::layer;
      // A number with more digits than are written is counted with its column.
      if (known && !of_list) continue;
      if (!of_list || !format_.holds.calls) ++counts_[cell.column];
    }
  }

  const Format& format_;
  std::map<std::string, std::size_t> counts_;
  std::size_t winners_ = 0;
};

}  // namespace

std::span<const Format> all_formats() { return formats; }

Result<const Format*> find_format(std::string_view name) {
  std::string known;
  for (const Format& format : formats) {
    if (format.name == name) return &format;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format.name);
  }
  return Status::invalid("{}: no format (known: {})", name, known);
}

const Format& detect_format(const std::string& source, std::string_view content) {
  const std::string_view first = trim(first_row(content));
  const bool csv = ends_in(source, ".csv");
  if (ends_in(source, ".json") || (!csv && first.starts_with('{'))) {
    if (is_flashinfer(content)) return format_named("flashinfer");
    const auto name = parse_triton_file_name(source);
    const bool nearest = name && (name->family == nearest_dense_family || name->family == nearest_moe_family);
    return format_named(nearest ? "vllm_json" : "triton_json");
  }
  if (!csv && is_bench_yaml(content)) return format_named("rocblas_yaml");
  if (is_yaml_path(source) || (!csv && (first.starts_with('-') || first.starts_with('[')))) {
    return format_named("tune_gemm_yaml");
  }
  const Format& format = csv_format(content);
  // Heterogeneous MoE tables have no time, and an empty tuned file has no header.
  const bool named_tuned = table_of_file_name(source) && source.find("untuned") == std::string::npos;
  return format.name == "untuned" && named_tuned ? format_named("aiter") : format;
}

bool is_tuned_format(const Format& format) { return format.read == read_aiter_rows; }

Status refuse_format(const std::string& source, std::string_view content, std::string_view expected,
                     std::string_view remedy) {
  const Format* format = &detect_format(source, content);
  // An extension says nothing of what is in it.
  if (format->read == read_triton_rows) {
    if (const auto parsed = parse_triton_json(source, std::string(content)); !parsed.ok())
      return parsed.status();
  }
  if (format->read == read_tune_gemm_rows) {
    GEMMTUNE_TRY(const auto parsed, parse_gemm_results(source, std::string(content)));
    if (parsed.results.empty()) return Status::invalid("{}: no item, expected {}", source, expected);
    if (is_list_of_sizes(parsed)) format = &format_named("tune_gemm_sizes");
  }
  return Status::invalid("{}: is {} ({}), expected {}; gemmtune {} makes one", source, format->name,
                         format->description, expected, format->holds.sizes_only ? "tune -i" : remedy);
}

Status require_tuned_format(const std::string& source, std::string_view content) {
  const Format& format = detect_format(source, content);
  // A header without a time may be that of a damaged tuned file: its reader names what is missing.
  if (is_tuned_format(format) || format.name == "untuned") return {};
  return refuse_format(source, content, "a tuned CSV", "convert --to aiter");
}

Result<std::string> write_rows(const Format& format, ConversionRows& rows, const ConversionOptions& options) {
  if (format.holds.problem && !rows.missing.empty())
    return Status::invalid("{}: {}", rows.source, rows.missing);
  for (std::size_t index = 0; index < rows.entries.size() && !format.holds.all; ++index) {
    const std::string& types = rows.entries[index].unknown_types;
    if (!types.empty()) rows.leave_out(index, fmt::format("{}: no type known here", types));
  }
  for (const auto& [index, key] : rows.own_keys) {
    if (key.lost.empty() || rows.origin == format.name || rows.is_gone(index)) continue;
    rows.leave_out(index,
                   fmt::format("{}: {} has no place for operands that are not dense", key.lost, format.name));
  }
  GEMMTUNE_TRY(auto text, format.write(rows, options));
  // A file of the same format had no more columns.
  if (rows.origin != format.name) LostColumns(format, rows).name(rows);
  for (const CarriedPart& part : rows.parts) {
    if (part.taken) continue;
    rows.left_out.push_back(
        {LeftOutKind::key, part.key, part.line, 1, fmt::format("{} has no place for it", format.name)});
  }
  return text;
}

}  // namespace gemmtune
