// The tuned files that table commands read and write: the same rules on audit, merge, diff and convert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/json_fwd.h"
#include "formats/left_out.h"

namespace gemmtune::cli {

/// Every file of the words, each a path or a colon-separated list. A path that was named must be there.
Result<std::vector<TunedFile>> read_tables(const std::vector<std::string>& words,
                                           std::optional<Operation> operation);

/// True if every file of a colon-separated list is a tuned CSV, false if none is; both kinds in one list are an
/// error, and so is a file that cannot be read.
Result<bool> are_tuned_files(const std::string& paths);

/// What a writer left out, for --json: kind, name, line, count and why of each.
OrderedJson left_out_json(const std::vector<LeftOut>& items);

/// Refuses an output that is one of the inputs (links resolved): inputs are never changed.
Status check_no_input(const std::string& option, const std::string& output,
                      const std::vector<TunedFile>& inputs);

/// Writes `text` to `path` at once; "" and "-" are stdout. The environments that the inputs' rows name go
/// into <path>.env.json.
Status write_table(const std::string& option, const std::string& path, const std::string& text,
                   const std::vector<TunedFile>& inputs);

}  // namespace gemmtune::cli
