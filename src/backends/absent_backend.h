// A backend that this build knows by name only: it says why it has no device.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "backends/backend.h"
#include "backends/traits.h"

namespace gemmtune {

class AbsentBackend final : public Backend {
 public:
  AbsentBackend(std::string_view name, std::string why) : name_(name), why_(std::move(why)) {}

  std::string_view name() const override { return name_; }
  const DeviceTraits& traits() const override { return traits_; }
  Status available() const override { return Status::unsupported("backend {}: {}", name_, why_); }
  std::vector<DeviceInfo> devices(const DeviceRequest&) const override { return {}; }
  Result<std::unique_ptr<Device>> open(const DeviceRequest&) const override { return available(); }

 private:
  std::string_view name_;
  std::string why_;
  DeviceTraits traits_;
};

}  // namespace gemmtune
