#include "formats/flashinfer/flashinfer_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "formats/conversion.h"
#include "formats/diagnostics.h"
#include "formats/json.h"

namespace gemmtune {
namespace {

constexpr std::string_view metadata_key = "_metadata";
/// What FlashInfer compares before it takes a file.
constexpr std::string_view metadata_fields[] = {"flashinfer_version", "cuda_version", "cublas_version",
                                                "cudnn_version", "gpu"};

/// The first word in quotes of a tuple's text, and what follows its comma.
bool take_word(std::string_view& text, std::string& word) {
  text = trim(text);
  if (text.empty() || (text.front() != '\'' && text.front() != '"')) return false;
  const std::size_t end = text.find(text.front(), 1);
  if (end == std::string_view::npos) return false;
  word = text.substr(1, end - 1);
  text = trim(text.substr(end + 1));
  if (!text.starts_with(',')) return false;
  text.remove_prefix(1);
  return true;
}

/// "('fp4_gemm', 'CudnnFp4GemmRunner', ((4, 7168), (7168, 4608)))"
bool parse_key(std::string_view key, FlashinferEntry& entry) {
  std::string runner;
  if (!key.starts_with('(') || !key.ends_with(')')) return false;
  key = key.substr(1, key.size() - 2);
  if (!take_word(key, entry.operation) || !take_word(key, runner)) return false;
  key = trim(key);
  if (!key.starts_with('(') || !key.ends_with(')')) return false;
  entry.shapes = trim(key.substr(1, key.size() - 2));
  return true;
}

/// Of a key as it stands in the file; 0: it is written in another way.
std::size_t line_of(std::string_view content, const std::string& key) {
  const std::size_t at = content.find(json_ascii_string(key));
  if (at == std::string_view::npos) return 0;
  return 1 + static_cast<std::size_t>(
                 std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

void read_metadata(const std::string& content, const Json& json, FlashinferCache& cache, Diagnostics& notes) {
  const auto found = json.find(metadata_key);
  const std::size_t line = line_of(content, std::string(metadata_key));
  if (found == json.end() || !found->is_object()) {
    notes.row(line, "no _metadata: FlashInfer cannot see that another machine or version made it");
    return;
  }
  for (const std::string_view field : metadata_fields) {
    const auto value = found->find(field);
    if (value == found->end()) {
      notes.row(line, fmt::format("_metadata says no {}", field));
      continue;
    }
    const std::string text = value->is_string() ? value->get<std::string>() : json_line(*value);
    if (text == "*" || text == "unknown")
      notes.row(line, fmt::format("{} is '{}': it is not checked", field, text));
    cache.metadata.emplace_back(field, text);
  }
}

}  // namespace

bool is_flashinfer(std::string_view content) {
  const std::size_t key = content.find_first_not_of(" \t\r\n{");
  if (key == std::string_view::npos) return false;
  const std::string_view first = content.substr(key);
  if (first.starts_with("\"('") || first.starts_with("\"(\\\"")) return true;
  const std::size_t field = first.find("flashinfer_version");
  return first.starts_with("\"_metadata\"") && field != std::string_view::npos;
}

Result<FlashinferCache> parse_flashinfer_cache(const std::string& source, const std::string& content) {
  GEMMTUNE_TRY(const auto json, parse_json_object(source, content));
  FlashinferCache cache;
  Diagnostics diagnostics(source);
  Diagnostics notes(source);
  read_metadata(content, json, cache, notes);
  cache.notes = notes.take();
  for (const auto& [key, value] : json.items()) {
    if (key == metadata_key) continue;
    FlashinferEntry entry;
    entry.line = line_of(content, key);
    if (!parse_key(key, entry)) {
      diagnostics.row(entry.line,
                      fmt::format("key '{}', expected ('operation', 'runner', (shapes))", key.substr(0, 80)));
    } else if (!value.is_array() || value.size() != 2 || !value[0].is_string()) {
      diagnostics.row(entry.line,
                      fmt::format("value '{}', expected [runner, tactic]", json_line(value).substr(0, 80)));
    } else {
      entry.runner = value[0].get<std::string>();
      entry.tactic = json_line(value[1]);
      cache.entries.push_back(std::move(entry));
    }
  }
  std::ranges::stable_sort(
      cache.entries, [](const FlashinferEntry& a, const FlashinferEntry& b) { return a.line < b.line; });
  cache.diagnostics = diagnostics.take();
  return cache;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): as every format's
Result<ConversionRows> read_flashinfer_rows(const std::string& source, std::string content,
                                            const ConversionOptions& /*options*/) {
  GEMMTUNE_TRY(auto cache, parse_flashinfer_cache(source, content));
  ConversionRows rows;
  rows.source = source;
  rows.origin = "flashinfer";
  rows.missing =
      "tactics of FlashInfer are indices of one version of a library on one GPU, and its shapes say no "
      "types; gemmtune convert --to listing prints them";
  rows.notes = std::move(cache.notes);
  rows.leave_out_lines(cache.diagnostics);
  for (auto& [field, value] : cache.metadata)
    rows.parts.push_back({"_metadata " + field, std::move(value), 0});
  for (const FlashinferEntry& entry : cache.entries) {
    rows.parts.push_back({fmt::format("{} {}", entry.operation, entry.shapes),
                          fmt::format("{}, tactic {}", entry.runner, entry.tactic), entry.line});
  }
  return rows;
}

Result<std::string> write_listing(ConversionRows& rows, const ConversionOptions& /*options*/) {
  std::string text;
  // For people: names of the file may hold what a terminal would take for commands.
  const auto add = [&](std::size_t line, const std::string& what) {
    const std::string shown = printable_word(what);
    text += line == 0 ? fmt::format("{}\n", shown) : fmt::format("{}: {}\n", line, shown);
  };
  for (CarriedPart& part : rows.parts) {
    add(part.line, part.text.empty() ? part.key : fmt::format("{}: {}", part.key, part.text));
    part.taken = true;
  }
  for (std::size_t index = 0; index < rows.entries.size(); ++index) {
    if (rows.is_gone(index)) continue;
    const TunedEntry& entry = rows.entries[index];
    std::string what = rows.missing.empty() ? print(entry.problem) : fmt::format("m={}", entry.problem.m);
    if (!entry.gfx.empty()) what = fmt::format("{} {}: {}", entry.gfx, entry.cu_num, what);
    if (!entry.libtype.empty()) what += fmt::format(": {} {}", entry.libtype, entry.kernel_name);
    if (valid_time(entry.us)) what += fmt::format(", {:.4g} us", entry.us);
    add(entry.line, what);
  }
  return text;
}

}  // namespace gemmtune
