// The tuned files that table commands read and write: the same rules on audit, merge, diff and convert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/aiter/environment_json.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/diagnostics.h"
#include "formats/json_fwd.h"
#include "formats/triton/triton_json.h"
#include "resolve/table_set.h"

namespace gemmtune::cli {

/// Every file of the words, each a path, a pattern (shell's `*`, `?`, `[a-z]`) or a colon-separated list of them. A path
/// that was named must be there, and a pattern must mean a file. The output of a shard is of the operation that its shard file
/// names, unless `operation` is given. Strict: a row that cannot be read is an error.
Result<std::vector<TunedFile>> read_tables(const std::vector<std::string>& words,
                                           std::optional<OperationForm> operation, bool strict = false);

/// True if every path of the words, each a path or a colon-separated list, is a Triton config (*.json) or a folder of them;
/// false if none is. Both kinds in one list are an error.
Result<bool> are_triton_files(const std::vector<std::string>& words);
/// The configs of the words, those of folders included. An error where a path is not there or no config, and where
/// a folder has none.
Result<std::vector<TritonFile>> read_triton_files(const std::vector<std::string>& words);

/// The tables of a colon-separated list of tuned files or of Triton configs, all of which must be there.
Result<TableSet> read_table_set(const std::string& paths, std::optional<OperationForm> operation);

/// True if every file of a colon-separated list is a tuned CSV, false if none is; both kinds in one list are an
/// error, and so is a file that cannot be read.
Result<bool> are_tuned_files(const std::string& paths);

/// What a writer left out, for --json: kind, name, line, count and why of each.
OrderedJson left_out_json(const std::vector<LeftOut>& items);

/// Refuses an output that is one of the inputs (links resolved): inputs are never changed.
Status check_no_input(const std::string& option, const std::string& output,
                      const std::vector<TunedFile>& inputs);

/// Writes `text` to `path` at once; "" and "-" are stdout. The environments that the inputs' rows name go
/// into <path>.env.json, with what `notes` adds to them.
Status write_table(const std::string& option, const std::string& path, const std::string& text,
                   const std::vector<TunedFile>& inputs, const EnvironmentObjects& notes = {});

}  // namespace gemmtune::cli
