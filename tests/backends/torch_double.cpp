// A libtorch_cpu.so of the tests: PyTorch's functions for threads, over threads that each call starts. It uses no OpenMP, as a PyTorch
// with its native thread pool does. With GEMMTUNE_DOUBLE_ON_OPENMP it needs an OpenMP runtime, as PyPI's PyTorch does.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#ifdef GEMMTUNE_DOUBLE_ON_OPENMP
#include <omp.h>
#endif

namespace {

std::atomic<int> threads{3};
thread_local bool in_region = false;
#ifdef GEMMTUNE_DOUBLE_ON_OPENMP
thread_local bool asked = false;
#endif

}  // namespace

extern "C" {

/// torch.set_num_threads().
__attribute__((visibility("default"))) void gemmtune_test_set_torch_threads(int count) { threads = count; }

__attribute__((visibility("default"))) std::int32_t torch_get_num_threads(std::uint32_t* count) {
#ifdef GEMMTUNE_DOUBLE_ON_OPENMP
  if (!asked) omp_set_num_threads(threads);
  asked = true;
  *count = static_cast<std::uint32_t>(omp_get_max_threads());
#else
  *count = static_cast<std::uint32_t>(in_region ? 1 : threads.load());
#endif
  return 0;
}

__attribute__((visibility("default"))) std::int32_t torch_parallel_for(
    std::int64_t begin, std::int64_t end, std::int64_t grain, void (*body)(std::int64_t, std::int64_t, void*),
    void* context) {
  const std::int64_t count =
      std::min<std::int64_t>(threads, (end - begin) / std::max<std::int64_t>(grain, 1));
  if (in_region || count <= 1) {
    body(begin, end, context);
    return 0;
  }
  const auto run = [&](std::int64_t thread) {
    in_region = true;
    body(begin + (end - begin) * thread / count, begin + (end - begin) * (thread + 1) / count, context);
    in_region = false;
  };
  std::vector<std::thread> workers;
  for (std::int64_t thread = 1; thread < count; ++thread) workers.emplace_back(run, thread);
  run(0);
  for (std::thread& worker : workers) worker.join();
  return 0;
}
}
