// Rows that online tuning keeps: searched after the tuned files, read again after each new one.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/environment.h"
#include "resolve/table_set.h"

namespace gemmtune {

enum class OnlineFormat {
  gemmtune_csv,     // a tuned CSV for each operation
  hipblaslt_table,  // AITER's hip_online_tuning_res.csv: a16w16, exact M, no device and no time
};

/// Where rows of online tuning are kept.
struct OnlineFile {
  std::string path;  // of a16w16's rows
  OnlineFormat format = OnlineFormat::gemmtune_csv;
};

/// What the environment's switch means: online_tuning.csv of the config folder (an empty path if there is
/// none), or AITER's file in the working folder. Requires that it is not off.
OnlineFile default_online_file(OnlineTuning switched_by, const std::string& config_folder);

/// The file of an operation's rows: a tuned CSV holds one operation, so the others' name stands before the
/// extension ("online_tuning.a8w8.csv"). Empty where the format has no place for them.
std::string online_path(const OnlineFile& file, OperationForm operation);

/// Reads the rows of every operation; a file that is missing is no fault. Of AITER's table only rows whose
/// kernel `device` knows by name are taken, with and without a bias (which has no place in that table): the
/// others are of other devices, and would stand before ours in a table where the first row of a key wins.
std::shared_ptr<const TableSet> load_online_rows(const OnlineFile& file, const Device& device);
/// Those that a program with this environment reads; null if online tuning is off.
std::shared_ptr<const TableSet> production_online_rows(const Environment& environment, const Device& device);

}  // namespace gemmtune
