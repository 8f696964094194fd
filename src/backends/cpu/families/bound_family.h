// A family of ours bound to a device: where a call names no executor, its kernels run on the device's team. Scales of
// blocks in e8m0 become float32 in the workspace: kernels have float32 alone.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cpu/threads/thread_team.h"

namespace gemmtune::cpu {

/// `team` must outlive the family and every kernel that it builds.
std::unique_ptr<KernelFamily> bind_family(std::unique_ptr<KernelFamily> family, ThreadTeam& team);

}  // namespace gemmtune::cpu
