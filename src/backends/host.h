// What the devices of one machine share: its memory, and cores where their sets overlap.
#pragma once

#include <cstddef>
#include <vector>

#include "backends/backend.h"

namespace gemmtune {

/// Bytes that can still be used on the host, by the machine or by this process's control groups.
std::size_t free_host_memory_bytes();

/// The first core that both devices run on; -1 where there is none, or one of them is not made of cores.
int shared_core(const DeviceInfo& first, const DeviceInfo& second);

/// While this lives, the calling thread and the processes that it starts run on the cores of the device alone, if it is made of
/// cores.
class CoresOfChildren {
 public:
  explicit CoresOfChildren(const DeviceInfo& device);
  ~CoresOfChildren();
  CoresOfChildren(const CoresOfChildren&) = delete;
  CoresOfChildren& operator=(const CoresOfChildren&) = delete;

 private:
  std::vector<int> before_;  // empty: nothing was changed
};

}  // namespace gemmtune
