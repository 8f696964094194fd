#include "base/threads.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace gemmtune {

void run_on_threads(int count, const std::function<void(int)>& body) {
  std::mutex lock;
  std::exception_ptr thrown;
  const auto run = [&](int index) {
    try {
      body(index);
    } catch (...) {  // would end the process on another thread, and leave the others behind on this one
      const std::lock_guard guard(lock);
      if (!thrown) thrown = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(std::max(0, count - 1)));
  int started = 1;
  try {
    for (; started < count; ++started) others.emplace_back(run, started);
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  if (count > 0) run(0);
  for (int rest = started; rest < count; ++rest) run(rest);
  for (std::thread& other : others) other.join();
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace gemmtune
