#include <limits>

#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny/skinny.h"
#include "problem/problem.h"

namespace gemmtune::cpu {
namespace {

/// Up to how many rows of x, with AMX tiles (bench/results/xeon_amx/few_rows_untuned.csv, many_rows_untuned.csv and packed_untuned.csv).
std::int64_t rows_led_by_amx(const Problem& problem) {
  if (problem.x_type != DataType::bf16) return 0;
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  // No library reads panels. A weight whose layout is not decided gets it for every M: where k is short, oneDNN is ahead with many rows.
  if (problem.weight_layout == WeightLayout::panel16 || problem.k > 512) return any;
  return is_packed(problem) ? 0 : skinny_max_m;
}

/// Up to how many rows of x, with AVX-512 BF16 and plain weights.
std::int64_t rows_led(const Problem& problem, RowReads row_reads) {
  const bool in_turn = row_reads == RowReads::in_turn;
  switch (problem.x_type) {
    case DataType::bf16:
      return row_reads == RowReads::side_by_side ? 2 : 16;
    case DataType::f16:
      // Against `tiled`, which is faster where k is short. No library takes fp16 there.
      return in_turn && problem.k > 512 ? 16 : 0;
    case DataType::f32:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

bool skinny_leads_untuned(const Problem& problem, std::string_view architecture, RowReads row_reads) {
  if (problem.operation != Operation::a16w16 || problem.y_type != problem.x_type) return false;
  if (architecture == gfx_name(Isa::amx)) return problem.m <= rows_led_by_amx(problem);
  if (architecture != gfx_name(Isa::avx512bf16)) return false;
  if (is_packed(problem)) return panels_lead_unaided(problem, row_reads) && problem.m <= skinny_panel_rows;
  return problem.m <= rows_led(problem, row_reads);
}

const FamilyEntry& skinny_entry() {
  static const FamilyEntry entry{.info = {.name = "skinny",
                                          .rank = 40,
                                          .aliases = tunable_aliases,
                                          .fallback_rank = 40,
                                          .few_rows_rank = 20,
                                          .leads_untuned =
                                              [](const Problem& problem, std::string_view architecture) {
                                                return skinny_leads_untuned(problem, architecture,
                                                                            detect_row_reads());
                                              }},
                                 .make = own_family<make_skinny_family>};
  return entry;
}

}  // namespace gemmtune::cpu
