#include "resolve/row_audit.h"

#include <fmt/format.h>

#include <utility>

#include "resolve/bind.h"
#include "resolve/row_kernel.h"

namespace gemmtune {

std::vector<Finding> check_rows_on_device(std::span<const TunedEntry* const> rows,
                                          std::span<const EnvironmentNotes> environments,
                                          const Device& device) {
  const DeviceInfo& info = device.info();
  std::vector<Finding> findings;
  for (const TunedEntry* row : rows) {
    if (!row_is_of(*row, info)) continue;
    const auto name = row_kernel_name(device, *row, row->problem);
    const Status status = name.ok() ? resolve_name(device, *name, row->problem).status() : name.status();
    if (!status.ok()) {
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
