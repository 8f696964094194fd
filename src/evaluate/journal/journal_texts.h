// The texts that identify a device and a policy in journals.
#pragma once

#include <string>

#include "backends/backend.h"
#include "measure/policy.h"

namespace gemmtune {

/// RunText::device and JournalOptions::device.
std::string journal_device_text(const DeviceInfo& info);
/// RunText::policy and JournalOptions::policy: what a failure depends on beside its key.
std::string journal_policy_text(Policy policy, double max_err_ratio);

}  // namespace gemmtune
