// A GPU's driver and compiler without a GPU: host memory, launches that are recorded and run as functions of
// the test, and faults where a test wants them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/gpu/jit/compiler.h"

namespace gemmtune::testing {

struct FakeLaunch {
  std::string kernel;
  gpu::LaunchShape shape;
  Stream stream;
  bool captured = false;  // into a graph: its function is not run
};

/// What the driver's calls act on; outlives the drivers, so that a test sees what they left behind. Calls may
/// come from any thread; the members are read while none runs.
struct FakeGpu {
  FakeGpu();

  gpu::Properties properties;  // an H200's limits, architecture "fake_1"
  std::size_t free_bytes = std::size_t{1} << 30;
  double milliseconds = 1;   // between two events
  double graph_seconds = 0;  // that enqueuing a graph waits for others, as where the queue is full
  std::function<Result<double>()> joules;  // what the monitor counts; empty: it counts none
  /// By the kernel's name, on the launching thread; kernels without one do nothing.
  std::map<std::string, std::function<void(const gpu::LaunchShape&, void** arguments)>> run;

  /// The next call of this name fails once.
  void fail_next(const std::string& call, Status status) { failures[call] = std::move(status); }
  /// From now on every call fails so, as after an illegal address.
  void lose(Status status) { fault = std::move(status); }

  std::vector<std::string> calls;  // names of the driver's functions, in their order, without enter
  std::vector<FakeLaunch> launches;
  int calls_outside = 0;  // of threads that had not entered the device
  bool capturing = false;
  bool open = false;
  // What exists now:
  std::map<void*, std::size_t> blocks;
  int mappings = 0;
  int modules = 0;
  int graphs = 0;
  int events = 0;

  /// All calls since the last time, and none of them kept.
  std::vector<std::string> take_calls();
  /// Whether all that was made is gone.
  bool is_clean() const { return blocks.empty() && mappings + modules + graphs + events == 0; }

  std::map<std::string, Status> failures;
  Status fault;
  std::set<std::thread::id> entered;
  mutable std::mutex lock;
};

std::unique_ptr<gpu::Driver> make_fake_driver(FakeGpu& gpu);

/// Code is the source's kernel name. A text with "bad" is refused, one with "spills" keeps registers in memory, one with
/// "static" has 4096 bytes of static shared memory.
class FakeCompiler final : public gpu::Compiler {
 public:
  /// `compiled` counts; it outlives the compiler.
  explicit FakeCompiler(std::vector<std::string>& compiled) : compiled_(compiled) {}
  const std::string& version() const override { return version_; }
  const std::string& identity() const override { return version_; }
  std::string flags(std::string_view) const override { return {}; }
  Result<gpu::Binary> compile(const gpu::Source& source, std::string_view architecture) const override;
  Result<gpu::Resources> resources(const gpu::Binary& binary) const override;
  Status check(const gpu::Binary&, std::string_view) const override { return {}; }

 private:
  std::string version_ = "fake 1";
  std::vector<std::string>& compiled_;  // guarded by lock_
  mutable std::mutex lock_;
};

}  // namespace gemmtune::testing
