#include "evaluate/journal/journal_texts.h"

#include <fmt/format.h>

namespace gemmtune {

std::string journal_device_text(const DeviceInfo& info) {
  return fmt::format("{} {} {} {}", info.backend, info.gfx, info.cu_num, info.model);
}

std::string journal_policy_text(Policy policy, double max_err_ratio) {
  policy.objective = Objective::time;  // a kernel fails whatever is wanted of it
  return fmt::format("{} errRatio={}", policy.text(), max_err_ratio);
}

}  // namespace gemmtune
