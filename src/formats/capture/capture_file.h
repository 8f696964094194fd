// What capture keeps on disk: an operation's untuned CSV, and beside it <file>.calls.json with how often each
// problem was called.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/shapes/shape_list.h"
#include "problem/problem.h"
#include "tuned/table.h"

namespace gemmtune {

/// Calls, indexed by Match.
using MatchCounts = std::array<std::uint64_t, match_count>;

struct CapturedProblem {
  Problem problem;  // as problem_of_row() makes it
  std::uint64_t calls = 0;
  MatchCounts by_match{};
  std::string last_seen;  // UTC, "2026-01-31T12:00:00Z"; empty where nobody counted
};

/// By the problems' texts.
using CallStore = std::map<std::string, CapturedProblem, std::less<>>;

/// Beside the file that `untuned_path` resolves to.
std::string calls_path(const std::string& untuned_path);

/// The problem as its row of an untuned CSV states it: alignment 16, the layout of a packed weight not
/// decided, types that the operation's table has no column for at what they mean there, tokens of a mixture of experts at the
/// token tier that it is looked up by. Problems with one answer share a row of tuned files, too.
Problem problem_of_row(const Problem& problem);

struct CaptureMerge {
  std::size_t added = 0;   // lines
  std::string diagnostic;  // why problems stand in the side store only; empty: all have a line
  std::string damage;      // of a side store that was put aside; empty: there was none
};

/// Adds what was seen to an operation's files, under <file>.lock (links resolved first); many processes may.
/// A problem that the CSV lacks gets one line in the order of the file's own columns, and every byte that was
/// there stays; a file that is not there begins with AITER's header. Calls are added up in the side store; a
/// damaged one is kept as <file>.calls.json.damaged and begun anew. The CSV is first. Each file is replaced whole, but for
/// a few lines that are appended within a page of the CSV: no reader and no SIGKILL leaves a part of a line. `seen` holds problems of problem_of_row(), of one operation. On an error no call was
/// counted, and the same may be tried again.
Result<CaptureMerge> merge_capture(const std::string& untuned_path, const std::vector<CapturedProblem>& seen);

/// The lines of merge_capture() alone, for callers that cannot wait: nothing is synced, and there is no result if another
/// process holds the lock.
Result<std::optional<CaptureMerge>> try_add_lines(const std::string& untuned_path,
                                                  const std::vector<CapturedProblem>& seen);

/// What a side store (calls_path()) holds; nothing where there is none.
Result<CallStore> read_call_store(const std::string& path);

/// Rows that the side stores beside `untuned_paths` (a colon-separated list) count get their calls. A store that
/// cannot be read is a diagnostic.
void take_captured_calls(const std::string& untuned_paths, ShapeList& list);

}  // namespace gemmtune
