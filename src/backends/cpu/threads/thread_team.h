// The executor of a CPU device: the OpenMP team of the calling thread, PyTorch's own pool, or ours.
#pragma once

#include <atomic>
#include <cstdint>

#include "backends/cpu/threads/executor.h"
#include "backends/cpu/threads/openmp_runtime.h"
#include "backends/cpu/threads/thread_pool_executor.h"
#include "backends/team.h"

namespace gemmtune::cpu {

/// On OpenMP a call is one parallel region of the whole team of the calling thread, because libgomp starts threads
/// anew if the size changes from region to region; its threads take the parts one by one. A call from inside a
/// parallel region does its parts alone, and so does any call if the runtime gives one thread.
///
/// Any thread may call parallel_for at any time. On OpenMP each of them has a team; our own pool serves one of them
/// (ThreadPoolExecutor). After fork() libgomp would wait for ever for the team of the thread that forked: the child's
/// calls on that thread run on our own pool.
///
/// Where PyTorch has a pool of its own in place of OpenMP, a call is one torch_parallel_for over as many parts as that has
/// threads. PyTorch has one pool in a process: after fork() all threads of the child run on ours.
class ThreadTeam final : public Executor {
 public:
  /// `pool`: of our own pool, which is started with the first look() that finds no runtime. Its number of threads
  /// also limits what a call uses of an OpenMP team.
  ThreadTeam(Team team, PoolOptions pool);
  /// No parallel_for may be running.
  ~ThreadTeam() override;
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  /// Looks for the runtime again: one may have been loaded meanwhile. Later calls run there, those of kernels made
  /// before included. `not_found` with Team::openmp if there is no runtime. `bounded_spin`: BoundedOpenmpSpin.
  Status look(bool bounded_spin = false);

  /// The OpenMP runtime of the calls; null for PyTorch's pool and for ours.
  const OpenmpRuntime* openmp() const { return openmp_.load(std::memory_order_acquire); }
  /// openmp, callback (the program's parallel_for, PyTorch's included) or own.
  Team running() const;
  /// How many parts can run at once in a call of this thread.
  int threads() const override;
  void parallel_for(std::int64_t parts, Body body, void* context) override;

  /// For the tuner: gives the calling thread an OpenMP team of a thread a core, pins its workers to cores[1 …] and
  /// leaves the calling thread alone. Requires openmp().
  void pin_openmp_team(const CoreList& cores) const;

 private:
  /// Our own pool, made by the first caller.
  ThreadPoolExecutor& pool();
  void run_on_pool(std::int64_t parts, Body body, void* context);
  /// Null if calls do not run on PyTorch's pool.
  const TorchThreads* torch() const;

  Team team_;
  PoolOptions options_;
  std::atomic<const OpenmpRuntime*> openmp_{nullptr};
  std::atomic<const TorchThreads*> torch_{nullptr};
  std::atomic<ThreadPoolExecutor*> pool_{nullptr};
};

/// The cores that the threads of a device may run on, ascending: those of the calling thread. If kernels will run on the program's
/// OpenMP team and that has more threads than these cores (servers pin each thread of it to a core of its own), those of the team's
/// threads too. Enters a parallel region then.
CoreList team_affinity(Team team);
}  // namespace gemmtune::cpu
