#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/kernel_set.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {
const FamilyEntry& tiled_entry() {
  static const FamilyEntry entry{.info = {.name = "tiled",
                                          .rank = 30,
                                          .aliases = tunable_aliases,
                                          .fallback_rank = 30,
                                          .leads_untuned =
                                              [](const Problem& problem, std::string_view architecture) {
                                                return architecture == gfx_name(Isa::avx512bf16) &&
                                                       problem.m > skinny_panel_rows &&
                                                       panels_lead_unaided(problem, detect_row_reads());
                                              }},
                                 .make = own_family<make_tiled_family>};
  return entry;
}

}  // namespace gemmtune::cpu
