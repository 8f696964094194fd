#include <optional>

#include "backends/gpu/runtime.h"
#include "base/text.h"

namespace gemmtune::gpu {
namespace {

/// The number that stands right before `words`, searched from `from` on.
std::optional<std::int64_t> number_before(std::string_view text, std::string_view words) {
  const auto at = text.find(words);
  if (at == std::string_view::npos) return std::nullopt;
  auto begin = at;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  return parse_integer(text.substr(begin, at - begin));
}

}  // namespace

Status Resources::acceptable(std::string_view name) const {
  if (spill_bytes > 0) {
    return Status::unsupported("{}: the compiler spills {} bytes of registers", name, spill_bytes);
  }
  return {};
}

// The form of ptxas 11 to 13:
//   ptxas info    : Function properties for <name>
//       0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]
Result<Resources> read_resources(std::string_view compiler_log) {
  const auto used = compiler_log.rfind("Used ");
  const auto frame = compiler_log.rfind(" bytes stack frame");
  if (used == std::string_view::npos || frame == std::string_view::npos) {
    return Status::internal("the compiler's log has no figures of the kernel: {}",
                            compiler_log.substr(0, 200));
  }
  const std::string_view figures = compiler_log.substr(used);
  const auto line = compiler_log.rfind('\n', frame);
  const std::string_view stack = compiler_log.substr(line == std::string_view::npos ? 0 : line);
  Resources resources;
  const auto registers = number_before(figures, " registers");
  if (!registers) return Status::internal("the compiler's log has no count of registers: {}", figures);
  resources.registers = static_cast<int>(*registers);
  resources.stack_bytes = static_cast<int>(number_before(stack, " bytes stack frame").value_or(0));
  resources.spill_bytes = static_cast<int>(number_before(stack, " bytes spill stores").value_or(0) +
                                           number_before(stack, " bytes spill loads").value_or(0));
  resources.static_shared_bytes = static_cast<std::size_t>(number_before(figures, " bytes smem").value_or(0));
  return resources;
}

}  // namespace gemmtune::gpu
