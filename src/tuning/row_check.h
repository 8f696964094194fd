// Correctness of every row of a tuned file, without tuning and without times.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/evaluator.h"
#include "tuned/entry.h"

namespace gemmtune {

enum class RowCheckState {
  right,
  wrong,         // ran, and the result is not right (or it crashed, hung or failed to launch)
  not_runnable,  // dispatch refuses it (see Refusal), or it has no legal problem
};
std::string_view to_string(RowCheckState state);

struct RowCheck {
  RowCheckState state = RowCheckState::not_runnable;
  std::string reason;    // unless right
  double err_ratio = 1;  // measured now; the row's own stands in the row
  MeasuredError error;
  Accuracy accuracy = Accuracy::fp32;  // of the kernel, by whose bounds it was verified
  bool deterministic = true;
};

/// One check an entry, in order. The kernel that dispatch runs for the row (and the one of dependent
/// launches, if the row has one) passes the full gate at the row's M and at the other M that the row answers;
/// the reason names the M. Of a bucket of a Triton config these are its M and its m_from. `on_row` may be empty.
std::vector<RowCheck> check_rows(const Device& device, Evaluator& evaluator,
                                 std::span<const TunedEntry> entries,
                                 const std::function<void(std::size_t index, const RowCheck&)>& on_row);

}  // namespace gemmtune
