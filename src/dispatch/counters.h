// Counters of a context: relaxed adds into a slot that few threads share, summed when read.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dispatch/plan.h"

namespace gemmtune {

struct CounterValues {
  std::array<std::uint64_t, match_count> by_match{};  // indexed by Match
  std::uint64_t other_environment = 0;
  std::uint64_t plans_made = 0;
  std::uint64_t invalid_rows = 0;
};

class Counters {
 public:
  /// A plan request answered by `plan`.
  void count_answer(const Plan& plan) {
    Slot& slot = slots_[slot_of_this_thread()];
    slot.values[static_cast<std::size_t>(plan.account().match)].fetch_add(1, std::memory_order_relaxed);
    if (!plan.account().other_environment.empty()) {
      slot.values[other_environment].fetch_add(1, std::memory_order_relaxed);
    }
  }
  /// A plan request that neither a row nor the fallback could answer.
  void count_unanswered(int rows_passed_over) {
    Slot& slot = slots_[slot_of_this_thread()];
    slot.values[static_cast<std::size_t>(Match::untuned)].fetch_add(1, std::memory_order_relaxed);
    slot.values[invalid_rows].fetch_add(static_cast<std::uint64_t>(rows_passed_over),
                                        std::memory_order_relaxed);
  }
  /// A plan that the cache did not have.
  void count_made(const Plan& plan) {
    Slot& slot = slots_[slot_of_this_thread()];
    slot.values[plans_made].fetch_add(1, std::memory_order_relaxed);
    slot.values[invalid_rows].fetch_add(static_cast<std::uint64_t>(plan.account().invalid_rows),
                                        std::memory_order_relaxed);
  }
  CounterValues read() const {
    CounterValues sum;
    for (const Slot& slot : slots_) {
      for (std::size_t i = 0; i < sum.by_match.size(); ++i) sum.by_match[i] += slot.values[i].load();
      sum.other_environment += slot.values[other_environment].load();
      sum.plans_made += slot.values[plans_made].load();
      sum.invalid_rows += slot.values[invalid_rows].load();
    }
    return sum;
  }

 private:
  static constexpr std::size_t slots = 32;
  static constexpr std::size_t other_environment = match_count;
  static constexpr std::size_t plans_made = match_count + 1;
  static constexpr std::size_t invalid_rows = match_count + 2;
  struct alignas(64) Slot {
    std::array<std::atomic<std::uint64_t>, match_count + 3> values{};
  };

  static std::size_t slot_of_this_thread() {
    static std::atomic<std::size_t> next{0};
    static thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed) % slots;
    return mine;
  }

  std::array<Slot, slots> slots_;
};

}  // namespace gemmtune
