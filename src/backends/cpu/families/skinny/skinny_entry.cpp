#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"
#include "problem/problem.h"

namespace gemmtune::cpu {
namespace {

/// Where bench/results/epyc_zen4/few_rows.csv has the default config ahead of oneDNN at each of its 20 (N, K): by 1.12 at least. Four rows of x
/// are ahead in the mean and not everywhere; other instruction sets were not measured.
bool leads_untuned(const Problem& problem, std::string_view architecture) {
  if (architecture != gfx_name(Isa::avx512bf16) || problem.operation != Operation::a16w16) return false;
  if (is_packed(problem) || problem.y_type != problem.x_type) return false;
  const std::int64_t rows = problem.x_type == DataType::bf16 ? 2 : problem.x_type == DataType::f32 ? 1 : 0;
  return problem.m <= rows;
}

}  // namespace

const FamilyEntry& skinny_entry() {
  static const FamilyEntry entry{
      .info = {.name = "skinny",
               .rank = 40,
               .aliases = tunable_aliases,
               .fallback_rank = 40,
               .few_rows_rank = 20,
               .leads_untuned = leads_untuned},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_skinny_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
