// The words by which journals know a device and a policy: the same for everybody who writes or asks one.
#pragma once

#include <string>

#include "backends/backend.h"
#include "measure/policy.h"

namespace gemmtune {

/// RunText::device and JournalOptions::device.
std::string journal_device_text(const DeviceInfo& info);
/// RunText::policy and JournalOptions::policy: what a failure depends on beside its key.
std::string journal_policy_text(const Policy& policy, double largest_err_ratio);

}  // namespace gemmtune
