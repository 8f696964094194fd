#include "backends/cpu/threads/openmp_team.h"

#include <pthread.h>

namespace gemmtune::cpu {
namespace {

struct Team {
  bool started = false;
  bool lost = false;
};
thread_local Team team;

/// In the child, on the thread that called fork(): the child's only one.
void after_fork_in_child() { team.lost = team.started; }

}  // namespace

bool start_openmp_team() noexcept {
  static const int registered = pthread_atfork(nullptr, nullptr, &after_fork_in_child);
  (void)registered;  // fails without memory only; a child then waits as it would without us
  team.started = true;
  return !team.lost;
}

}  // namespace gemmtune::cpu
