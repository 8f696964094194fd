// The kernel families of a CPU device, one list.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/machine/isa.h"
#include "backends/cpu/threads/thread_team.h"

namespace gemmtune::cpu {

struct FamilyRequest {
  Isa isa = Isa::scalar;
  std::optional<Isa> cap;  // asked for by the user: vendor libraries are held to it too
  CoreList cores;          // one thread a core
  std::string module_folder;
  std::vector<std::string> onednn_folders = {};  // of libdnnl.so.3
  bool bounded_spin = false;                     // for dispatch: BoundedOpenmpSpin
  /// That runs kernels of libraries too, if it can; null: families are only described.
  const ThreadTeam* team = nullptr;
};

/// What a device asks of oneDNN beside its kernels. The problem's M does not matter. Errors: `unsupported`
/// with oneDNN's reason.
class OnednnServices {
 public:
  virtual ~OnednnServices() = default;
  virtual Result<std::size_t> packed_bytes(const Problem& problem) const = 0;
  virtual Status pack(const Problem& problem, const void* plain, void* packed) const = 0;
  virtual Status unpack(const Problem& problem, const void* packed, void* plain) const = 0;
  /// Puts the workers of the calling thread's OpenMP team on a core each; the caller is left alone.
  virtual void pin_team(const CoreList& cores) const = 0;
};

struct FamilyList {
  std::vector<std::unique_ptr<KernelFamily>> families;  // vendors first, `reference` last
  std::vector<Library> libraries;                       // found or not
  const OnednnServices* onednn = nullptr;               // lives in families; null where it is missing
};

/// Makes every family that this machine has. `team`, the request's too, must outlive the list and all kernels.
FamilyList make_families(FamilyRequest request, ThreadTeam& team);

/// Adds the families of libraries of others, and says of each library what was found.
void add_vendor_families(const FamilyRequest& request, FamilyList& list);

}  // namespace gemmtune::cpu
