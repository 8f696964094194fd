#include "evaluate/worker/worker_pool.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "base/threads.h"

namespace gemmtune {

Status share_out(std::size_t items, std::size_t workers,
                 const std::function<Status(std::size_t worker, std::size_t item)>& work) {
  std::mutex lock;
  std::size_t next = 0;
  Status failure;
  std::exception_ptr thrown;
  const auto take = [&](std::size_t worker) {
    for (;;) {
      std::size_t item = 0;
      {
        const std::lock_guard guard(lock);
        if (next >= items || !failure.ok() || thrown) return;
        item = next++;
      }
      try {
        const Status status = work(worker, item);
        const std::lock_guard guard(lock);
        if (failure.ok()) failure = status;
      } catch (...) {  // carried to the caller's thread, where it would have been thrown without workers
        const std::lock_guard guard(lock);
        thrown = std::current_exception();
      }
    }
  };
  run_on_threads(static_cast<int>(std::min(workers, items)),
                 [&](int worker) { take(static_cast<std::size_t>(worker)); });
  if (thrown) std::rethrow_exception(thrown);
  return failure;
}

}  // namespace gemmtune
