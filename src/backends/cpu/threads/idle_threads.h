// Whether a pool that was just left still spins: how long it does is its own matter (libgomp counts turns of
// a loop, whose length differs from processor to processor), so it is observed instead of assumed.
#pragma once

#include <chrono>

namespace gemmtune::cpu {

/// Waits until no other thread of this process runs or wants to, at most `limit`. False where the limit was
/// reached, or the system does not tell.
bool wait_until_other_threads_sleep(std::chrono::milliseconds limit);

}  // namespace gemmtune::cpu
