#include "base/duty_cycle.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace gemmtune {
namespace {

constexpr double shortest_rest_seconds = 1e-3;  // a sleep that is shorter costs as much as it gives

}  // namespace

DutyCycle::DutyCycle(double share, int cores, DutyClocks clocks)
    : cores_of_share_(share * std::max(1, cores)),
      rests_(share < 1),
      clocks_(std::move(clocks)),
      begin_(clocks_.now()),
      used_before_(clocks_.used()) {}

void DutyCycle::rest() {
  if (!rests_) return;
  const double used = clocks_.used();
  const double missing = (used - used_before_) / cores_of_share_ - (clocks_.now() - begin_);
  if (missing > 0 && missing < shortest_rest_seconds) return;
  if (missing > 0) {
    if (clocks_.sleep) {
      clocks_.sleep(missing);
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(missing));
    }
  }
  begin_ = clocks_.now();
  used_before_ = clocks_.used();
}

}  // namespace gemmtune
