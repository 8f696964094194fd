#include "interpose/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "interpose/symbol.h"

namespace gemmtune::interpose {
namespace {

struct Driver {
  bool here = false;
  int (*current_context)(const void**) = nullptr;
  int (*current_device)(int*) = nullptr;
  int (*primary_retain)(const void**, int) = nullptr;
  int (*primary_release)(int) = nullptr;
  int (*capture_info)(void*, int*, std::uint64_t*, void*, void*, void*) = nullptr;
  int (*exchange_mode)(int*) = nullptr;
  int (*allocate)(unsigned long long*, std::size_t) = nullptr;
};

Driver find_driver() {
  Driver found;
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return found;
  found.here = true;
  const auto find = [&](const char* name, auto& function) { find_symbol(library, name, function); };
  find("cuCtxGetCurrent", found.current_context);
  find("cuCtxGetDevice", found.current_device);
  find("cuDevicePrimaryCtxRetain", found.primary_retain);
  find("cuDevicePrimaryCtxRelease_v2", found.primary_release);
  find("cuStreamGetCaptureInfo_v2", found.capture_info);
  find("cuThreadExchangeStreamCaptureMode", found.exchange_mode);
  find("cuMemAlloc_v2", found.allocate);
  return found;
}

const Driver& driver() {
  static const Driver found = find_driver();
  return found;
}

}  // namespace

bool has_driver() { return driver().here; }

Place current_place() {
  const Driver& f = driver();
  Place place;
  if (!f.here) {
    place.known = true;
  } else if (f.current_context != nullptr) {
    place.known = f.current_context(&place.context) == 0 && place.context != nullptr;
  }
  return place;
}

int primary_device(const void* context) {
  const Driver& f = driver();
  int device = -1;
  if (f.current_device == nullptr || f.primary_retain == nullptr || f.primary_release == nullptr) return -1;
  if (f.current_device(&device) != 0) return -1;
  const void* primary = nullptr;
  if (f.primary_retain(&primary, device) != 0) return -1;
  f.primary_release(device);
  return primary == context ? device : -1;
}

Capture capture_of(void* stream) {
  const Driver& f = driver();
  if (!f.here) return {};
  int status = 0;
  std::uint64_t id = 0;
  // An error: another stream is captured so that the default stream must not be touched.
  if (f.capture_info == nullptr || f.capture_info(stream, &status, &id, nullptr, nullptr, nullptr) != 0)
    return {true, 0};
  return {status != 0, status != 0 ? id : 0};
}

RelaxedCapture::RelaxedCapture() {
  if (driver().exchange_mode != nullptr) driver().exchange_mode(&mode_);
}

RelaxedCapture::~RelaxedCapture() {
  if (driver().exchange_mode != nullptr) driver().exchange_mode(&mode_);
}

void* allocate(std::size_t bytes) {
  const Driver& f = driver();
  if (!f.here) return std::aligned_alloc(64, bytes);
  unsigned long long address = 0;
  if (f.allocate == nullptr || f.allocate(&address, bytes) != 0) return nullptr;
  return reinterpret_cast<void*>(address);
}

}  // namespace gemmtune::interpose
