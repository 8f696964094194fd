// Finding: one defect of one row of a tuned file, or of one bucket; the kinds, one row each in finding.cpp.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gemmtune {

enum class FindingKind {
  malformed,
  failed_time,
  over_tolerance,
  impossible_rate,
  wrong_rate,
  duplicate_key,
  mixed_layout,
  dominated,
  unreachable,
  redundant,
  wrong_libtype,
  unknown_kernel,
  stale,
  // Of Triton configs, as are malformed, duplicate_key, unreachable and unknown_kernel.
  missing_bucket,
  unread_key,
  wrong_size,
  // Of vLLM's and SGLang's.
  key_order,
  noise,
  unpaired,
  wrong_key,
  // Of all Triton configs.
  wrong_value,
  other_split,
};
inline constexpr std::size_t finding_kind_count = static_cast<std::size_t>(FindingKind::other_split) + 1;

/// error: ends the program that loads the file, cannot be compiled or launched, or computes wrong results. warning: slow,
/// noisy, or never used. note: redundant, without effect.
enum class Severity { note, warning, error };
std::string_view to_string(Severity severity);
std::optional<Severity> parse_severity(std::string_view text);
/// Of a kind's findings, where a finding does not say its own.
Severity severity_of(FindingKind kind);

std::string_view to_string(FindingKind kind);
std::optional<FindingKind> parse_finding_kind(std::string_view text);
/// What the kind means, in one line.
std::string_view describe(FindingKind kind);
std::span<const FindingKind> all_finding_kinds();

/// A set of kinds.
class FindingKinds {
 public:
  FindingKinds() = default;
  FindingKinds(std::initializer_list<FindingKind> kinds) {
    for (const FindingKind kind : kinds) add(kind);
  }
  static FindingKinds all();
  void add(FindingKind kind) { bits_.set(static_cast<std::size_t>(kind)); }
  bool has(FindingKind kind) const { return bits_.test(static_cast<std::size_t>(kind)); }
  bool empty() const { return bits_.none(); }

 private:
  std::bitset<finding_kind_count> bits_;
};

struct Finding {
  FindingKind kind = FindingKind::malformed;
  std::uint32_t source = 0;  // TunedEntry::source of the row
  std::size_t line = 0;      // 1-based
  std::string text;
  std::optional<Severity> own_severity = {};  // where it is not that of the kind
  Severity severity() const { return own_severity.value_or(severity_of(kind)); }
};

}  // namespace gemmtune
