#include "backends/library_baseline.h"

#include <utility>

#include "backends/forwarding_device.h"

namespace gemmtune {
namespace {

class LibraryBaselineDevice final : public ForwardingDevice {
 public:
  explicit LibraryBaselineDevice(std::unique_ptr<Device> device)
      : ForwardingDevice(*device), device_(std::move(device)) {}

  Result<Candidate> fallback(const Problem& problem) const override {
    auto library = baseline(problem);
    return library.ok() ? library : ForwardingDevice::fallback(problem);
  }

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<Device> with_library_baseline(std::unique_ptr<Device> device) {
  return std::make_unique<LibraryBaselineDevice>(std::move(device));
}

}  // namespace gemmtune
