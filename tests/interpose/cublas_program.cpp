// cublas_program LIBRARY [driver] CALL…: loads the library with the calls for itself alone, as Python loads extensions.
// LIBRARY "": the calls that this program is linked with. driver: loads libcuda.so.1 first.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

extern "C" int run_calls(int count, char** words) __attribute__((weak));

int main(int count, char** words) {
  if (count < 3) return 2;
  auto* run = run_calls;
  if (std::strlen(words[1]) > 0) {
    void* const library = ::dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::fprintf(stderr, "%s\n", ::dlerror()), 2;
    run = reinterpret_cast<int (*)(int, char**)>(::dlsym(library, "run_calls"));
  }
  int first = 2;
  if (std::strcmp(words[first], "driver") == 0) {
    if (::dlopen("libcuda.so.1", RTLD_NOW) == nullptr) return std::fprintf(stderr, "%s\n", ::dlerror()), 2;
    ++first;
  }
  return run(count - first, words + first);
}
