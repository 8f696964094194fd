#include "backends/cpu/threads/openmp_team.h"

#include <pthread.h>
#include <sys/single_threaded.h>

#include <atomic>

namespace gemmtune::cpu {
namespace {

struct ThreadsTeam {
  bool started = false;  // by a kernel
  bool lost = false;
  bool may_have_lost = false;        // if a region of the program has started it
  bool forks_beside_others = false;  // while this thread forks: the process has other threads
};
thread_local ThreadsTeam team;
std::atomic<bool> forked_beside_others{false};

void before_fork() { team.forks_beside_others = __libc_single_threaded == 0; }

/// In the child, on the thread that called fork(): the child's only one.
void after_fork_in_child() {
  team.lost = team.lost || team.started;
  team.may_have_lost = team.may_have_lost || team.forks_beside_others;
  if (team.forks_beside_others) forked_beside_others.store(true, std::memory_order_relaxed);
}

/// From the start: a program may have teams, and fork, before it calls anything of ours. It fails without memory only; a
/// child then waits as it would without us.
[[maybe_unused]] const int watches_forks = pthread_atfork(&before_fork, nullptr, &after_fork_in_child);

}  // namespace

bool start_openmp_team(RegionsOf whose) noexcept {
  team.started = true;
  return !has_lost_openmp_team(whose);
}

bool has_lost_openmp_team(RegionsOf whose) noexcept {
  return team.lost || (whose == RegionsOf::program && team.may_have_lost);
}

bool has_lost_programs_pool() noexcept { return forked_beside_others.load(std::memory_order_relaxed); }

}  // namespace gemmtune::cpu
