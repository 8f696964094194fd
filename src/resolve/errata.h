// Errata of this process: which kernels of a device's libraries are known to be wrong. They decide what is
// offered (candidate_list.h) and what is bound (bind.h), never what can be built and verified.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "backends/default_kernels.h"
#include "base/status.h"
#include "candidates/erratum.h"

namespace gemmtune {

struct ErratumText {
  std::string_view source;
  std::string_view text;
};

/// The files of errata/, as the build found them.
std::span<const ErratumText> shipped_errata();

struct KnownErrata {
  std::vector<Erratum> errata;
  Status status;  // of the user's files; not ok: `errata` holds the shipped ones alone
};

/// The shipped errata and those of `place`, a file or a folder of *.json files; one of the same name replaces
/// a shipped one. "none": none at all. Empty: the shipped ones.
KnownErrata load_errata(const std::string& place);

/// load_errata() of GEMMTUNE_ERRATA, read once.
const KnownErrata& known_errata();

/// The errata that cover one device and its libraries.
class DeviceErrata {
 public:
  explicit DeviceErrata(const DeviceInfo& device, const KnownErrata& known = known_errata());

  bool empty() const { return list_.empty(); }
  std::vector<const Erratum*> list() const { return list_; }
  /// The first erratum that this kernel has for the problem; null for none.
  const Erratum* find(const Problem& problem, const Candidate& candidate) const;

 private:
  std::string architecture_;
  std::vector<const Erratum*> list_;
};

/// ok, or `unsupported`: the kernel's name and its erratum.
Status check_errata(const Device& device, const Problem& problem, const Candidate& candidate);

/// default_kernel(), or `unsupported` if it has an erratum.
Result<Candidate> usable_default(const Device& device, const Problem& problem, AccuracyPolicy policy);

/// What runs if no row does: the device's fallback, unless it has an erratum; then the first kernel without
/// one of the families that may be a fallback, a family's default before the others of its space. `allowed`:
/// what else must hold of the kernel.
struct Fallback {
  Candidate candidate;
  std::string passed;  // "KERNEL: erratum …" of the device's own fallback if it has one, else empty
};
Result<Fallback> usable_fallback(const Device& device, const Problem& problem,
                                 const KernelFilter& allowed = {});

}  // namespace gemmtune
