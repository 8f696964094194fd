#include "evaluate/worker/worker_pool.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

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
  const std::size_t threads = std::min(workers, items);
  std::vector<std::thread> others;
  for (std::size_t worker = 1; worker < threads; ++worker) others.emplace_back(take, worker);
  take(0);
  for (std::thread& other : others) other.join();
  if (thrown) std::rethrow_exception(thrown);
  return failure;
}

}  // namespace gemmtune
