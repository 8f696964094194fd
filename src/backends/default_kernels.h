// Which kernel runs where nothing was tuned, by the ranks of the device's families.
#pragma once

#include <functional>

#include "backends/backend.h"
#include "backends/family_info.h"

namespace gemmtune {

/// True for kernels that may be chosen; empty: all may.
using KernelFilter = std::function<bool(const Candidate& candidate)>;

/// Device::baseline() and Device::fallback(): of the families of `known` that are eligible, the first that
/// the device has, that accepts the problem and that has an allowed kernel: its default config, else that of its space
/// which is predicted to be the fastest; else the Status with every family's reason.
Result<Candidate> choose_baseline(FamilyInfos known, const Device& device, const Problem& problem);
Result<Candidate> choose_fallback(FamilyInfos known, const Device& device, const Problem& problem,
                                  const KernelFilter& allowed = {});

/// What a user without gemmtune has: Device::baseline(); with `fast`, what its library runs if it is asked for its fast
/// accumulation.
Result<Candidate> library_kernel(const Device& device, const Problem& problem, AccuracyPolicy policy);

/// The default kernel, which candidates are compared with: what an untuned call runs, Device::fallback(). With `fast`
/// library_kernel(), which no untuned call runs; if there is none, the fallback with its family's fast config. With `fp32` the first
/// fallback of that class. The opponent's
/// kernel (DeviceInfo::opponent) if it takes the problem.
Result<Candidate> default_kernel(const Device& device, const Problem& problem, AccuracyPolicy policy);

}  // namespace gemmtune
