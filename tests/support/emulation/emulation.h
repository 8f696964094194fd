// Runs GPU kernels on the host: the source text that a GPU's compiler would get is compiled by the host's compiler, and
// its threads run as fibers, wave by wave. README.md says what is emulated and what is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gemmtune::emulation {

/// Device memory that kernels may use from now on; what they access elsewhere is an error. `name` is for messages.
/// Safe from any thread, not while a kernel runs.
void register_buffer(const void* begin, std::size_t bytes, std::string name = "buffer");
void unregister_buffer(const void* begin);

/// What one launch did, counted in instructions of waves.
struct Statistics {
  std::map<std::string, std::uint64_t>
      collectives;  // MFMA, cross-lane operations and barriers by their names
  std::uint64_t lds_reads = 0;
  std::uint64_t lds_writes = 0;
  std::uint64_t lds_bytes = 0;
  std::uint64_t lds_cycles = 0;                // of all of them, without conflicts
  std::uint64_t lds_conflict_cycles = 0;       // that bank conflicts add
  std::uint64_t lds_read_conflict_cycles = 0;  // of reads alone
  std::uint64_t direct_to_lds = 0;             // global loads to LDS
  std::uint64_t global_read_bytes = 0;
  std::uint64_t global_write_bytes = 0;
};

struct Launch {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;  // dynamic
  void** arguments = nullptr;
};

/// A compiled source. Safe from any thread; launches of one module run one after another.
class Module {
 public:
  struct Loaded;
  explicit Module(std::unique_ptr<Loaded> loaded);
  ~Module();

  /// `options`: --offload-arch=gfx942 or --gpu-architecture=sm_80 (waves of 64 or 32 lanes), and -DNAME=VALUE or
  /// --define-macro=NAME=VALUE; others are ignored. The kernels' `extern "C"` definitions are found in the text. Null
  /// where the compiler refuses it, with its messages in `log` (which may be null). Shared objects are kept by content
  /// in the folder GEMMTUNE_EMULATION_CACHE, else in the build folder.
  static std::shared_ptr<Module> compile(const std::string& source, const std::vector<std::string>& options,
                                         std::string* log);

  bool has(const std::string& kernel) const;

  using Launch = emulation::Launch;
  /// "", or the first thing that went wrong: an access outside of registered buffers, a race in shared memory, lanes
  /// that part at a barrier … What the kernel had written until then is written. `statistics` (may be null) are
  /// counted only where they are asked for, because that takes time.
  std::string launch(const std::string& kernel, const Launch& launch, Statistics* statistics = nullptr) const;

 private:
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace gemmtune::emulation
