#include "tuning/row_check.h"

#include "select/finals.h"
#include "resolve/known_rows.h"

namespace gemmtune {
namespace {

RowCheck not_runnable(std::string reason) {
  RowCheck check;
  check.reason = std::move(reason);
  return check;
}

std::string device_text(const std::string& gfx, int cu_num) {
  return fmt::format("{} with cu_num {}", gfx.empty() ? "an AMD device (no gfx column)" : gfx, cu_num);
}

RowCheck check_row(const Device& device, Evaluator& evaluator, const TunedEntry& entry) {
  const DeviceInfo& info = device.info();
  if (!row_is_of(entry, info)) {
    return not_runnable(fmt::format("a row of {}; this device is {}", device_text(entry.gfx, entry.cu_num),
                                    device_text(info.gfx, info.cu_num)));
  }
  if (const Status status = check(entry.problem); !status.ok()) return not_runnable(status.message());
  const auto candidate = device.resolve(entry.kernel_name, entry.problem);
  if (!candidate.ok()) return not_runnable(candidate.message());
  RowCheck result;
  const Outcome own = evaluator.check_neighbour_m(entry.problem, *candidate, entry.problem.m);
  result.err_ratio = own.err_ratio;
  result.deterministic = own.deterministic;
  if (own.kind == OutcomeKind::refused) return not_runnable(own.reason);
  result.state = own.kind == OutcomeKind::ok ? RowCheckState::right : RowCheckState::wrong;
  if (own.kind != OutcomeKind::ok) {
    result.reason = fmt::format("{}: {}", to_string(own.kind), own.reason);
    return result;
  }
  result.reason = neighbour_failure(entry.problem, *candidate, evaluator);
  if (!result.reason.empty()) result.state = RowCheckState::wrong;
  return result;
}

}  // namespace

std::vector<RowCheck> check_rows(const Device& device, Evaluator& evaluator,
                                 std::span<const TunedEntry> entries,
                                 const std::function<void(std::size_t, const RowCheck&)>& on_row) {
  std::vector<RowCheck> checks;
  for (const TunedEntry& entry : entries) {
    checks.push_back(check_row(device, evaluator, entry));
    if (on_row) on_row(checks.size() - 1, checks.back());
  }
  return checks;
}

std::string_view to_string(RowCheckState state) {
  switch (state) {
    case RowCheckState::right:
      return "right";
    case RowCheckState::wrong:
      return "wrong";
    case RowCheckState::not_runnable:
      return "not runnable";
  }
  return "unknown";
}

}  // namespace gemmtune
