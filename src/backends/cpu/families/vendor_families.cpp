// Libraries of others as kernel families. (Thread-sanitizer builds have vendor_families_left_out.cpp
// instead.)
#include <utility>

#include "backends/cpu/families/all_families.h"
#include "backends/cpu/families/onednn/onednn_family.h"
#include "backends/cpu/families/openblas/openblas_family.h"

namespace gemmtune::cpu {

void add_vendor_families(const FamilyRequest& request, FamilyList& list) {
  const auto threads = static_cast<int>(request.cores.size());
  if (auto onednn = OnednnLibrary::load(request.module_folder, request.cap); onednn.ok()) {
    list.libraries.push_back({"oneDNN", (*onednn)->version(), "", (*onednn)->path()});
    auto family = std::make_unique<OnednnFamily>(std::move(*onednn), threads);
    list.onednn = family.get();
    list.families.push_back(std::move(family));
  } else {
    list.libraries.push_back({"oneDNN", "", onednn.message(), ""});
  }
  if (auto openblas = OpenblasLibrary::load(request.cores, request.cap); openblas.ok()) {
    list.libraries.push_back({"OpenBLAS", (*openblas)->version(), "", (*openblas)->path()});
    list.families.push_back(std::make_unique<OpenblasFamily>(std::move(*openblas), threads));
  } else {
    list.libraries.push_back({"OpenBLAS", "", openblas.message(), ""});
  }
}

}  // namespace gemmtune::cpu
