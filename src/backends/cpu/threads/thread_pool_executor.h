// The executor of a CPU device: a pool of workers beside the caller, who is thread 0.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "backends/cpu/machine/affinity.h"
#include "backends/cpu/threads/executor.h"

namespace gemmtune::cpu {

struct PoolOptions {
  int threads = 1;   // the caller included: threads − 1 workers are started
  CoreList cores;    // empty: workers run anywhere
  bool pin = false;  // worker i stays on cores[i]; otherwise all workers may use all of `cores`
};

/// Parts are handed out one by one, so a caller never waits for a worker that is still asleep: what no worker
/// takes, it does itself. Workers spin for at most 50 µs after their last part, then sleep until the next
/// call.
///
/// Any thread may call parallel_for at any time. The first of several callers gets the workers; the others
/// (and calls from inside a part) do their parts alone. The caller's affinity is never touched. A process
/// that forks keeps a pool without workers in the child, which stays right, only slower.
class ThreadPoolExecutor final : public Executor {
 public:
  explicit ThreadPoolExecutor(PoolOptions options);
  /// No parallel_for may be running. In a child made by fork() the workers' handles are leaked.
  ~ThreadPoolExecutor() override;
  ThreadPoolExecutor(const ThreadPoolExecutor&) = delete;
  ThreadPoolExecutor& operator=(const ThreadPoolExecutor&) = delete;

  int threads() const override { return options_.threads; }
  void parallel_for(std::int64_t parts, Body body, void* context) override;

 private:
  /// A ticket is a job's number in the high half and its parts that nobody has taken yet in the low half.
  static constexpr std::uint64_t parts_mask = 0xffffffffU;

  /// Ends the workers.
  void stop();
  void worker_main(int index);
  void take_parts(std::uint64_t ticket);
  bool wait_for_work();
  void wake_workers();
  void wait_until_finished(std::int64_t parts) const;

  PoolOptions options_;
  pid_t process_;  // that has the workers: a child made by fork() does not
  std::unique_ptr<std::vector<std::thread>> workers_ = std::make_unique<std::vector<std::thread>>();

  alignas(64) std::atomic<bool> busy_{false};  // a caller has the workers
  // The job. Written by the caller that holds busy_ while no ticket is left, see take_parts.
  std::atomic<Body> body_{nullptr};
  std::atomic<void*> context_{nullptr};
  std::atomic<std::int64_t> parts_{0};
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::int64_t> finished_{0};
  alignas(64) std::atomic<std::uint32_t> wakeups_{0};  // futex word: raised with each job
  std::atomic<std::int32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace gemmtune::cpu
