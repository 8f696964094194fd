// gpu::Driver over the HIP runtime.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/library_driver.h"
#include "backends/hip/hip_api.h"

namespace gemmtune::hip {

/// What gpu::LibraryDriver asks of the runtime.
struct RuntimeLibrary {
  using Functions = api::Runtime;
  using DevicePointer = api::DevicePointer;
  using MemoryHandle = api::MemoryHandle;
  using MemoryProperties = api::MemoryProperties;
  struct Untouched {
    explicit Untouched(const api::Runtime&) {}
  };
  static constexpr std::string_view prefix = "hip";
  static constexpr std::string_view allocation = "hipMalloc";
  static Status status(api::Result result, std::string_view what);
  static void forget_error(const api::Runtime& f) { f.last_error(); }
};

class HipDriver final : public gpu::LibraryDriver<RuntimeLibrary> {
 public:
  /// Over the functions of an initialized runtime (libraries.h: runtime()).
  static Result<std::unique_ptr<HipDriver>> open(const api::Runtime& functions, int ordinal);
  HipDriver(const api::Runtime& functions, int ordinal) : LibraryDriver(functions, ordinal) {}
  ~HipDriver() override;

  std::map<std::string, double> observe() const override;
  Result<double> joules() const override;
  void enter() const override { f_.set_device(ordinal_); }

  Status synchronize() override;

  Status reserve_shared(const gpu::LoadedKernel& kernel, std::size_t bytes) override;
  Status launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                Stream stream) override;

  Status record(gpu::Event event, Stream stream) override;

 private:
  Status start();
  Status record_in_capture(gpu::Event event, api::HipStream stream);
  /// The device as AMD SMI has it; null where the library is missing or does not know it.
  api::SmiProcessor monitored() const;

  mutable std::once_flag looked_up_;
  mutable api::SmiProcessor monitored_ = nullptr;
};

/// The driver of a family that the hip backend makes.
inline const HipDriver& driver_of(const gpu::FamilyContext& context) {
  return static_cast<const HipDriver&>(context.driver);
}

/// "gfx942" of "gfx942:sramecc+:xnack-": what tables and the compiler name; a code object without features runs with
/// any.
std::string_view architecture_name(std::string_view with_features);

/// Bus, device and function of "0000:c1:00.0" as AMD SMI packs them; 0 for another text.
std::uint64_t packed_bus_id(const std::string& bus_id);

}  // namespace gemmtune::hip

extern template class gemmtune::gpu::LibraryDriver<gemmtune::hip::RuntimeLibrary>;
