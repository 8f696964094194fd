#include "support/dispatch_allocation_count.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

std::atomic<long> counter{0};

/// Of one thread. Constant-initialized: operator new may run at any time.
struct Plan {
  long until = 0;  // allocations until one fails; 0: none will
  bool always = false;
  long failed = 0;
  bool loads_library = false;
  bool spared = false;  // by NoMemoryForOtherThreads
};
thread_local constinit Plan plan;
std::atomic<bool> others_fail{false};
std::atomic<long> others_failed{0};

bool fails() {
  if (plan.loads_library) return false;
  if (others_fail.load(std::memory_order_relaxed) && !plan.spared) {
    others_failed.fetch_add(1);
    return true;
  }
  if (plan.until == 0) return false;
  if (plan.until > 1) {
    --plan.until;
    return false;
  }
  if (!plan.always) plan.until = 0;
  ++plan.failed;
  return true;
}

void* counted(std::size_t bytes, std::size_t alignment = 0) noexcept {
  counter.fetch_add(1, std::memory_order_relaxed);
  if (fails()) return nullptr;
  return alignment > 0 ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                       : std::malloc(bytes > 0 ? bytes : 1);
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment = 0) {
  if (void* memory = counted(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return counted_or_throw(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
// std::stable_sort does without: not counted, and never fails.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" void* dlopen(const char* path, int mode) {
  static const auto real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  plan.loads_library = true;
  void* const handle = real(path, mode);
  plan.loads_library = false;
  return handle;
}

namespace gemmtune::test {

long allocations() { return counter.load(); }

void fail_allocations(long number, bool always) {
  plan.until = number;
  plan.always = always;
  plan.failed = 0;
}

long stop_failing() {
  plan.until = 0;
  return std::exchange(plan.failed, 0);
}

NoMemoryForOtherThreads::NoMemoryForOtherThreads() {
  plan.spared = true;
  others_failed = 0;
  others_fail = true;
}

NoMemoryForOtherThreads::~NoMemoryForOtherThreads() {
  others_fail = false;
  plan.spared = false;
}

long NoMemoryForOtherThreads::failed() { return others_failed.load(); }

}  // namespace gemmtune::test
