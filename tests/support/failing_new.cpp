// operator new without memory, for programs that must survive it, and a main() around theirs (the linker's
// --wrap=main): what comes before belongs to libraries.
//
// GEMMTUNE_FAIL_NEW="FIRST once": the memory is full when main()'s allocation number FIRST comes, until one
// std::bad_alloc was thrown; "FIRST always": from then on. The program's new handler is called as ever; each of
// its calls makes room for 64 KiB. "FIRST bare": this allocation alone fails, and no new handler is called. In a process whose first word is "worker" only with
// GEMMTUNE_FAIL_NEW_IN=worker, in others only without. GEMMTUNE_COUNT_NEW=FILE: the number of allocations, written
// at the end of a process that is no worker.
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<long> allocations{0};
std::atomic<bool> counts{false};          // from main() on
thread_local bool loads_library = false;  // constructors of libraries cannot answer

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
  long first = 0;  // 0: none
  bool always = false;
  bool bare = false;

  Plan() {
    const char* const in = std::getenv("GEMMTUNE_FAIL_NEW_IN");
    const bool wants_worker = in != nullptr && std::strcmp(in, "worker") == 0;
    const char* const text = std::getenv("GEMMTUNE_FAIL_NEW");
    char word[16] = {};
    if (text == nullptr || wants_worker != is_worker()) return;
    if (std::sscanf(text, "%ld %15s", &first, word) != 2) return;
    always = std::strcmp(word, "always") == 0;
    bare = std::strcmp(word, "bare") == 0;
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

std::atomic<long> room{
    0};  // what was freed, of that since the memory is full, and what new handlers gave back
std::atomic<bool> full{false};
std::atomic<bool> thrown{false};

const Plan& the_plan() {
  static const Plan plan;
  return plan;
}

bool is_full(std::size_t bytes) {
  if (!counts || loads_library) return false;
  const Plan& plan = the_plan();
  static const Report report;
  const long number = ++allocations;
  if (plan.bare) return number == plan.first;
  if (plan.first == 0 || number < plan.first || (thrown && !plan.always)) return false;
  if (!full.exchange(true)) room = 0;
  return (room -= static_cast<long>(bytes)) < 0;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  while (is_full(bytes)) {
    const std::new_handler handler = the_plan().bare ? nullptr : std::get_new_handler();
    if (handler == nullptr) {
      thrown = true;
      return nullptr;
    }
    room = 64 << 10;
    try {
      handler();
    } catch (const std::bad_alloc&) {
      thrown = true;
      throw;
    }
  }
  return alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                        : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = allocate(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

void release(void* memory) {
  if (memory != nullptr) room += static_cast<long>(malloc_usable_size(memory));
  std::free(memory);
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
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t bytes, const std::nothrow_t& word) noexcept {
  return operator new(bytes, word);
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

extern "C" void* dlopen(const char* path, int mode) {
  static const auto real = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  loads_library = true;
  void* const handle = real(path, mode);
  loads_library = false;
  return handle;
}

// The linker's names.
extern "C" int __real_main(int argc, char** argv);  // NOLINT(bugprone-reserved-identifier)
extern "C" int __wrap_main(int argc, char** argv);  // NOLINT(bugprone-reserved-identifier)

int __wrap_main(int argc, char** argv) {
  counts = true;
  return __real_main(argc, argv);
}
