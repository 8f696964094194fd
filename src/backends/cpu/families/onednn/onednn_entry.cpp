#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/onednn/onednn_family.h"

namespace gemmtune::cpu {

const FamilyEntry& onednn_entry() {
  static const FamilyEntry entry{
      .info = {.name = "onednn",
               .rank = 10,
               .aliases = "hipblaslt,hipblast,torch",
               .vendor = true,
               .fallback_rank = 10},
      .library = "oneDNN",
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        GEMMTUNE_TRY(auto library, OnednnLibrary::load({request.module_folder, request.onednn_folders},
                                                       request.cap, request.bounded_spin));
        MadeFamily made{.version = library->version(), .path = library->path()};
        made.year = onednn_release_year(made.version);
        made.passed_over = library->passed_over();
        auto family = std::make_unique<OnednnFamily>(std::move(library),
                                                     static_cast<int>(request.cores.size()), request.team);
        made.onednn = family.get();
        made.family = std::move(family);
        return made;
      }};
  return entry;
}

}  // namespace gemmtune::cpu
