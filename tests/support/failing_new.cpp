// operator new that fails, for programs that must survive it: GEMMTUNE_FAIL_NEW="FIRST COUNT" lets COUNT
// allocations of the process fail from number FIRST on (1 is the process's first), in a process whose first word
// is "worker" only with GEMMTUNE_FAIL_NEW_IN=worker, in others only without. GEMMTUNE_COUNT_NEW=FILE: the number
// of allocations, written at the end of a process that is no worker.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<long> allocations{0};

bool is_worker() {
  char words[4096];
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t bytes = file < 0 ? 0 : read(file, words, sizeof words - 1);
  if (file >= 0) close(file);
  words[bytes > 0 ? bytes : 0] = '\0';
  const char* second = words + std::strlen(words) + 1;
  return second < words + bytes && std::strcmp(second, "worker") == 0;
}

struct Plan {
  long first = 0;
  long last = -1;

  Plan() {
    const char* const in = std::getenv("GEMMTUNE_FAIL_NEW_IN");
    const bool wants_worker = in != nullptr && std::strcmp(in, "worker") == 0;
    const char* const text = std::getenv("GEMMTUNE_FAIL_NEW");
    long count = 0;
    if (text == nullptr || wants_worker != is_worker()) return;
    if (std::sscanf(text, "%ld %ld", &first, &count) == 2) last = first + count - 1;
  }
};

struct Report {
  ~Report() {
    const char* const path = std::getenv("GEMMTUNE_COUNT_NEW");
    if (path == nullptr || is_worker()) return;
    if (std::FILE* file = std::fopen(path, "w")) {
      std::fprintf(file, "%ld", allocations.load());
      std::fclose(file);
    }
  }
};

void* allocate(std::size_t bytes, std::size_t alignment) {
  static const Plan plan;
  static const Report report;
  const long number = ++allocations;
  if (number >= plan.first && number <= plan.last) return nullptr;
  return alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                        : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t at) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(at));
}
void* operator new[](std::size_t bytes, std::align_val_t at) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(at));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
