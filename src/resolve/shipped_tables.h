// Tuned tables that come with gemmtune (configs/model_configs): they answer what no row of the user's answers.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/environment.h"
#include "resolve/table_set.h"

namespace gemmtune {

/// The tables of a folder. With `device` the rows that were measured on such a device, with the same library major versions, as
/// their .env.json says; the other rows are left out. Null: all rows, for whoever asks a table of another device. An empty
/// folder is an empty set.
TableSet load_shipped_tables(const std::string& folder, const DeviceInfo* device);
/// Those that a program with this environment reads.
std::shared_ptr<const TableSet> production_shipped_tables(const Environment& environment,
                                                          const DeviceInfo* device);

}  // namespace gemmtune
