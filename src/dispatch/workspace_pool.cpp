#include "dispatch/workspace_pool.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace gemmtune {

/// One thread's workspaces in all pools.
struct ThreadWorkspaces {
  struct Slot {
    std::uint64_t pool_id = 0;
    const void* stream = nullptr;
    Buffer* buffer = nullptr;
    std::weak_ptr<WorkspacePool> pool;
  };
  std::vector<Slot> slots;

  ~ThreadWorkspaces() {
    for (const Slot& slot : slots) {
      if (const auto pool = slot.pool.lock()) pool->give_back(slot.buffer);
    }
  }
  Slot* find(std::uint64_t pool_id, const void* stream) {
    for (Slot& slot : slots) {
      if (slot.pool_id == pool_id && slot.stream == stream) return &slot;
    }
    return nullptr;
  }
  /// For one slot more. Slots of pools that are gone go.
  void make_room() {
    std::erase_if(slots, [](const Slot& slot) { return slot.pool.expired(); });
    slots.reserve(slots.size() + 1);
  }
};

namespace {

std::uint64_t next_pool_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1) + 1;
}

ThreadWorkspaces& workspaces_of_this_thread() {
  static thread_local ThreadWorkspaces workspaces;
  return workspaces;
}

}  // namespace

WorkspacePool::WorkspacePool(std::shared_ptr<const DispatchDevice> device)
    : device_(std::move(device)), id_(next_pool_id()) {}

WorkspacePool::~WorkspacePool() = default;

std::shared_ptr<WorkspacePool> WorkspacePool::make(std::shared_ptr<const DispatchDevice> device) {
  return std::shared_ptr<WorkspacePool>(new WorkspacePool(std::move(device)));
}

Result<void*> WorkspacePool::get(std::size_t bytes, const void* stream) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  ThreadWorkspaces& mine = workspaces_of_this_thread();
  ThreadWorkspaces::Slot* slot = mine.find(id_, stream);
  if (slot != nullptr && slot->buffer->bytes() >= bytes) return slot->buffer->data();
  // Work enqueued on the stream may still use the old one; a CPU's is done.
  if (slot != nullptr) {
    GEMMTUNE_RETURN_IF_ERROR(device_->device->synchronize());
  } else {
    mine.make_room();  // nothing fails between take() and the slot that owns the buffer
  }
  GEMMTUNE_TRY(auto buffer, take(bytes));
  if (slot != nullptr) {
    give_back(slot->buffer);
    slot->buffer = buffer;
  } else {
    mine.slots.push_back({id_, stream, buffer, weak_from_this()});
  }
  return buffer->data();
}

Result<Buffer*> WorkspacePool::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (Owned& owned : owned_) {
    if (owned.in_use || owned.buffer->bytes() < bytes) continue;
    owned.in_use = true;
    return owned.buffer.get();
  }
  // Free ones that are too small would never be asked for again.
  std::erase_if(owned_, [](const Owned& owned) { return !owned.in_use; });
  GEMMTUNE_TRY(auto buffer, device_->device->allocate(bytes, Placement::plain));
  owned_.push_back({std::move(buffer), true});
  return owned_.back().buffer.get();
}

void WorkspacePool::give_back(Buffer* buffer) {
  const std::lock_guard lock(mutex_);
  for (Owned& owned : owned_) {
    if (owned.buffer.get() == buffer) owned.in_use = false;
  }
}

std::size_t WorkspacePool::buffers() const {
  const std::lock_guard lock(mutex_);
  return owned_.size();
}

}  // namespace gemmtune
