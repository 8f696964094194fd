#include "tuned/finding.h"

#include <array>

namespace gemmtune {
namespace {

struct FindingText {
  FindingKind kind;
  Severity severity;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array<FindingText, finding_kind_count> finding_texts{{
    {FindingKind::malformed, Severity::error, "malformed", "a row or a cell that cannot be read"},
    {FindingKind::failed_time, Severity::warning, "failed_time",
     "a time at or below 0, or not finite: never chosen"},
    {FindingKind::over_tolerance, Severity::warning, "over_tolerance",
     "a stored error above the limit: never chosen above 0.05 (fused MoE 0.1)"},
    {FindingKind::impossible_rate, Severity::warning, "impossible_rate",
     "faster than the device can compute: never chosen"},
    {FindingKind::wrong_rate, Severity::note, "wrong_rate",
     "tflops or bw are not what the row's own time gives"},
    {FindingKind::duplicate_key, Severity::error, "duplicate_key", "another row of the same key is chosen"},
    {FindingKind::mixed_layout, Severity::warning, "mixed_layout",
     "wants another packed weight than its group's other rows"},
    {FindingKind::dominated, Severity::warning, "dominated", "a row with a larger M is faster"},
    {FindingKind::unreachable, Severity::warning, "unreachable", "no request can look this row up"},
    {FindingKind::redundant, Severity::note, "redundant", "no look-up changes without it"},
    {FindingKind::wrong_libtype, Severity::warning, "wrong_libtype",
     "the libtype is not that of the kernel's name"},
    {FindingKind::unknown_kernel, Severity::warning, "unknown_kernel",
     "the kernel's name does not resolve on this device"},
    {FindingKind::stale, Severity::note, "stale",
     "measured on another device model or library, or in an environment that no .env.json beside the file "
     "describes"},
    {FindingKind::missing_bucket, Severity::warning, "missing_bucket",
     "M that no bucket of a Triton config answers"},
    {FindingKind::unread_key, Severity::warning, "unread_key", "a key that no look-up or no kernel reads"},
    {FindingKind::wrong_size, Severity::error, "wrong_size",
     "a bucket that does not fit the N and K of its file's name"},
    {FindingKind::key_order, Severity::note, "key_order",
     "keys of M that do not ascend: of two that are as near the first counts"},
    {FindingKind::noise, Severity::warning, "noise", "winners that differ in a parameter without effect"},
    {FindingKind::unpaired, Severity::error, "unpaired",
     "BLOCK_SIZE_M of a _down file is not that of the file beside it"},
    {FindingKind::wrong_key, Severity::error, "wrong_key",
     "a key that ends the program which loads the file"},
    {FindingKind::wrong_value, Severity::error, "wrong_value",
     "a parameter that no kernel can be compiled or launched with"},
    {FindingKind::other_split, Severity::warning, "other_split",
     "a bucket that is launched with another split or block of K than it says"},
}};

constexpr std::array<FindingKind, finding_kind_count> kinds = [] {
  std::array<FindingKind, finding_kind_count> all{};
  for (std::size_t index = 0; index < finding_texts.size(); ++index) all[index] = finding_texts[index].kind;
  return all;
}();

}  // namespace

std::string_view to_string(FindingKind kind) { return finding_texts[static_cast<std::size_t>(kind)].name; }
std::string_view describe(FindingKind kind) { return finding_texts[static_cast<std::size_t>(kind)].meaning; }
std::span<const FindingKind> all_finding_kinds() { return kinds; }
Severity severity_of(FindingKind kind) { return finding_texts[static_cast<std::size_t>(kind)].severity; }

namespace {

constexpr std::array<std::string_view, 3> severity_names{"note", "warning", "error"};

}  // namespace

std::string_view to_string(Severity severity) { return severity_names[static_cast<std::size_t>(severity)]; }

std::optional<Severity> parse_severity(std::string_view text) {
  for (std::size_t index = 0; index < severity_names.size(); ++index)
    if (severity_names[index] == text) return static_cast<Severity>(index);
  return std::nullopt;
}

std::optional<FindingKind> parse_finding_kind(std::string_view text) {
  for (const FindingText& row : finding_texts) {
    if (row.name == text) return row.kind;
  }
  return std::nullopt;
}

FindingKinds FindingKinds::all() {
  FindingKinds all;
  for (const FindingKind kind : kinds) all.add(kind);
  return all;
}

}  // namespace gemmtune
