// Sharing out work among workers: each takes the next item when it has done its last.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace gemmtune {

/// Calls `work(worker, item)` for each item from 0 on, in order; a worker has one item at a time and a thread
/// of its own, a single one the caller's. After the first error no item is handed out any more; those that
/// are being worked on are finished, and the error is answered.
Status share_out(std::size_t items, std::size_t workers,
                 const std::function<Status(std::size_t worker, std::size_t item)>& work);

}  // namespace gemmtune
