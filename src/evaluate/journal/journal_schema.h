// The journal's file: its tables, its version, and how a damaged file is replaced.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "evaluate/journal/sqlite.h"

namespace gemmtune {

inline constexpr int journal_version = 3;

/// Opens the journal at `path`, making it where it is missing, and proves that it can be written. A damaged
/// file is moved aside as `<path>.damaged`, said in the log, and begun anew. Errors: the folder or the file
/// cannot be written, the disk is full, the file is another program's, or a newer gemmtune made it.
Result<SqlDatabase> open_journal(const std::string& path);

/// True if a process works on run `id`: its owner, a process_identity(), runs, or it holds the run's lock, as an owner in
/// another container does, which no list of processes shows here.
bool run_is_live(const std::string& journal, std::int64_t id, const std::string& owner);
/// The file whose byte `id` the owner of a run holds a lock of.
std::string run_lock_path(const std::string& journal);

/// The same as open_journal() for commands that only read: a missing or damaged file is an error.
Result<SqlDatabase> open_existing_journal(const std::string& path);

}  // namespace gemmtune
