#include "formats/all_formats.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "formats/csv/columns.h"
#include "formats/csv/csv.h"

namespace gemmtune {
namespace {

constexpr std::array<Format, 8> formats{{
    {"aiter", "AITER's tuned CSV with today's header, gemmtune's columns behind", "*_tuned_*.csv",
     read_aiter_rows, write_aiter_rows},
    {"seed", "the same without the column gfx: rows of AMD devices", "*_tuned_*.csv", read_aiter_rows,
     write_seed_rows},
    {"untuned", "AITER's untuned CSV: sizes and types", "*_untuned_*.csv", read_untuned_rows,
     write_untuned_rows},
    {"triton_json", "AITER's Triton configs by buckets of M, one (N, K) a file; no times", "*.json",
     read_triton_rows, write_triton_rows},
    {"tune_gemm_yaml_v2", "tune_gemm's results as version 2 prints them", "*.yaml", read_tune_gemm_rows,
     write_tune_gemm_v2_rows},
    {"tune_gemm_yaml", "tune_gemm's results as version 3.4 prints them, with orders", "*.yaml",
     read_tune_gemm_rows, write_tune_gemm_rows},
    {"tune_gemm_sizes", "tune_gemm's list of sizes", "*.yaml", read_tune_gemm_rows, write_tune_gemm_sizes},
    {"hipblaslt_csv", "hipBLASLt's online tuning table; no times, no device", "hip_online_tuning_res.csv",
     read_hipblaslt_rows, write_hipblaslt_rows},
}};

const Format& format_named(std::string_view name) {
  for (const Format& format : formats) {
    if (format.name == name) return format;
  }
  return formats.front();
}

/// By the header: algo_index is hipBLASLt's, a time a tuned file's.
const Format& csv_format(std::string_view content) {
  for (const std::string_view line : split(content, '\n')) {
    if (is_blank_or_comment(line)) continue;
    CsvCells header;
    if (!header.split(without_mark(line))) break;
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
  return format_named("untuned");
}

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

Result<const Format*> detect_format(const std::string& source, std::string_view content) {
  std::string_view first;
  for (const std::string_view line : split(without_mark(content), '\n')) {
    if (is_blank_or_comment(line)) continue;
    first = trim(line);
    break;
  }
  const bool csv = ends_in(source, ".csv");
  if (ends_in(source, ".json") || (!csv && first.starts_with('{'))) return &format_named("triton_json");
  const bool yaml = ends_in(source, ".yaml") || ends_in(source, ".yml");
  if (yaml || (!csv && (first.starts_with('-') || first.starts_with('[')))) {
    return &format_named("tune_gemm_yaml");
  }
  return &csv_format(content);
}

void leave_out(ConversionRows& rows, const TunedEntry& entry, std::string_view why) {
  rows.left_out.push_back(fmt::format("{}:{}: {}", rows.source, entry.line, why));
}

Status require_types(const ConversionRows& rows) {
  if (rows.has_types) return {};
  return Status::invalid("{}: says no types; give --indtype (and --outdtype)", rows.source);
}

}  // namespace gemmtune
