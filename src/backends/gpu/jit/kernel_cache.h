// Compiled kernels on disk, shared by processes: <folder>/<key>.kernel. The key covers the source, the
// device files that it includes, its defines, the architecture, and the compiler's identity and flags.
#pragma once

#include <string>
#include <vector>

#include "backends/compiled_kernels.h"
#include "backends/gpu/jit/compiler.h"
#include "backends/gpu/jit/device_files.h"

namespace gemmtune::gpu {

/// 32 hexadecimal digits. `all`: the files that the source may include.
std::string cache_key(const Compiler& compiler, const Source& source, std::string_view architecture,
                      std::span<const DeviceFile> all = device_files());

/// Files are written to a temporary one and renamed, so that a reader sees all of one or none; a damaged one
/// (its length or hash is off, its code is not the architecture's) is removed and compiled again. A folder that other users may
/// write is not used: what it holds runs in this process. Safe from any thread and process.
class KernelCache {
 public:
  /// An empty folder: nothing is kept. `rebuild`: nothing is read, everything is written anew. Sources of what
  /// get() is asked for are left in `source_folder` (<source>_<key>.cu, complete, defines as its first lines); empty:
  /// nowhere.
  explicit KernelCache(std::string folder, bool rebuild = false, std::string source_folder = {})
      : folder_(std::move(folder)), rebuild_(rebuild), source_folder_(std::move(source_folder)) {}

  /// From the cache, else from the compiler. A cache that cannot be written costs time, never the kernel.
  Result<Binary> get(const Compiler& compiler, const Source& source, std::string_view architecture) const;

  const std::string& folder() const { return folder_; }
  /// An error if other users may write the folder.
  Status check_folder() const;
  /// The kernels in the folder, in no order.
  std::vector<CompiledKernel> list() const;
  /// Removes all kernels, and what killed processes left; how many kernels there were.
  Result<int> clear() const;

 private:
  Result<Binary> kept(const std::string& path, const Compiler& compiler, std::string_view architecture) const;
  void leave_source(const Compiler& compiler, const Source& source, std::string_view architecture) const;

  std::string folder_;
  bool rebuild_;
  std::string source_folder_;
};

}  // namespace gemmtune::gpu
