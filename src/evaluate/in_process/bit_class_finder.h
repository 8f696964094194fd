// Finds the bit class of kernels: runs them with the same rows at other places, beside other rows and at other M.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
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

  /// Called with a candidate's index before its code runs.
  using BeforeRun = std::function<void(std::size_t)>;

  /// One a candidate. Sums are seen in float32 if the family takes a y of that type, and in y's own type in any case. A
  /// kernel is run at the problem's M, at M = 1 and at the M beside it, as far as its family takes them.
  std::vector<BitClass> classes_of(std::span<const Candidate> candidates, const BeforeRun& before_run);

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
  struct Subject;

  BitClassFinder(Device& device, const Problem& problem) : device_(&device), problem_(problem) {}
  /// For all M and types of y.
  void compile_ahead(std::span<const Candidate> candidates);
  /// Runs the subjects side by side, at one M and with one type of y. Each one's `difference` is an error if it cannot be
  /// built or run; a text: what differs.
  void add_runs(std::span<Subject* const> subjects, const Problem& problem, bool all_placements,
                const BeforeRun& before_run);
  Result<std::string> add_run(Subject& subject, const Rows& rows, const Problem& problem,
                              const RowPlacement& placement, int set);
  Result<Rows> place(const Problem& problem, const RowPlacement& placement, const Set& set) const;

  Device* device_;
  Problem problem_;
  std::vector<Set> sets_;
};

/// A candidate, and its outcome of full verification.
struct VerifiedCandidate {
  const Candidate* candidate = nullptr;
  Outcome* outcome = nullptr;
};

/// Why a kernel is of no class, whatever its runs show; empty: they decide. A mixture's must promise its order of sums: the other tokens
/// decide how many rows an expert has, and so which loops a token's sums go through, in more ways than runs can try.
std::string refuse_bit_class(const KernelFamily& family, const Problem& problem, const Config& config);

/// Sets the bit class of outcomes that are `ok`: none if it is refused, if runs on the same data differed, or if a finder cannot be made.
void find_bit_classes(Device& device, const Problem& problem, std::uint64_t seed, int threads,
                      std::span<const VerifiedCandidate> verified,
                      const BitClassFinder::BeforeRun& before_run);

}  // namespace gemmtune
