// A GPU as kernel families see it: sources are compiled at run time for the device at hand, kept on disk,
// loaded, and launched on a stream.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/driver.h"
#include "base/status.h"

namespace gemmtune::gpu {

/// One program with one kernel.
struct Source {
  std::string name;  // for messages: "simt"
  std::string text;  // what is generated, then include_line() of a device file (jit/device_files.h)
  std::vector<std::string> defines;  // "ROWS=64"
  std::string kernel;                // extern "C" name
};

/// What a compiled kernel uses.
struct Resources {
  int registers = 0;    // of a thread
  int stack_bytes = 0;  // of a thread: spilled registers, arrays that are indexed at run time
  std::size_t static_shared_bytes = 0;

  /// ok, or why such a kernel is not used: what it keeps in its stack lies in device memory.
  Status acceptable(std::string_view name) const;
};

/// A loaded kernel. Immutable; launches from any number of threads.
class Program {
 public:
  virtual ~Program() = default;
  virtual const Resources& resources() const = 0;
  virtual const LoadedKernel& loaded() const = 0;
  /// Allows launches to ask for this much dynamic shared memory. Called before the first launch.
  virtual Status reserve_shared(std::size_t bytes) = 0;
  /// Enqueues. `arguments` points at each argument's value, in order.
  virtual Status launch(const LaunchShape& shape, void** arguments, Stream stream) const = 0;
};

/// A device that compiles and launches. Safe from any thread.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const Limits& limits() const = 0;
  /// Properties::architecture.
  virtual const std::string& architecture() const = 0;
  /// Compiles (or finds in the cache) and loads; one program a source for the life of the device.
  virtual Result<std::shared_ptr<Program>> load(const Source& source) = 0;
};

}  // namespace gemmtune::gpu
