// What the backends of all vendors' GPUs share: devices by their number, opened over the vendor's driver.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/gpu_runtime.h"

namespace gemmtune::gpu {

class GpuBackend : public Backend {
 public:
  std::vector<DeviceInfo> devices(const DeviceRequest& request) const final;
  Result<std::unique_ptr<Device>> open(const DeviceRequest& request) const final;

 protected:
  /// GPUs that the driver shows; requires that it could be opened.
  virtual int count() const = 0;
  /// What info() of the device says, without opening it. name, backend and libraries are filled in by the caller.
  virtual Result<DeviceInfo> describe(int ordinal) const = 0;
  /// Those of a device whose libraries are looked for in `folder` first.
  virtual std::vector<Library> libraries(const std::string& folder) const = 0;
  virtual Result<std::unique_ptr<GpuRuntime>> open_runtime(int ordinal,
                                                           const DeviceRequest& request) const = 0;
  virtual std::span<const FamilyEntry* const> entries() const = 0;

 private:
  Result<DeviceInfo> info_of(int ordinal, const std::string& library_folder) const;
};

/// A runtime with the cache and the threads of a request.
std::unique_ptr<GpuRuntime> make_runtime(std::unique_ptr<Driver> driver,
                                         Result<std::unique_ptr<Compiler>> compiler,
                                         const DeviceRequest& request);

}  // namespace gemmtune::gpu
