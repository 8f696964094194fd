#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "evaluate/worker/worker_protocol.h"

namespace gemmtune {
namespace {

constexpr std::size_t page_bytes = 4096;
// One word, so that no reader sees half of a step: request, candidate + 1 (0: none), steps, step.
constexpr int request_bits = 16;
constexpr int candidate_bits = 16;
constexpr int steps_bits = 28;

constexpr std::uint64_t low(std::uint64_t value, int bits) {
  return value & ((std::uint64_t{1} << bits) - 1);
}

std::uint64_t pack(const WorkerState& state) {
  std::uint64_t word = static_cast<std::uint64_t>(state.step);
  word = word << steps_bits | low(state.steps, steps_bits);
  word = word << candidate_bits | low(state.candidate ? *state.candidate + 1 : 0, candidate_bits);
  return word << request_bits | low(state.request, request_bits);
}

WorkerState unpack(std::uint64_t word) {
  WorkerState state;
  state.request = static_cast<std::uint32_t>(low(word, request_bits));
  word >>= request_bits;
  if (const std::uint64_t candidate = low(word, candidate_bits); candidate > 0)
    state.candidate = static_cast<std::size_t>(candidate - 1);
  word >>= candidate_bits;
  state.steps = static_cast<std::uint32_t>(low(word, steps_bits));
  state.step = static_cast<Step>(word >> steps_bits);
  return state;
}

Result<std::atomic<std::uint64_t>*> map(int descriptor) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  void* page = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (page == MAP_FAILED) return Status::io("the worker's page cannot be mapped: {}", std::strerror(errno));
  return static_cast<std::atomic<std::uint64_t>*>(page);  // zero in a new file: a state without request
}

}  // namespace

Result<WorkerPage> WorkerPage::make() {
  const int descriptor = memfd_create("gemmtune-worker", MFD_CLOEXEC);
  if (descriptor < 0 || ftruncate(descriptor, page_bytes) != 0) {
    const Status status = Status::io("no page for a worker: {}", std::strerror(errno));
    if (descriptor >= 0) close(descriptor);
    return status;
  }
  const auto word = map(descriptor);
  if (word.ok()) return WorkerPage(*word, descriptor);
  close(descriptor);
  return word.status();
}

Result<WorkerPage> WorkerPage::attach(int descriptor) {
  GEMMTUNE_TRY(const auto word, map(descriptor));
  return WorkerPage(word, -1);
}

WorkerPage::WorkerPage(WorkerPage&& other) noexcept
    : word_(std::exchange(other.word_, nullptr)), descriptor_(std::exchange(other.descriptor_, -1)) {}

WorkerPage::~WorkerPage() {
  if (word_ != nullptr) munmap(word_, page_bytes);
  if (descriptor_ >= 0) close(descriptor_);
}

void WorkerPage::write(const WorkerState& state) { word_->store(pack(state), std::memory_order_release); }

WorkerState WorkerPage::read() const { return unpack(word_->load(std::memory_order_acquire)); }

}  // namespace gemmtune
