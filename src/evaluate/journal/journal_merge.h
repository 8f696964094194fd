// Journals of several machines as one, and copies of a journal that lies on another disk.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace gemmtune {

struct JournalMergeReport {
  std::size_t problems = 0;  // that the output got, or got more of
  std::size_t known = 0;     // that it had already
};

/// Adds what `input` measured to the journal at `output` (made where missing); the input is not changed, unless it is
/// of an older version.
///
/// Runs of one request (device, environment, policy, options, list of shapes) become one run, as those of the shards of
/// a list are: the same request on the whole list goes on with it. Where two of them measured one problem they stay two
/// runs. A problem that the output has from the same run is replaced if the input has more of it, so adding a
/// journal twice changes nothing. An error where a living process works on the output's run of that request.
Result<JournalMergeReport> merge_journal(const std::string& output, const std::string& input);

/// Replaces the file at `to` by a journal's whole content, at once. Another process may write to `from` meanwhile. The
/// copy is made beside `from`, so the disk of `to` needs no locks.
Status copy_journal(const std::string& from, const std::string& to);

}  // namespace gemmtune
