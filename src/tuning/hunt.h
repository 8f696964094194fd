// Looks for problems at which what a user gets without tuning is wrong, and for wrong kernels among all that
// a vendor's library proposes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/deadline.h"
#include "base/random.h"
#include "base/status.h"
#include "candidates/erratum.h"
#include "evaluate/evaluator.h"
#include "problem/problem.h"

namespace gemmtune {

/// True if the kernel fails for the problem as it did before.
using FailsAt = std::function<bool(const Problem& problem)>;

/// A problem at which the kernel fails still, with sizes that cannot be made smaller by the steps that are
/// tried (to 1, by halves, by 64, 8 and 1), without a bias and with row-major operands if it fails so. At most `max_tries` calls.
Problem minimize(const Problem& problem, const FailsAt& fails, int max_tries);

/// The sizes at which the kernel fails, as a condition of an erratum: for m, n and k each `k >= 63`,
/// `k % 2 == 1` and the like if larger sizes fail alike, `k == 63` otherwise, nothing if every size from 1 on
/// fails. A guess from a few sizes (at most 25 calls for each of the three).
std::string failing_sizes(const Problem& minimal, const FailsAt& fails);

struct HuntLimits {
  double max_flops = 0;  // of one problem
  double max_bytes = 0;  // of x, w and y together
};

/// Awkward, deep and small K, one row to thousands, any bias, type, alignment and orders of the operation; sizes
/// past 2^31 elements now and then, if the limits allow. May fail check(): families take what they take.
Problem random_problem(OperationForm operation, const HuntLimits& limits, Random& random);

struct HuntRequest {
  std::vector<OperationForm> operations;  // empty: all
  std::vector<std::string> libtypes;      // empty: the families of vendor libraries
  double budget_seconds = 60;
  std::uint64_t seed = 1;
  double max_flops = 0;     // of one size, without minimizing; 0: 4e8 on a CPU, 4e11 on a GPU
  bool with_known = false;  // verifies kernels that have an erratum too
  SecondsClock clock = steady_seconds;
  std::function<bool()> stop{};  // true once the hunt must end; may be empty
};

/// A kernel that is wrong or crashes.
struct HuntFinding {
  Problem problem;  // the smallest that was found
  Problem first;    // at which it was seen first
  Candidate candidate;
  Outcome outcome;       // at `problem`
  bool untuned = false;  // it is the default or the fallback of `first`
  std::size_t more = 0;  // further kernels or problems that fail alike
  Erratum erratum;       // a suggestion: a condition that held where it was tried
};

struct HuntSummary {
  std::vector<HuntFinding> findings;
  std::size_t problems = 0;
  std::size_t kernels = 0;     // verified, one at a problem
  std::size_t left_out = 0;    // that have an erratum
  std::size_t unverified = 0;  // problems that could not be verified: no memory, no reference
  double seconds = 0;
};

/// Called after each problem, and after each new finding.
using HuntObserver = std::function<void(const HuntSummary& so_far, const HuntFinding* found)>;

/// Random problems until the budget is spent: the default and the fallback of each pass full verification, all
/// other proposals of the families the quick one. What fails first in its way is minimized, which may take
/// some 130 verifications beyond the budget. An error: unknown families, or none takes any problem.
Result<HuntSummary> hunt(Device& device, Evaluator& evaluator, const HuntRequest& request,
                         const HuntObserver& observer);

/// The command line that verifies this kernel at this problem.
std::string check_command(const DeviceInfo& device, const Problem& problem, const Candidate& candidate);

}  // namespace gemmtune
