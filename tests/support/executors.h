// Executors for tests of kernels: one that only says how many threads it has, one with a second thread.
#pragma once

#include <cstdint>
#include <thread>

#include "backends/cpu/threads/executor.h"

namespace gemmtune::cpu {

/// Runs all parts on the caller, the last part first.
class SerialExecutor final : public Executor {
 public:
  explicit SerialExecutor(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void parallel_for(std::int64_t parts, Body body, void* context) override {
    for (std::int64_t part = parts; part-- > 0;) body(context, part);
  }

 private:
  int threads_;
};

/// Odd parts run on a thread of their own.
class TwoThreadExecutor final : public Executor {
 public:
  int threads() const override { return 2; }
  void parallel_for(std::int64_t parts, Body body, void* context) override {
    std::thread odd([&] {
      for (std::int64_t part = 1; part < parts; part += 2) body(context, part);
    });
    for (std::int64_t part = 0; part < parts; part += 2) body(context, part);
    odd.join();
  }
};

}  // namespace gemmtune::cpu
