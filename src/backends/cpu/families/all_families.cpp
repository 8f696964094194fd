#include "backends/cpu/families/all_families.h"

#include <utility>

#include "backends/cpu/families/bound_family.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

FamilyList make_families(const FamilyRequest& request, Executor& executor) {
  FamilyList list;
  add_vendor_families(request, list);
  const auto threads = static_cast<int>(request.cores.size());
  const auto add = [&](std::unique_ptr<KernelFamily> family) {
    list.families.push_back(bind_family(std::move(family), executor));
  };
  add(make_tiled_family(request.isa, threads));
  add(make_skinny_family(request.isa, threads));
  add(make_quantized_family(request.isa, threads));
  add(make_streaming_family(request.isa, threads));
  add(make_batched_family(request.isa, threads));
  add(make_moe_family(request.isa, threads));
  add(make_reference_family(request.isa));
  return list;
}

}  // namespace gemmtune::cpu
