// WorkspacePool: the workspaces that a context keeps for its one-call form, one for each thread and stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "dispatch/plan.h"

namespace gemmtune {

/// Safe from any thread. A workspace belongs to one thread until that ends, then the next one may have it;
/// all are freed with the pool.
class WorkspacePool : public std::enable_shared_from_this<WorkspacePool> {
 public:
  static std::shared_ptr<WorkspacePool> make(std::shared_ptr<const DispatchDevice> device);
  ~WorkspacePool();

  /// This thread's workspace of at least `bytes` on `stream`; null for 0 bytes. Allocates only where this
  /// thread's is too small. Valid until this thread's next call with the same stream.
  Result<void*> get(std::size_t bytes, const void* stream);

  /// How many buffers the pool owns; for tests.
  std::size_t buffers() const;

 private:
  friend struct ThreadWorkspaces;

  explicit WorkspacePool(std::shared_ptr<const DispatchDevice> device);
  /// Takes a free buffer of at least `bytes` or allocates one.
  Result<Buffer*> take(std::size_t bytes);
  void give_back(Buffer* buffer);

  struct Owned {
    std::unique_ptr<Buffer> buffer;
    bool in_use = false;
  };

  std::shared_ptr<const DispatchDevice> device_;  // before owned_: outlives it
  const std::uint64_t id_;                        // never used twice in a process
  mutable std::mutex mutex_;
  std::vector<Owned> owned_;
};

}  // namespace gemmtune
