// The threads of a PyTorch that is loaded in this process, through its stable C interface (PyTorch 2.10 and later).
#pragma once

#include <cstdint>

namespace gemmtune::cpu {

struct TorchThreads {
  /// torch_parallel_for: body(from, to, context) over a division of [begin, end). 0 if it succeeds. Inside a parallel
  /// region of PyTorch's it is one call on the calling thread.
  std::int32_t (*parallel_for)(std::int64_t begin, std::int64_t end, std::int64_t grain,
                               void (*body)(std::int64_t from, std::int64_t to, void* context),
                               void* context) = nullptr;
  std::int32_t (*get_num_threads)(std::uint32_t* threads) = nullptr;

  bool found() const { return parallel_for != nullptr && get_num_threads != nullptr; }
  /// At least 1. The first call on a thread gives that thread's OpenMP team the size of torch.set_num_threads().
  int threads() const {
    std::uint32_t count = 1;
    return get_num_threads(&count) == 0 && count > 0 ? static_cast<int>(count) : 1;
  }
};

}  // namespace gemmtune::cpu
