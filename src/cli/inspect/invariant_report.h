// check --invariant and hunt --invariant: which weights get the same bits of a row at every M.
#pragma once

#include <string>
#include <vector>

#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "tuned/entry.h"
#include "tuning/invariant_check.h"

namespace gemmtune::cli {

/// What runs the rows of a file on this device: each at its M, those of a bit class also at M between two of them.
std::vector<ServedKernel> kernels_of_rows(const Device& device, const std::vector<TunedEntry>& entries);
/// What runs without tuning at some M of a few weights, drawn from a seed.
std::vector<ServedKernel> untuned_kernels(const Device& device, OperationForm operation, std::uint64_t seed,
                                          int weights);

struct InvariantCommand {
  std::string command;  // check, hunt
  std::string subject;  // the file; empty: what runs untuned
  DeviceOptions device;
  double max_err_ratio = 0.05;
  double budget_seconds = 0;  // 0: none
  bool json = false;
};

/// Checks, prints and answers the exit code: 1 if a weight is not invariant, or if nothing was there to check.
int report_invariant(const InvariantCommand& command, Device& device,
                     const std::vector<ServedKernel>& kernels, Console& console);

}  // namespace gemmtune::cli
