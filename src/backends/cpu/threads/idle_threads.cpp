#include "backends/cpu/threads/idle_threads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/folder.h"

namespace gemmtune::cpu {
namespace {

/// The state letter of proc(5)'s stat: after the name, which is in parentheses and may hold anything.
char state_in(const std::string& stat) {
  const std::size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? '?' : stat[name_end + 2];
}

enum class Others { asleep, running, unknown };

Others look_at_others() {
  const std::string own = std::to_string(::syscall(SYS_gettid));
  const std::vector<std::string> tasks = paths_in("/proc/self/task");
  if (tasks.empty()) return Others::unknown;  // the folder cannot be read: this thread's own is missing
  for (const std::string& task : tasks) {
    if (task.substr(task.rfind('/') + 1) == own) continue;
    const auto stat = read_file(task + "/stat");
    if (!stat.ok()) continue;  // the thread has ended meanwhile
    if (state_in(*stat) == 'R') return Others::running;
  }
  return Others::asleep;
}

}  // namespace

bool wait_until_other_threads_sleep(std::chrono::milliseconds limit) {
  constexpr std::chrono::microseconds between_looks{250};
  const auto end = std::chrono::steady_clock::now() + limit;
  while (true) {
    const Others others = look_at_others();
    if (others != Others::running) return others == Others::asleep;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(between_looks);
  }
}

}  // namespace gemmtune::cpu
