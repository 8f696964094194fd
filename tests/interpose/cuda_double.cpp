// A double of libcuda with a current context, and with GEMMTUNE_TEST_CAPTURING a stream that is being captured. It is too small
// for gemmtune to compute with.
#include <cstdint>
#include <cstdlib>

#define DOUBLE extern "C" __attribute__((visibility("default"))) int

namespace {
int primary = 0;
int other = 0;
}  // namespace

DOUBLE cuCtxGetCurrent(void** context) {
  *context = std::getenv("GEMMTUNE_TEST_OTHER_CONTEXT") != nullptr ? &other : &primary;
  return 0;
}
DOUBLE cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
DOUBLE cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &primary;
  return 0;
}
DOUBLE cuDevicePrimaryCtxRelease_v2(int) { return 0; }
DOUBLE cuStreamGetCaptureInfo_v2(void*, int* status, std::uint64_t* id, void*, void*, void*) {
  *status = std::getenv("GEMMTUNE_TEST_CAPTURING") != nullptr ? 1 : 0;
  *id = 7;
  return 0;
}
