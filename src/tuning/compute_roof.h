// The rate at which the device computes a large product: the compute roof of reports, kept in <file>.env.json.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "backends/backend.h"
#include "evaluate/evaluator.h"

namespace gemmtune {

struct ComputeRoof {
  double tflops = 0;
  std::string problem;      // the product that reached it, as print() writes it
  std::string kernel_name;  // by this kernel
};

/// A square product of the operation and the types of `like`, large enough to be bound by computing on the device, with a plain
/// weight; nullopt of mixtures, batches, and operations of packed weights alone.
std::optional<Problem> large_product(const Problem& like, const DeviceInfo& device);

/// Verifies and times the default kernel and the vendor library's at that product, and the default configs of families whose
/// cost model sees them near the fastest, until `stop` answers true. The highest rate of a median; nullopt if no kernel ran.
std::optional<ComputeRoof> measure_compute_roof(const Device& device, Evaluator& evaluator,
                                                const Problem& product, const std::function<bool()>& stop);

}  // namespace gemmtune
