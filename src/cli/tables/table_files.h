// The tuned files that table commands read and write: the same rules on audit, merge, diff and convert.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/aiter/tuned_csv.h"

namespace gemmtune::cli {

/// Every file of the words, each a path or a colon-separated list. A path that was named must be there.
Result<std::vector<TunedFile>> read_tables(const std::vector<std::string>& words,
                                           std::optional<Operation> operation);

/// Refuses an output that is one of the inputs (links resolved): inputs are never changed.
Status check_no_input(const std::string& option, const std::string& output,
                      const std::vector<TunedFile>& inputs);

/// Writes `text` to `path` at once; "" and "-" are stdout. The environments that the inputs' rows name go
/// into <path>.env.json.
Status write_table(const std::string& option, const std::string& path, const std::string& text,
                   const std::vector<TunedFile>& inputs);

}  // namespace gemmtune::cli
