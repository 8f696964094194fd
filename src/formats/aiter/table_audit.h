// The defects of tuned files, and a clean copy of a file.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "formats/aiter/tuned_csv.h"
#include "tuned/checks.h"
#include "tuned/finding.h"

namespace gemmtune {

/// check_rows() over the files together, and what only their bytes and the names of kernels say: malformed,
/// wrong_rate, wrong_libtype. Ascending in
/// file, line and kind; Finding::source is an index into `files`, and so is TunedEntry::source afterwards.
/// failed_time is not asked of tables without a time.
std::vector<Finding> audit_tables(std::span<TunedFile> files, const CheckOptions& options);

/// The kinds whose rows a clean table does not have. wrong_rate is not one of them: its cells are computed
/// again.
FindingKinds kinds_fixed_by_default();

struct FixOptions {
  FindingKinds kinds = kinds_fixed_by_default();
  // Rows with us = 0 go with failed_time. Hand-written rows have that time, and AITER uses them.
  bool drop_zero_times = false;
};

struct FixedTable {
  std::string text;
  std::size_t rows = 0;                                   // in `text`
  std::array<std::size_t, finding_kind_count> dropped{};  // rows by the first of their kinds
  std::size_t recomputed = 0;                             // rows with other rates
};

/// The file without the rows of options.kinds, but those that are malformed and answer all the same (may_answer()); of the rows of one key that are left, the chosen one where
/// `kinds` has duplicate_key, and of the rest those that are not redundant if it has redundant. Other rows,
/// comments and the header keep every byte, rows with wrong rates all but those cells. `findings`:
/// audit_tables() of files of which this is number `source`.
FixedTable fix_table(const TunedFile& file, std::uint32_t source, std::span<const Finding> findings,
                     const FixOptions& options);

}  // namespace gemmtune
