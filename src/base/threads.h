// Work that is shared among threads for one call.
#pragma once

#include <functional>

namespace gemmtune {

/// Calls body(0) to body(count - 1), each on a thread of its own, the first on the caller's. If the operating
/// system gives fewer threads, the caller does the rest afterwards. An exception of a body is thrown to the
/// caller once all have ended.
void run_on_threads(int count, const std::function<void(int)>& body);

}  // namespace gemmtune
