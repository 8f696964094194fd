// driver.h: the functions of a GPU's driver that gemmtune calls, for one opened device. Everything else in
// gpu/ is written against this interface; CUDA (cuda/cuda_driver.h) and the tests' host memory
// (tests/support/fake_driver.h) implement it.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "backends/backend.h"
#include "base/status.h"

namespace gemmtune::gpu {

/// What a kernel has to fit into. Bytes are of shared memory.
struct Limits {
  int multiprocessors = 0;
  int registers_per_thread = 255;
  std::size_t shared_bytes_per_block = 0;           // maximum of one block
  std::size_t shared_bytes_per_multiprocessor = 0;  // each block occupies 1 KiB beside what it requests
  std::size_t cache_bytes = 0;                      // the last-level cache, as the driver states it
  // Whether all blocks of a launch can be resident together, one on each of the multiprocessors: the driver has cooperative launches, and this process the whole device.
  bool cooperative_launches = true;
  // What the driver states of the card, by which cost models know it (gpu/families/fitted.h); 0: not known.
  double memory_bytes_per_microsecond = 0;  // at most
  double cycles_per_microsecond = 0;        // of a multiprocessor at its highest clock
};

/// Facts of an opened device.
struct Properties {
  std::string architecture;  // the compiler's name: "sm_90a", "gfx942"
  Limits limits;
};

/// What only one kind of GPU has in a launch (clusters, dependent launches). A family that runs on that kind
/// alone fills it, the driver of that kind reads it.
struct LaunchExtension {};

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};
  unsigned threads = 1;
  std::size_t shared_bytes = 0;                // dynamic
  const LaunchExtension* extension = nullptr;  // of the device's driver; null: none
};
/// "launch of 3x1x1 blocks of 256 threads, 0 bytes of shared memory", for messages.
std::string describe(const LaunchShape& shape);

/// A kernel in a loaded module.
struct LoadedKernel {
  void* module = nullptr;
  void* function = nullptr;
};

/// Device memory whose end is followed by addresses that are reserved and not mapped.
struct Mapping {
  void* begin = nullptr;
  std::size_t mapped_bytes = 0;    // of which the caller uses the last ones
  std::size_t reserved_bytes = 0;  // with the unmapped addresses
  unsigned long long memory = 0;   // the driver's handle
};

struct EventTag;
struct GraphTag;
using Event = EventTag*;
using Graph = GraphTag*;

/// Safe from any thread. Functions but enter() and launch() require that the calling thread has entered the
/// device. Errors: `out_of_memory`, else `internal`: "<what>: <the driver's name of the error>: <its text>".
/// After a fault (an illegal address …) every function fails.
class Driver {
 public:
  virtual ~Driver() = default;
  virtual const Properties& properties() const = 0;
  /// Clocks in MHz, temperature, reasons to throttle; empty where the vendor's monitor is missing.
  virtual std::map<std::string, double> observe() const = 0;
  /// The energy that the device has taken since some moment, by the vendor's monitor. `unsupported` where it counts none.
  /// From any thread.
  virtual Result<double> joules() const = 0;
  /// Makes the device the calling thread's.
  virtual void enter() const = 0;

  virtual std::size_t free_memory_bytes() = 0;
  /// At a multiple of 256 bytes.
  virtual Result<void*> allocate(std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  /// At least `bytes` bytes, mapped up to the last byte before addresses that fault.
  virtual Result<Mapping> map_page_end(std::size_t bytes) = 0;
  virtual void unmap(const Mapping& mapping) = 0;
  virtual Status copy_in(void* device, const void* host, std::size_t bytes) = 0;
  /// Waits for the copy.
  virtual Status copy_out(void* host, const void* device, std::size_t bytes) = 0;
  virtual Status copy_within(void* to, const void* from, std::size_t bytes) = 0;
  virtual Status fill(void* device, int byte, std::size_t bytes) = 0;
  /// Waits for all work of the device.
  virtual Status synchronize() = 0;

  /// `code` is what the device's compiler made; `kernel` its extern "C" name.
  virtual Result<LoadedKernel> load(const std::string& code, const std::string& kernel) = 0;
  virtual void unload(const LoadedKernel& kernel) = 0;
  /// Allows launches to ask for this much dynamic shared memory.
  virtual Status reserve_shared(const LoadedKernel& kernel, std::size_t bytes) = 0;
  /// Enters the device and enqueues. `arguments` points at each argument's value, in order.
  virtual Status launch(const LoadedKernel& kernel, const LaunchShape& shape, void** arguments,
                        Stream stream) = 0;

  /// What makes a launch a programmatic dependent one, which may start while the kernel in front of it still runs; null where
  /// the device has none. Its kernel waits (griddepcontrol.wait) before it reads or writes.
  virtual const LaunchExtension* dependent_launch() const { return nullptr; }

  /// The stream that a null handle means: it waits for copies and fills.
  virtual Stream own_stream() const = 0;
  virtual Status wait(Stream stream) = 0;
  virtual bool is_capturing(Stream stream) = 0;
  /// Work that this thread enqueues on the stream becomes a graph's.
  virtual Status begin_capture(Stream stream) = 0;
  /// Ends a capture; the graph is on the device already, so that its first launch costs as much as others.
  virtual Result<Graph> end_capture(Stream stream) = 0;
  /// Ends a capture whose graph is not wanted.
  virtual void abandon_capture(Stream stream) = 0;
  virtual Status launch_graph(Graph graph, Stream stream) = 0;
  virtual void destroy(Graph graph) = 0;
  virtual Result<Event> create_event() = 0;
  virtual void destroy(Event event) = 0;
  /// In a capture: records each time that the graph runs.
  virtual Status record(Event event, Stream stream) = 0;
  /// Requires that both were reached.
  virtual Result<double> milliseconds_between(Event begin, Event end) = 0;
};

}  // namespace gemmtune::gpu
