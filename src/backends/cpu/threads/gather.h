// Waits until the threads of a team have processors at the same time.
#pragma once

#include <chrono>

#include "backends/cpu/threads/executor.h"

namespace gemmtune::cpu {

/// Where other programs have the processors, threads that wait for each other take turns: when one gets its processor, the
/// other has just lost its own. All threads of the team spin until each has seen to run within the last microseconds. False
/// if they did not within `limit`, or the executor runs its parts on fewer threads.
bool gather_threads(Executor& executor, std::chrono::milliseconds limit);

}  // namespace gemmtune::cpu
