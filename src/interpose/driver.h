// What is asked of the CUDA driver: whose context a call is in, whether a stream is being captured, memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gemmtune::interpose {

/// Where a call would run.
struct Place {
  const void* context = nullptr;  // CUcontext; null where the process has no driver
  bool known = false;             // false: no current context
};

/// A process without libcuda computes on host memory.
bool has_driver();
Place current_place();
/// The ordinal of the current device; -1 if the current context is not its primary one, which is where gemmtune's
/// kernels run.
int primary_device(const void* context);

struct Capture {
  bool active = false;  // also if the driver cannot say
  std::uint64_t id = 0;
};
Capture capture_of(void* stream);

/// While it lives, this thread may load modules and allocate although a stream of any thread is being captured.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED; then what it was
};

/// In the current context, else on the host; aligned to 64 bytes at least. Null: there is none.
void* allocate(std::size_t bytes);

}  // namespace gemmtune::interpose
