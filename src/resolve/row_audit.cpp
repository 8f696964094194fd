#include "resolve/row_audit.h"

#include <fmt/format.h>

#include <utility>

#include "resolve/bind.h"

namespace gemmtune {

std::vector<Finding> check_rows_on_device(std::span<const TunedEntry* const> rows,
                                          std::span<const EnvironmentNotes> environments,
                                          const Device& device) {
  const DeviceInfo& info = device.info();
  std::vector<Finding> findings;
  for (const TunedEntry* row : rows) {
    if (!row_is_of(*row, info)) continue;
    if (const auto status = resolve_name(device, row->kernel_name, row->problem); !status.ok()) {
      findings.push_back({FindingKind::unknown_kernel, row->source, row->line,
                          fmt::format("kernel '{}': {}", row->kernel_name, status.message())});
    }
    std::string difference = environments[row->source].difference(row->env, info);
    if (!difference.empty()) {
      findings.push_back({FindingKind::stale, row->source, row->line, std::move(difference)});
    }
  }
  return findings;
}

}  // namespace gemmtune
