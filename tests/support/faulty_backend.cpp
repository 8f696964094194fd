// all_backends() of gemmtune_faulty: the program's commands on the faulty device.
#include <array>
#include <memory>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/cpu_backend.h"
#include "support/faulty_device.h"

namespace gemmtune {
namespace {

class FaultyBackend final : public Backend {
 public:
  std::string_view name() const override { return "fake"; }
  const DeviceTraits& traits() const override { return cpu::cpu_backend().traits(); }
  Status available() const override { return {}; }
  std::vector<DeviceInfo> devices(const DeviceRequest&) const override {
    return {testing::make_faulty_device()->info()};
  }
  Result<std::unique_ptr<Device>> open(const DeviceRequest&) const override {
    return std::unique_ptr<Device>(testing::make_faulty_device());
  }
};

}  // namespace

std::span<const Backend* const> all_backends() {
  static const FaultyBackend faulty;
  static const std::array<const Backend*, 1> list{&faulty};
  return list;
}

}  // namespace gemmtune
