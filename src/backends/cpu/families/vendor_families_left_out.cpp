// For thread-sanitizer builds: libraries that are not built with the sanitizer would only give false alarms.
#include "backends/cpu/families/all_families.h"

namespace gemmtune::cpu {

void add_vendor_families(const FamilyRequest&, FamilyList& list) {
  for (const char* name : {"oneDNN", "OpenBLAS"}) {
    list.libraries.push_back({name, "", "left out of this build (thread sanitizer)", ""});
  }
}

}  // namespace gemmtune::cpu
