// The tuned files of all operations as one table, each row with the file it came from.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "formats/aiter/tuned_csv.h"
#include "resolve/row_environment.h"
#include "tuned/table.h"

namespace gemmtune {

/// One file that is to be read: a table of an operation, or a Triton config (*.json), or a folder of these
/// (triton_files_in()). The name of a config says its operation; `operation` counts where it says none.
struct TablePath {
  std::optional<OperationForm> operation;  // nullopt: Triton configs only
  std::string path;
  bool named = false;  // by a variable, an option or a program, and not a file of the config folder
};

/// One file that a table was to be read from.
struct TableSource {
  std::string path;
  OperationForm operation = Operation::a16w16;
  bool triton = false;                   // a Triton config
  bool unknown = false;                  // its operation is not known: it is described for each
  bool named = false;                    // as TablePath's
  bool shipped = false;                  // of the folder of shipped tables
  std::size_t rows = 0;                  // or buckets; of a shipped table those that may answer
  std::size_t other_rows = 0;            // of a shipped table: of other devices, left out
  Status state;                          // why nothing was read; `not_found` is no fault
  std::vector<std::string> diagnostics;  // rows that were left out: file:line, column, value, expected
  EnvironmentNotes environments;
};

/// Immutable once loaded; shared by threads. TunedEntry::source of its rows is an index into `sources`.
struct TableSet {
  TunedTable table{{}};
  std::vector<TableSource> sources;
  bool exact_only = false;    // rows answer their own M and no other
  bool fewer_threads = true;  // lookup_fewer_threads() answers

  const std::string& path_of(const TunedEntry& entry) const { return sources[entry.source].path; }
  bool is_shipped(const TunedEntry& entry) const { return sources[entry.source].shipped; }
  /// The model of the device that the row was measured on; empty if it is not known.
  std::string model_of(const TunedEntry& entry) const {
    return sources[entry.source].environments.model(entry.env);
  }
  /// The rows that may answer, best level first (TunedTable::lookup without what `exact_only` leaves out).
  LookupHits lookup(const LookupKey& key) const;
  /// TunedTable::lookup_fewer_threads(), where it may answer.
  std::optional<LookupHit> lookup_fewer_threads(const LookupKey& key) const {
    return fewer_threads && !exact_only ? table.lookup_fewer_threads(key) : std::nullopt;
  }
  /// What differs between the row's environment and this device; empty: nothing.
  std::string other_environment(const TunedEntry& entry, const DeviceInfo& device) const {
    return sources[entry.source].environments.difference(entry.env, device);
  }
  /// "path: 12 rows" or "path: why not", one line a file, and one a folder of Triton configs or of shipped tables that have
  /// nothing to be said of; with `operation` its files only.
  std::string describe(std::optional<OperationForm> operation = std::nullopt) const;
  /// The first source that is there but could not be read; ok where all could.
  Status first_fault() const;
};

/// The files of a colon-separated list, each as a table of `operation`; empty paths are dropped.
std::vector<TablePath> table_paths_of(OperationForm operation, std::string_view list);

/// Colon-separated paths of operations' tuned files.
using TunedFileLists = std::map<OperationForm, std::string>;

/// The files of each operation: a list of `first`, else one of `second`, else those of AITER's rule: <base
/// name>.csv of the config folder (bf16_tuned_gemm.csv …), then every regular file model_configs/*<base
/// name>*.csv beside it whose name has no "untuned", sorted by name.
std::vector<TablePath> all_table_paths(const TunedFileLists& first, const TunedFileLists& second,
                                       const std::string& config_folder);
/// GEMMTUNE_CONFIG_A16W16, _A8W8 …
std::string tuned_files_variable(OperationForm operation);
/// What that variable says, or if it is not set AITER's variable of the operation.
TunedFileLists tuned_files_of(const Environment& environment);

/// The Triton configs that dispatch reads: GEMMTUNE_CONFIG_TRITON, a colon-separated list of folders and files, else those
/// that lie in the config folder and in its folder triton/.
std::vector<TablePath> triton_table_paths(const Environment& environment, const std::string& config_folder);

/// The files model_configs/*<base name>*.csv of a folder's `model_configs`, as in AITER's rule above.
std::vector<TablePath> model_table_paths(const std::string& model_configs, OperationForm operation);

/// Reads and merges: the smallest valid time of a key wins, ties keep the first file's row. A file that is
/// missing or cannot be read is no failure of the set; its source says why. Of a folder the configs of families
/// that gemmtune has an operation for are read.
TableSet load_table_set(const std::vector<TablePath>& paths);
/// The set of files that were read already.
TableSet table_set_of(std::vector<TunedFile> files);
TableSet table_set_of(TunedFile file);
/// The files that a program with this environment reads.
TableSet production_tables(const Environment& environment);

}  // namespace gemmtune
