// Compiled kernels on disk, shared by processes: <folder>/<key>.kernel. The key covers the source, its
// defines, the architecture, and the compiler's version and flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/compiled_kernels.h"
#include "backends/gpu/jit/compiler.h"

namespace gemmtune::gpu {

/// 32 hexadecimal digits.
std::string cache_key(const Compiler& compiler, const Source& source, std::string_view architecture);

/// Files are written to a temporary one and renamed, so that a reader sees all of one or none; a damaged one
/// (its length or hash is off) is compiled again and replaced. Safe from any thread and process.
class KernelCache {
 public:
  /// An empty folder: nothing is kept. `rebuild`: nothing is read, everything is written anew. Sources of what
  /// get() is asked for are left in `source_folder` (<source>_<key>.cu, defines as its first lines); empty:
  /// nowhere.
  explicit KernelCache(std::string folder, bool rebuild = false, std::string source_folder = {})
      : folder_(std::move(folder)), rebuild_(rebuild), source_folder_(std::move(source_folder)) {}

  /// From the cache, else from the compiler. A cache that cannot be written costs time, never the kernel.
  Result<Binary> get(const Compiler& compiler, const Source& source, std::string_view architecture) const;

  const std::string& folder() const { return folder_; }
  /// The kernels in the folder, in no order.
  std::vector<CompiledKernel> list() const;
  /// Removes all kernels; how many there were.
  Result<int> clear() const;

 private:
  void leave_source(const Compiler& compiler, const Source& source, std::string_view architecture) const;

  std::string folder_;
  bool rebuild_;
  std::string source_folder_;
};

}  // namespace gemmtune::gpu
