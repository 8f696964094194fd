#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/openblas/openblas_family.h"

namespace gemmtune::cpu {

const FamilyEntry& openblas_entry() {
  static const FamilyEntry entry{
      .info = {.name = "openblas", .rank = 20, .aliases = "torch", .vendor = true},
      .library = "OpenBLAS",
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        GEMMTUNE_TRY(auto library, OpenblasLibrary::load(request.cores, request.cap, request.bounded_spin));
        MadeFamily made{.version = library->version(), .path = library->path()};
        made.family =
            std::make_unique<OpenblasFamily>(std::move(library), static_cast<int>(request.cores.size()));
        return made;
      }};
  return entry;
}

}  // namespace gemmtune::cpu
