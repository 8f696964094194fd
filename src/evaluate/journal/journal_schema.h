// The journal's file: its tables, its version, and how a damaged file is replaced.
#pragma once

#include <string>

#include "base/status.h"
#include "evaluate/journal/sqlite.h"

namespace gemmtune {

inline constexpr int journal_version = 3;

/// Opens the journal at `path`, making it where it is missing, and proves that it can be written. A damaged
/// file is moved aside as `<path>.damaged`, said in the log, and begun anew. Errors: the folder or the file
/// cannot be written, the disk is full, the file is another program's, or a newer gemmtune made it.
Result<SqlDatabase> open_journal(const std::string& path);

/// The same for commands that only read: a missing or damaged file is an error.
Result<SqlDatabase> open_existing_journal(const std::string& path);

}  // namespace gemmtune
