// Tests on a real GPU: the first one, opened once a program; they skip where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "backends/backend.h"

namespace gemmtune {

/// nullptr where there is none.
inline Device* gpu() {
  static const std::unique_ptr<Device> device = [] {
    DeviceRequest request;
    request.text = "cuda:0";
    if (const char* folder = std::getenv("GEMMTUNE_CACHE_DIR")) request.kernel_cache_folder = folder;
    auto opened = open_device("cuda", request);
    return opened.ok() ? std::move(*opened) : nullptr;
  }();
  return device.get();
}

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu() == nullptr) GTEST_SKIP() << "no NVIDIA GPU here";
  }
};

}  // namespace gemmtune
