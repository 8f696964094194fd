// FlashInfer's cache among the formats, and the listing of any format.
#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "formats/conversion.h"
#include "formats/diagnostics.h"
#include "formats/flashinfer/flashinfer_cache.h"

namespace gemmtune {

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
  for (const std::string& diagnostic : cache.diagnostics) {
    const auto [line, why] = split_diagnostic(diagnostic, source);
    rows.leave_out_line(line, why);
  }
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
