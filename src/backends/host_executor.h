// The host's own parallel_for as a CPU kernel's executor, for callers that may not see a backend's folder.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/backend.h"

namespace gemmtune {

/// What an engine hands us: runs task(task_context, part) for every part in [0, parts) and returns when all
/// are done.
struct HostParallelFor {
  using Task = void (*)(void* task_context, std::int64_t part);
  using Function = void (*)(void* context, std::int64_t parts, Task task, void* task_context);

  Function function = nullptr;
  void* context = nullptr;
  int threads = 1;  // how many parts run at once
};

/// Kernels of a CPU device run through `host` on the stream that this makes. Immutable; safe from any thread
/// as far as `host.function` is. Must outlive every run on the stream.
class HostExecutor {
 public:
  virtual ~HostExecutor() = default;
  virtual Stream stream() = 0;
};

/// Requires host.function.
std::unique_ptr<HostExecutor> make_host_executor(const HostParallelFor& host);

}  // namespace gemmtune
