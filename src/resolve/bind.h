// From a tuned row, a kernel name or the device's fallback to a kernel that runs a problem: the one place
// where that is decided. Dispatch runs what is bound here; bench, check, lookup and online tuning follow the
// same rules.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "base/status.h"
#include "tuned/entry.h"

namespace gemmtune {

/// Why a row or a kernel name does not run a problem.
enum class Refusal {
  other_device,       // the row was measured on another device
  triton_only,        // a bucket of a Triton config without a kernel of gemmtune
  other_environment,  // the row was measured in another environment, and the rules are strict
  unknown_kernel,  // no family, revision or config of this name here, or the family does not take the problem
  dependent_launch,  // a programmatic dependent launch, which the rules do not allow
  weight_layout,     // the kernel reads another layout than the weight has
  erratum,           // the kernel is known to be wrong for the problem
  accuracy,          // the kernel's sums are of a lower class than the row says
  bit_class,         // nothing says that the kernel is of the row's bit class at this M too
  build,             // the family could not build the kernel
};

/// What a caller allows a row to be.
struct BindRules {
  bool strict_environment = false;  // rows of another environment do not answer
  bool dependent_launches = false;  // a row's pdl_kernelName goes before its kernelName
  bool fewer_threads = false;       // a CPU's row of fewer threads is one of this device
  // No row of another M (is_of_another_m()), none that keeps_callers_kernel(), no fallback where no row answers.
  bool measured_only = false;
  bool invariant_only = false;  // only rows with a bit class answer
};

struct BoundKernel {
  Candidate candidate;
  std::unique_ptr<Kernel> kernel;
  std::string passed = {};  // of a fallback, Fallback::passed, and kernels that could not be built
};

/// A kernel that runs the problem, or why there is none.
struct Binding {
  std::optional<BoundKernel> bound;
  Refusal refusal = Refusal::unknown_kernel;  // if `bound` is empty
  Status status;                              // ok if `bound` is not empty, else the refusal in words
};

/// True if the row was measured on this device, as look-up sees it (table_gfx). Rows without gfx are of AMD
/// devices; rows with types that are not known are of none. A bucket is of every device of its architecture.
bool row_is_of(const TunedEntry& row, const DeviceInfo& device);
/// True if the row is of the same architecture, a CPU's, and of fewer threads.
bool is_of_fewer_threads(const TunedEntry& row, const DeviceInfo& device);
/// row_is_of(): ok, or of which device the row is.
Status check_row_is_of(const TunedEntry& row, const DeviceInfo& device);

/// `unsupported` for a bucket of a Triton config that names no kernel of gemmtune.
Status check_has_kernel(const TunedEntry& row);

/// The kernel of a name, built. `dependent`: a programmatic dependent launch is allowed. A problem whose
/// weight layout is `any` takes a kernel of every layout. May compile and is then slow.
Binding bind_name(const Device& device, std::string_view kernel_name, const Problem& problem,
                  bool dependent = false);

/// The candidate that bind_name() builds, or why it refuses the name before. Builds nothing.
Result<Candidate> resolve_name(const Device& device, std::string_view kernel_name, const Problem& problem,
                               bool dependent = false);

/// The accuracy class of a row: what the row says; if it says nothing, what its kernel has here, fp32 for a
/// kernel that is not known here. Builds nothing.
Accuracy accuracy_of(const Device& device, const TunedEntry& row);

/// `unsupported` if the candidate is of a lower accuracy class than the row says.
Status check_accuracy(const Device& device, const TunedEntry& row, const Candidate& candidate,
                      const Problem& problem);

/// ok at the row's own M, where the class was seen. At another M only if the family promises the same order of sums there:
/// a library may choose another kernel behind the same name.
Status check_bit_class(const Device& device, const TunedEntry& row, const Candidate& candidate,
                       const Problem& problem);

/// The kernel of a row: its programmatic dependent launch if the rules allow one, the row has one and it can
/// run here, else its plain one. A kernel of a lower accuracy class than the row says is refused, and one that
/// check_bit_class() refuses.
/// `other_environment`: what differs between the row's environment and this
/// device; empty for nothing.
Binding bind_row(const Device& device, const TunedEntry& row, std::string_view other_environment,
                 const Problem& problem, BindRules rules);

/// What runs if no row does: usable_fallback(), built; if it is not supported here (it needs more registers than there are), that of the
/// next family.
Result<BoundKernel> bind_fallback(const Device& device, const Problem& problem);

/// The weight layout that the row's plain kernel reads; none if the name is unknown here or takes any layout.
/// Builds nothing.
std::optional<WeightLayout> weight_layout_of(const Device& device, const TunedEntry& row);

}  // namespace gemmtune
