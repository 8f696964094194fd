#include "tuned/entry.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace gemmtune {
namespace {

struct Row {
  Verdict verdict;
  std::string_view name;
};

constexpr std::array<Row, 8> rows{{
    {Verdict::none, ""},
    {Verdict::win, "win"},
    {Verdict::keep_default, "default"},
    {Verdict::undecided, "undecided"},
    {Verdict::only, "only"},
    {Verdict::default_wrong, "default_wrong"},
    {Verdict::energy, "energy"},
    {Verdict::default_untimed, "default_untimed"},
}};

constexpr auto verdicts = [] {
  std::array<Verdict, rows.size()> all{};
  for (std::size_t i = 0; i < rows.size(); ++i) all[i] = rows[i].verdict;
  return all;
}();

}  // namespace

std::span<const Verdict> all_verdicts() { return verdicts; }

std::string_view to_string(Verdict verdict) { return rows[static_cast<std::size_t>(verdict)].name; }

std::optional<Verdict> parse_verdict(std::string_view text) {
  for (const Row& row : rows) {
    if (row.name == text) return row.verdict;
  }
  return std::nullopt;
}

bool valid_time(double us) { return std::isfinite(us) && us > 0; }

std::string row_time_text(double us) { return std::isnan(us) ? "no time" : fmt::format("{} µs", us); }

bool is_of_look_up(const TunedEntry& entry) {
  if (!entry.other_key.empty()) return false;
  if (entry.stages != nullptr && entry.stages->tag == unused_tag) return false;
  return entry.problem.m >= 1 && entry.problem.m <= max_dimension;
}

bool amd_architecture(std::string_view gfx) { return gfx.starts_with("gfx"); }

bool cpu_architecture(std::string_view gfx) { return gfx.starts_with("x86-"); }

std::string_view gfx_of_cu_num(int cu_num) {
  if (cu_num == 256) return "gfx950";
  return cu_num == 80 || cu_num == 304 ? "gfx942" : "";
}

std::string_view table_gfx(const TunedEntry& entry) {
  if (!entry.gfx.empty() || !is_mixture(entry.problem)) return entry.gfx;
  return gfx_of_cu_num(entry.cu_num);
}

const std::string* find_carried(const TunedEntry& entry, std::string_view column) {
  if (entry.carried == nullptr) return nullptr;
  for (const CarriedCell& cell : *entry.carried) {
    if (cell.column == column) return &cell.text;
  }
  return nullptr;
}

bool same_winner(const TunedEntry& a, const TunedEntry& b) {
  if (a.libtype != b.libtype || a.kernel_name != b.kernel_name) return false;
  if (a.split_k != b.split_k || a.solidx != b.solidx) return false;
  const MoeStages* first = a.stages.get();
  const MoeStages* second = b.stages.get();
  if (first == nullptr || second == nullptr) return first == second;
  return first->block_m == second->block_m && first->kernel_name2 == second->kernel_name2 &&
         first->run_1stage == second->run_1stage && first->xbf16 == second->xbf16 &&
         first->flat == second->flat;
}

}  // namespace gemmtune
