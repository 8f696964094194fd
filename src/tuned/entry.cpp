#include "tuned/entry.h"

#include <array>
#include <cmath>

namespace gemmtune {
namespace {

struct Row {
  Verdict verdict;
  std::string_view name;
};

constexpr std::array<Row, 6> rows{{
    {Verdict::none, ""},
    {Verdict::win, "win"},
    {Verdict::tie, "tie"},
    {Verdict::keep_default, "default"},
    {Verdict::undecided, "undecided"},
    {Verdict::only, "only"},
}};

}  // namespace

std::string_view to_string(Verdict verdict) { return rows[static_cast<std::size_t>(verdict)].name; }

std::optional<Verdict> parse_verdict(std::string_view text) {
  for (const Row& row : rows) {
    if (row.name == text) return row.verdict;
  }
  return std::nullopt;
}

bool valid_time(double us) { return std::isfinite(us) && us > 0; }

bool is_of_look_up(const TunedEntry& entry) {
  if (!entry.other_key.empty()) return false;
  if (entry.stages != nullptr && entry.stages->tag == "flydsl_fallback") return false;
  return entry.problem.m >= 1 && entry.problem.m <= max_dimension;
}

bool amd_architecture(std::string_view gfx) { return gfx.starts_with("gfx"); }

}  // namespace gemmtune
