// Finds the bit class of kernels: runs them with the same rows at other places, beside other rows and at other M.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "candidates/config.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "verify/bit_rows.h"

namespace gemmtune {

/// Of one problem; its operands are those of every other M of the weight. Not for several threads at once. The device
/// must outlive it.
class BitClassFinder {
 public:
  /// Allocates the weights. `out_of_memory`; `unsupported` without test data.
  static Result<BitClassFinder> make(Device& device, const Problem& problem, std::uint64_t seed, int threads);

  /// Sums are seen in float32 if the family takes a y of that type, and in y's own type in any case. The kernel is run at
  /// the problem's M, at M = 1 and at the M beside it, as far as its family takes them. `before_run` is called before a
  /// kernel's code runs.
  BitClass class_of(const Candidate& candidate, const std::function<void()>& before_run);

  /// Where two kernels of the weight, each at its M, give a row other bits; empty if nowhere. An error if one of them cannot
  /// run.
  Result<std::string> difference(const Candidate& first, std::int64_t first_m, const Candidate& second,
                                 std::int64_t second_m);

 private:
  struct Set {
    HostOperands rows;  // x and what belongs to it
    std::unique_ptr<DeviceOperands> weights;
  };
  struct Rows;

  BitClassFinder(Device& device, const Problem& problem) : device_(&device), problem_(problem) {}
  /// An error: the kernel cannot be built or run. A text: what differs.
  Result<std::string> add_runs(const Candidate& candidate, const Problem& problem, bool all_placements,
                               BitClassBuilder& builder, const std::function<void()>& before_run);
  Result<std::string> add_run(const Kernel& kernel, const Problem& problem, const RowPlacement& placement,
                              int set, BitClassBuilder& builder);
  Status place(Rows& rows, const Problem& problem, const RowPlacement& placement, const Set& set) const;

  Device* device_;
  Problem problem_;
  std::vector<Set> sets_;
};

/// What a kernel that passed verification has as its bit class: none if the finder could not be made, or if its runs on the
/// same data differed.
BitClass bit_class_of(Result<BitClassFinder>& finder, const Candidate& candidate, bool is_deterministic,
                      const std::function<void()>& before_run);

}  // namespace gemmtune
