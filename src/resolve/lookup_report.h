// A look-up, level by level: what `gemmtune lookup` prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "resolve/answer.h"

namespace gemmtune {

struct LookupRequest {
  Problem problem;
  std::string unknown_types = {};  // as TunedEntry's: only tables answer then
  // AITER does not ask for times and errors: rows that are never chosen answer too, each on its level.
  bool as_aiter = false;
  std::optional<std::string> gfx;  // given with or without cu_num: only the table is asked
  std::optional<int> cu_num;
  bool runnable =
      false;  // apply dispatch's rule (skip rows that cannot run here, then the fallback) all the same
  bool strict_environment = false;
};

/// One level that was tried.
struct LookupLevel {
  const TableSet* tables = nullptr;
  Match level = Match::untuned;
  std::int64_t tried_m = 0;                   // the M that was looked for; for a range the problem's own
  const TunedEntry* row = nullptr;            // null: no row; owned by the table
  std::int64_t hit_m = 0;                     // M of `row`, or of `never_chosen`
  bool answers = false;                       // dispatch would run the row if no better one answered
  bool runnable = false;                      // the row's kernel can be made here for this problem
  Refusal refusal = Refusal::unknown_kernel;  // unless it answers
  // Where there is no row: one of the M that was looked for that is never chosen (tuned/choice.h).
  const TunedEntry* never_chosen = nullptr;
  std::string why;  // why the row does not answer or is never chosen, or how the environment differs
  bool other_environment = false;
};

/// The answer. Field for field what `lookup --json` prints (decision 18), the levels beside it.
struct LookupReport {
  std::string gfx;  // that was asked for
  int cu_num = 0;
  Problem problem;
  std::string unknown_types;
  Match level = Match::untuned;
  std::int64_t hit_m = 0;
  const TunedEntry* row = nullptr;  // null where untuned; owned by the table
  std::string file;                 // of the row
  std::size_t line = 0;             // 1-based; 0 where untuned
  std::string card;                 // the device model that the row was measured on; empty if it is not known
  std::string kernel_name;  // the row's, or the fallback's where dispatch's rule was applied; may be empty
  std::string libtype;
  bool runnable = false;
  std::string why;   // why it cannot run here; empty where it can
  std::string rule;  // what decided, in words
  std::vector<LookupLevel>
      levels;  // exact, range, bucket, fine, coarse; the same of the online rows, if any; of CPUs fewer_threads; the same of
  // shipped tables, if they have rows
};

/// Looks `request.problem` up. With gfx or cu_num: for that device, and the first row answers, whether or not
/// it can run here. Without (or with `runnable`): as dispatch does, for `device`, which must not be null
/// then. If `device` is null, nothing is runnable and the text says so.
Result<LookupReport> explain_lookup(const LookupTables& tables, const Device* device,
                                    const LookupRequest& request);

}  // namespace gemmtune
