// Times calls without what their threads wait for processors: beside programs that have all of them.
#pragma once

#include <ctime>
#include <vector>

#include "backends/cpu/threads/executor.h"

namespace gemmtune::cpu {

/// Between begin() and microseconds() one thread calls kernels. A kernel that gives its parts to this executor takes what it computes
/// alone and, of each parallel_for, its longest part, whichever thread ran it. Of other kernels it is the thread of the process that ran
/// longest; threads that wait for others must sleep then, not spin.
class ProcessorClock final : public Executor {
 public:
  explicit ProcessorClock(Executor& inner) : inner_(inner) {}

  /// Threads that start later count in parts only.
  void begin();
  /// 0 if the system does not count the time of threads.
  double microseconds() const;

  int threads() const override { return inner_.threads(); }
  void parallel_for(std::int64_t parts, Body body, void* context) override;

 private:
  struct Thread {
    clockid_t clock;
    double begin;  // microseconds
  };

  Executor& inner_;
  std::vector<Thread> process_;
  double counted_ = 0;  // alone and in parts, until alone_since_
  double alone_since_ = 0;
  bool has_parts_ = false;
};

}  // namespace gemmtune::cpu
