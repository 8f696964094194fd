#include "evaluate/journal/journal_texts.h"

#include <fmt/format.h>

#include "base/text.h"

namespace gemmtune {

std::string journal_device_text(const DeviceInfo& info) {
  return fmt::format("{} {} {} {}", info.backend, info.gfx, info.cu_num, info.model);
}

std::pair<std::string, int> device_of_journal_text(const std::string& text) {
  const auto words = split(std::string_view(text), ' ');
  const auto cu_num = words.size() > 2 ? parse_integer(words[2]) : std::nullopt;
  if (!cu_num) return {};
  return {std::string(words[1]), static_cast<int>(*cu_num)};
}

std::string journal_policy_text(Policy policy, double max_err_ratio) {
  policy.objective = Objective::time;  // a kernel fails whatever is wanted of it
  return fmt::format("{} errRatio={}", policy.text(), max_err_ratio);
}

}  // namespace gemmtune
