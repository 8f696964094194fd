// A device of this machine's cores with an opponent: the kernels of an evaluator (docs/evaluators.md), which runs beside
// ours, have operands of the same content in memory of its own, and are what candidates are compared with.
#pragma once

#include <memory>
#include <string>

#include "backends/forwarding_device.h"
#include "evaluate/external/external_device.h"

namespace gemmtune {

/// Starts the evaluator on the device's cores. `not_found`, `unsupported` where the device is not the host's.
///
/// Its family is the last of families(), DeviceInfo::opponent names it. No candidate list holds it and no row names it,
/// because what runs rows has no evaluator. It is the baseline of each problem that it takes, of packed weights with
/// the plain one; other problems have the device's own.
Result<std::unique_ptr<Device>> with_opponent(std::unique_ptr<Device> device, const std::string& command,
                                              double seconds = hello_seconds);

}  // namespace gemmtune
