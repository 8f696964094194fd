// Which kernel a row means: rows of gemmtune name theirs; rows of AITER say libtype and an index, and their kernelName
// is the library's.
#pragma once

#include <string>
#include <string_view>

#include "backends/backend.h"
#include "tuned/entry.h"

namespace gemmtune {

/// True if the row's kernelName is none of gemmtune's: whoever wrote it did not verify as gemmtune does.
bool is_foreign(const TunedEntry& row);

/// "an assembly kernel of AITER": what a foreign row of an AMD GPU names that gemmtune does not have, by its libtype;
/// empty for rows that a family may run. Asks no device.
std::string_view missing_library(const TunedEntry& row);

/// The libtype of a row; in a table without the column the family, or of a foreign row the library, that its kernelName
/// tells.
std::string_view libtype_of(const TunedEntry& row);

/// The kernelName of what a caller names: a kernelName as it is; "family", the family's default; "family:index", the solution of
/// that index of the vendor's library (hipBLASLt), or the config of that place, from 0, in the order in which the family
/// proposes them for the problem. `not_found` without such a family or index.
Result<std::string> named_kernel_name(const Device& device, std::string_view text, const Problem& problem);

/// The kernelName that runs the row on this device: its own; for a foreign row on an AMD GPU, what the family of its
/// libtype makes of it. Else why there is none: the library whose kernels gemmtune does not have.
Result<std::string> row_kernel_name(const Device& device, const TunedEntry& row, const Problem& problem);

}  // namespace gemmtune
