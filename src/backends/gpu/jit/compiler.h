// Compiling at run time, with and without the cache on disk.
#pragma once

#include <string>

#include "backends/gpu/runtime.h"
#include "base/status.h"

namespace gemmtune::gpu {

/// Machine code and what the compiler said of it.
struct Binary {
  std::string code;
  std::string log;
};

/// A compiler for devices of any architecture it knows. Needs no device. Safe from any thread.
class Compiler {
 public:
  virtual ~Compiler() = default;
  /// "NVRTC 13.0".
  virtual const std::string& version() const = 0;
  /// The version and the file of the library: part of the cache's key. Another library that calls itself the same (a double of
  /// the tests, a patched one) makes kernels of its own.
  virtual const std::string& identity() const = 0;
  /// Part of the cache's key too.
  virtual std::string flags(std::string_view architecture) const = 0;
  /// `invalid_argument` with the compiler's log where the source is refused.
  virtual Result<Binary> compile(const Source& source, std::string_view architecture) const = 0;
  /// What the kernel of compiled code uses. `internal` where the code cannot be read.
  virtual Result<Resources> resources(const Binary& binary) const = 0;
  /// Of machine code that this process did not compile: ok if its header is that of code for this architecture.
  virtual Status check(const Binary& binary, std::string_view architecture) const = 0;
};

}  // namespace gemmtune::gpu
