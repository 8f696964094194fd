#include "backends/cpu/families/all_families.h"

#include <utility>

#include "backends/cpu/families/bound_family.h"
#include "backends/cpu/families/family_entry.h"

namespace gemmtune::cpu {
namespace {

Result<MadeFamily> make(const FamilyEntry& entry, const FamilyRequest& request) {
#ifdef GEMMTUNE_NO_VENDOR_LIBRARIES
  // Libraries that are not built with the sanitizer would only give false alarms.
  if (!entry.library.empty()) return Status::not_found("left out of this build (thread sanitizer)");
#endif
  return entry.make(request);
}

void add_vendor_family(const FamilyEntry& entry, const FamilyRequest& request, FamilyList& list) {
  auto made = make(entry, request);
  Library library;
  library.name = entry.library;
  if (made.ok()) {
    library.version = made->version;
    library.year = made->year;
    library.path = made->path;
    library.passed_over = made->passed_over;
    if (made->onednn != nullptr) list.onednn = made->onednn;
    list.families.push_back(std::move(made->family));
  } else {
    library.why = made.message();
  }
  list.libraries.push_back(std::move(library));
}

}  // namespace

void add_vendor_families(const FamilyRequest& request, FamilyList& list) {
  for (const FamilyEntry* entry : family_entries()) {
    if (!entry->library.empty()) add_vendor_family(*entry, request, list);
  }
}

FamilyList make_families(FamilyRequest request, ThreadTeam& team) {
  request.team = &team;
  FamilyList list;
  add_vendor_families(request, list);
  for (const FamilyEntry* entry : family_entries()) {
    if (!entry->library.empty()) continue;
    auto made = make(*entry, request);
    if (made.ok()) list.families.push_back(bind_family(std::move(made->family), team));
  }
  return list;
}

}  // namespace gemmtune::cpu
