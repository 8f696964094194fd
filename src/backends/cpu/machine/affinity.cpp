#include "backends/cpu/machine/affinity.h"

#include <sched.h>

#include <cstddef>
#include <memory>

namespace gemmtune::cpu {
namespace {

constexpr int max_cores = 1 << 14;  // larger masks than any kernel is built with

struct FreeMask {
  void operator()(cpu_set_t* mask) const { CPU_FREE(mask); }
};
using Mask = std::unique_ptr<cpu_set_t, FreeMask>;

Mask empty_mask(int cores) {
  Mask mask(CPU_ALLOC(static_cast<std::size_t>(cores)));
  if (mask) CPU_ZERO_S(CPU_ALLOC_SIZE(static_cast<std::size_t>(cores)), mask.get());
  return mask;
}

}  // namespace

CoreList thread_affinity() {
  const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(max_cores));
  CoreList cores;
  const Mask mask = empty_mask(max_cores);
  if (mask && sched_getaffinity(0, bytes, mask.get()) == 0) {
    for (int core = 0; core < max_cores; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, mask.get())) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

bool set_thread_affinity(const CoreList& cores) {
  const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(max_cores));
  const Mask mask = empty_mask(max_cores);
  if (!mask) return false;
  for (const int core : cores) {
    if (core >= 0 && core < max_cores) CPU_SET_S(static_cast<std::size_t>(core), bytes, mask.get());
  }
  return sched_setaffinity(0, bytes, mask.get()) == 0;
}

ScopedAffinity::ScopedAffinity(const CoreList& cores) {
  if (cores.empty()) return;
  before_ = thread_affinity();
  if (!set_thread_affinity(cores)) before_.clear();
}

ScopedAffinity::~ScopedAffinity() {
  if (!before_.empty()) set_thread_affinity(before_);
}

}  // namespace gemmtune::cpu
