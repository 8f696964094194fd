// What CUDA and HIP share: a GPU as the families of gpu/kernels see it. Sources are compiled at run time for
// the device at hand, kept on disk, loaded, and launched on a stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune::gpu {

/// What a kernel has to fit into. Bytes are of shared memory.
struct Limits {
  int multiprocessors = 0;
  int registers_a_thread = 255;
  std::size_t shared_bytes_a_block = 0;           // the most that one block may ask for
  std::size_t shared_bytes_a_multiprocessor = 0;  // of which each block takes 1 KiB more than it asks for
  std::size_t cache_bytes = 0;                    // the last-level cache, as the driver states it
  /// Clusters of 1 to 8 blocks that run at once, a block a multiprocessor, as the driver says; 0: unknown.
  std::array<int, 9> clusters{};

  /// Of `blocks` blocks each. Groups of multiprocessors differ in size from GPU to GPU of a kind; where the
  /// driver does not say, one in eleven is left over by clusters of more than two, as on most H200s.
  int clusters_at_once(std::int64_t blocks) const {
    const int known = blocks < 9 ? clusters[static_cast<std::size_t>(blocks)] : 0;
    if (known > 0) return known;
    const std::int64_t usable = blocks > 2 ? multiprocessors * std::int64_t{10} / 11 : multiprocessors;
    return static_cast<int>(usable / blocks);
  }
};

/// One program with one kernel.
struct Source {
  std::string name;                  // for messages: "simt"
  std::string text;                  // complete: includes nothing
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

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};
  unsigned threads = 1;
  unsigned cluster = 1;          // blocks a cluster, along x
  std::size_t shared_bytes = 0;  // dynamic
  /// May start while the kernel before it on the stream still runs: the program waits for what it needs of
  /// it. A driver that cannot do that starts it in its turn.
  bool dependent = false;
};

/// A loaded kernel. Immutable; launches from any number of threads.
class Program {
 public:
  virtual ~Program() = default;
  virtual const Resources& resources() const = 0;
  /// Allows launches to ask for this much dynamic shared memory. Called before the first launch.
  virtual Status reserve_shared(std::size_t bytes) = 0;
  /// How many clusters of such a launch run at the same time (its grid is not looked at). 0: not known.
  virtual int clusters_at_once(const LaunchShape& shape) const {
    (void)shape;
    return 0;
  }
  /// Enqueues. `arguments` points at each argument's value, in order.
  virtual Status launch(const LaunchShape& shape, void** arguments, Stream stream) const = 0;
};

/// A device that compiles and launches. Safe from any thread.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const Limits& limits() const = 0;
  /// The compiler's name for the device: "sm_90a", "gfx942".
  virtual const std::string& architecture() const = 0;
  /// Compiles (or finds in the cache) and loads; one program a source for the life of the device.
  virtual Result<std::shared_ptr<Program>> load(const Source& source) = 0;
};

}  // namespace gemmtune::gpu
