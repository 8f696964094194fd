// How long threads of this process waited for a processor because others had them.
#pragma once

#include <cstdint>
#include <vector>

namespace gemmtune::cpu {

/// Linux counts for each thread how long it was ready to run and did not (/proc/<process>/task/<thread>/schedstat, the
/// second number, nanoseconds). A call of a kernel during which a thread waited says how busy the machine is, and nothing
/// of the kernel.
class ProcessorWaits {
 public:
  ProcessorWaits() = default;
  ProcessorWaits(const ProcessorWaits&) = delete;
  ProcessorWaits& operator=(const ProcessorWaits&) = delete;
  ~ProcessorWaits() { close(); }

  /// Looks which threads the process has now, and begins to count. Without schedstat (a kernel without scheduler
  /// statistics, no file descriptor left) there are none, and nobody ever waits.
  void begin();
  /// What the threads of begin() waited since then or since the last call, summed, in microseconds.
  double since_last();

 private:
  struct Thread {
    int file = -1;
    std::uint64_t nanoseconds = 0;  // at the last reading
  };
  void close();

  std::vector<Thread> threads_;
};

}  // namespace gemmtune::cpu
