// The texts that identify a device and a policy in journals.
#pragma once

#include <string>
#include <utility>

#include "backends/backend.h"
#include "measure/policy.h"

namespace gemmtune {

/// RunText::device and JournalOptions::device.
std::string journal_device_text(const DeviceInfo& info);
/// gfx and cu_num of such a text; an empty gfx for another text.
std::pair<std::string, int> device_of_journal_text(const std::string& text);
/// RunText::policy and JournalOptions::policy: what a failure depends on beside its key.
std::string journal_policy_text(Policy policy, double max_err_ratio);

}  // namespace gemmtune
