// Which cores threads may run on: asking, setting for the calling thread, and restoring.
#pragma once

#include <vector>

namespace gemmtune::cpu {

/// Core numbers as the operating system counts them, in the order in which threads take them.
using CoreList = std::vector<int>;

/// The cores that the calling thread may run on, ascending; never empty. Covers cpusets of containers.
CoreList thread_affinity();
/// Restricts the calling thread; false where the operating system refuses.
bool set_thread_affinity(const CoreList& cores);

/// Moves the calling thread onto `cores` and gives it back its own on destruction. An empty list does
/// nothing.
class ScopedAffinity {
 public:
  explicit ScopedAffinity(const CoreList& cores);
  ~ScopedAffinity();
  ScopedAffinity(const ScopedAffinity&) = delete;
  ScopedAffinity& operator=(const ScopedAffinity&) = delete;

 private:
  CoreList before_;
};

}  // namespace gemmtune::cpu
