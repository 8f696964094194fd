#include "backends/cpu/threads/thread_team.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "backends/cpu/threads/openmp_team.h"

namespace gemmtune::cpu {
namespace {

/// One call; lives on the caller's stack.
struct ParallelCall {
  Executor::Body body;
  void* context;
  std::int64_t parts;
  std::atomic<std::int64_t> next{0};
};

/// On each thread of the team.
void take_parts_of_call(void* data) {
  ParallelCall& call = *static_cast<ParallelCall*>(data);
  for (;;) {
    const std::int64_t part = call.next.fetch_add(1, std::memory_order_relaxed);
    if (part >= call.parts) return;
    call.body(call.context, part);
  }
}

void take_parts_of_pools_call(std::int64_t, std::int64_t, void* data) { take_parts_of_call(data); }

/// Marks the calling thread as one with a team; false if the runtime would wait for ever for a team that fork() took.
bool can_start_team(const OpenmpRuntime& runtime) {
  return !runtime.is_libgomp || start_openmp_team(RegionsOf::program);
}

}  // namespace

ThreadTeam::ThreadTeam(Team team, PoolOptions pool) : team_(team), options_(std::move(pool)) {
  options_.threads = std::max(options_.threads, 1);
}

ThreadTeam::~ThreadTeam() { delete pool_.load(std::memory_order_acquire); }

Status ThreadTeam::look(bool bounded_spin) {
  const OpenmpRuntime* found = nullptr;
  const TorchThreads* torch = nullptr;
  if (team_ == Team::automatic) {
    torch = programs_torch();
    if (torch == nullptr) found = programs_openmp();
  } else if (team_ == Team::openmp || team_ == Team::openmp_or_own) {
    const auto any = any_openmp(bounded_spin);
    if (!any.ok() && team_ == Team::openmp) return any.status();
    if (any.ok()) found = *any;
  }
  if (found == nullptr && torch == nullptr && team_ != Team::callback) pool();
  torch_.store(torch, std::memory_order_release);
  openmp_.store(found, std::memory_order_release);
  return {};
}

Team ThreadTeam::running() const {
  if (openmp() != nullptr) return Team::openmp;
  return team_ == Team::callback || torch_.load(std::memory_order_acquire) != nullptr ? Team::callback
                                                                                      : Team::own;
}

const TorchThreads* ThreadTeam::torch() const {
  return has_lost_programs_pool() ? nullptr : torch_.load(std::memory_order_acquire);
}

int ThreadTeam::threads() const {
  if (const TorchThreads* const pool = torch()) return std::min(pool->threads(), options_.threads);
  const OpenmpRuntime* const runtime = openmp();
  if (runtime == nullptr || (runtime->is_libgomp && has_lost_openmp_team(RegionsOf::program)))
    return options_.threads;
  if (in_parallel_region(*runtime)) return 1;
  return std::clamp(runtime->functions.max_threads(), 1, options_.threads);
}

void ThreadTeam::parallel_for(std::int64_t parts, Body body, void* context) {
  if (parts <= 1) return run_alone(parts, body, context);
  if (const TorchThreads* const pool = torch()) {
    ParallelCall call{body, context, parts};
    (void)pool->parallel_for(0, std::min<std::int64_t>(parts, threads()), 1, &take_parts_of_pools_call,
                             &call);
    return take_parts_of_call(&call);  // those that a pool without memory has left
  }
  const OpenmpRuntime* const runtime = openmp();
  if (runtime == nullptr || !can_start_team(*runtime)) {
    return run_on_pool(parts, body, context);
  }
  if (in_parallel_region(*runtime)) return run_alone(parts, body, context);
  ParallelCall call{body, context, parts};
  runtime->functions.parallel(&take_parts_of_call, &call, 0, 0);
}

ThreadPoolExecutor& ThreadTeam::pool() {
  if (ThreadPoolExecutor* const made = pool_.load(std::memory_order_acquire)) return *made;
  auto fresh = std::make_unique<ThreadPoolExecutor>(options_);
  ThreadPoolExecutor* other = nullptr;
  if (!pool_.compare_exchange_strong(other, fresh.get(), std::memory_order_acq_rel)) return *other;
  return *fresh.release();
}

void ThreadTeam::run_on_pool(std::int64_t parts, Body body, void* context) {
  ThreadPoolExecutor* own = nullptr;
  try {
    own = &pool();
  } catch (const std::bad_alloc&) {  // in a child made by fork(), where it is made by the first call
    return run_alone(parts, body, context);
  }
  own->parallel_for(parts, body, context);
}

void ThreadTeam::pin_openmp_team(const CoreList& cores) const {
  struct Pinning {
    const gemmtune_openmp_functions& functions;
    const CoreList& cores;
  };
  const OpenmpRuntime* const runtime = openmp();
  if (!can_start_team(*runtime)) return;
  Pinning pinning{runtime->functions, cores};
  runtime->functions.set_threads(static_cast<int>(cores.size()));
  runtime->functions.parallel(
      [](void* data) {
        const Pinning& each = *static_cast<const Pinning*>(data);
        const auto number = static_cast<std::size_t>(each.functions.thread_number());
        if (number == 0 || number >= each.cores.size()) return;
        try {
          set_thread_affinity({each.cores[number]});
        } catch (const std::bad_alloc&) {  // on any core, then
        }
      },
      &pinning, 0, 0);
}

CoreList team_affinity(Team team) {
  struct Union {
    std::mutex mutex;
    std::set<int> cores;
  };
  const CoreList own = thread_affinity();
  const OpenmpRuntime* const runtime =
      team == Team::own || team == Team::callback ? nullptr : programs_openmp();
  if (runtime == nullptr || in_parallel_region(*runtime)) return own;
  if (runtime->functions.max_threads() <= static_cast<int>(own.size()) || !can_start_team(*runtime))
    return own;
  Union all{{}, {own.begin(), own.end()}};
  runtime->functions.parallel(
      [](void* data) {
        Union& found = *static_cast<Union*>(data);
        try {
          const CoreList cores = thread_affinity();
          const std::lock_guard lock(found.mutex);
          found.cores.insert(cores.begin(), cores.end());
        } catch (const std::bad_alloc&) {  // without its cores, then
        }
      },
      &all, 0, 0);
  return {all.cores.begin(), all.cores.end()};
}
}  // namespace gemmtune::cpu
