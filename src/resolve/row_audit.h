// What only a present device can say of a tuned file's rows: whether their kernels are known, and whether
// they were measured in this environment.
#pragma once

#include <span>
#include <vector>

#include "backends/backend.h"
#include "resolve/row_environment.h"
#include "tuned/finding.h"
#include "tuned/groups.h"

namespace gemmtune {

/// unknown_kernel and stale of the rows of this device (its gfx and cu_num); others are passed over.
/// environments[row.source] describes the environments that a row's file names.
std::vector<Finding> check_rows_on_device(std::span<const TunedEntry* const> rows,
                                          std::span<const EnvironmentNotes> environments,
                                          const Device& device);

}  // namespace gemmtune
