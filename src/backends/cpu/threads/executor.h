// Executor: who runs the parts of a CPU kernel. The caller is thread 0; the tuner's workers are pinned,
// service's never are (docs/threads.md).
#pragma once

#include <cstdint>
#include <type_traits>

namespace gemmtune::cpu {

/// Runs `body(context, part)` for every part in [0, parts), the caller among the workers, and returns when
/// all are done. Parts may run one after another on one thread: a body must not wait for another part. No
/// allocation.
class Executor {
 public:
  using Body = void (*)(void* context, std::int64_t part);

  virtual ~Executor() = default;
  /// How many parts can run at once; a kernel splits its work into at most this many parts.
  virtual int threads() const = 0;
  virtual void parallel_for(std::int64_t parts, Body body, void* context) = 0;

  /// For a callable (int64 part) by reference; no copy, no allocation.
  template <typename Callable>
  void run_parts(std::int64_t parts, Callable&& callable) {
    parallel_for(
        parts,
        [](void* context, std::int64_t part) {
          (*static_cast<std::remove_reference_t<Callable>*>(context))(part);
        },
        &callable);
  }
};

inline void run_alone(std::int64_t parts, Executor::Body body, void* context) {
  for (std::int64_t part = 0; part < parts; ++part) body(context, part);
}

}  // namespace gemmtune::cpu
