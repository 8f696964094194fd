#include "tuned/finding.h"

#include <array>

namespace gemmtune {
namespace {

struct FindingText {
  FindingKind kind;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array<FindingText, finding_kind_count> finding_texts{{
    {FindingKind::malformed, "malformed", "a row or a cell that cannot be read"},
    {FindingKind::failed_time, "failed_time", "a time at or below 0, or not finite: never chosen"},
    {FindingKind::over_tolerance, "over_tolerance",
     "a stored error above the limit: never chosen above 0.05 (fused MoE 0.1)"},
    {FindingKind::impossible_rate, "impossible_rate", "faster than the device can compute: never chosen"},
    {FindingKind::wrong_rate, "wrong_rate", "tflops or bw are not what the row's own time gives"},
    {FindingKind::duplicate_key, "duplicate_key", "another row of the same key is chosen"},
    {FindingKind::mixed_layout, "mixed_layout", "wants another packed weight than its group's other rows"},
    {FindingKind::dominated, "dominated", "a row with a larger M is faster"},
    {FindingKind::unreachable, "unreachable", "no request can look this row up"},
    {FindingKind::redundant, "redundant", "no look-up changes without it"},
    {FindingKind::wrong_libtype, "wrong_libtype", "the libtype is not that of the kernel's name"},
    {FindingKind::unknown_kernel, "unknown_kernel", "the kernel's name does not resolve on this device"},
    {FindingKind::stale, "stale", "measured on another device model or library than this machine's"},
    {FindingKind::missing_bucket, "missing_bucket", "M that no bucket of a Triton config answers"},
    {FindingKind::unread_key, "unread_key", "a key that no look-up or no kernel reads"},
    {FindingKind::wrong_size, "wrong_size", "a bucket that does not fit the N and K of its file's name"},
    {FindingKind::key_order, "key_order",
     "keys of M that do not ascend: of two that are as near the first counts"},
    {FindingKind::noise, "noise", "winners that differ in a parameter without effect"},
    {FindingKind::unpaired, "unpaired", "BLOCK_SIZE_M of a _down file is not that of the file beside it"},
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
