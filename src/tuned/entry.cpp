#include "tuned/entry.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace gemmtune {
namespace {

struct Row {
  Verdict verdict;
  std::string_view name;
  std::string_view meaning;
};

constexpr std::array<Row, 8> verdict_rows{{
    {Verdict::none, "", "The row was not compared with a default kernel."},
    {Verdict::win, "win",
     "The kernel is faster than the default: a paired test on fresh rounds passed, with an error of at most "
     "1 "
     "%. If others are as fast, a fixed order decides: vendor library, plainer config, fewer resources, "
     "name."},
    {Verdict::keep_default, "default",
     "Nothing was faster: the row keeps the default kernel. Its speed-up is 1."},
    {Verdict::undecided, "undecided",
     "The rounds ended before a gain was proven. The row keeps the default kernel, unless its weight layout "
     "needs another one."},
    {Verdict::only, "only",
     "There is nothing to compare with: the device has no default kernel for the problem. default_us is "
     "empty."},
    {Verdict::default_wrong, "default_wrong",
     "The default kernel's result is wrong, it crashes or it has an erratum (docs/errata.md). The row has no "
     "speed-up."},
    {Verdict::energy, "energy",
     "Chosen by --objective energy or edp, and not proven faster (docs/energy.md). The speed-up may be below "
     "1."},
    {Verdict::default_untimed, "default_untimed",
     "The default kernel could not be timed: it did not launch, hung, or memory was short. The row has no "
     "speed-up, the exit code is 1, and --all measures it again."},
}};

constexpr auto verdicts = [] {
  std::array<Verdict, verdict_rows.size()> all{};
  for (std::size_t i = 0; i < verdict_rows.size(); ++i) all[i] = verdict_rows[i].verdict;
  return all;
}();

}  // namespace

std::span<const Verdict> all_verdicts() { return verdicts; }

std::string_view to_string(Verdict verdict) { return verdict_rows[static_cast<std::size_t>(verdict)].name; }

std::string_view describe(Verdict verdict) { return verdict_rows[static_cast<std::size_t>(verdict)].meaning; }

std::optional<Verdict> parse_verdict(std::string_view text) {
  for (const Row& row : verdict_rows) {
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
