// Threads of ours inside a host's process.
#pragma once

#include <functional>
#include <thread>

namespace gemmtune {

/// A thread that none of the host's signals is delivered to, except those of its own faults. Not joinable if
/// the system has no thread to give; std::bad_alloc if there is no memory for its state.
std::thread start_quiet_thread(std::function<void()> body);

}  // namespace gemmtune
