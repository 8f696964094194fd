// Threads of a kernel on one thread of the host: each has a stack, and control goes from one to another by name.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gemmtune::emulation {

/// A point of execution: of a fiber, or of the thread that resumes fibers.
class Fiber {
 public:
  /// `entry` must not return.
  void prepare(void* stack, std::size_t bytes, void (*entry)());
  /// Continues `to` from where it was; returns when something switches back to this one.
  void switch_to(Fiber& to);

 private:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
};

}  // namespace gemmtune::emulation
