// gpu::Driver over the HIP runtime.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backends/gpu/driver.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/hip/hip_api.h"

namespace gemmtune::hip {

class HipDriver final : public gpu::Driver {
 public:
  /// Over the functions of an initialized runtime (libraries.h: runtime()).
  static Result<std::unique_ptr<HipDriver>> open(const api::Runtime& functions, int ordinal);
  HipDriver(const api::Runtime& functions, int ordinal) : f_(functions), ordinal_(ordinal) {}
  ~HipDriver() override;
  HipDriver(const HipDriver&) = delete;
  HipDriver& operator=(const HipDriver&) = delete;

  api::HipStream stream_of(Stream stream) const {
    return stream.handle != nullptr ? static_cast<api::HipStream>(stream.handle) : stream_;
  }

  bool captures(api::HipStream stream) const;

  const gpu::Properties& properties() const override { return properties_; }
  std::map<std::string, double> observe() const override;
  Result<double> joules() const override;
  void enter() const override { f_.set_device(ordinal_); }

  std::size_t free_memory_bytes() override;
  Result<void*> allocate(std::size_t bytes) override;
  void free(void* memory) override;
  Result<gpu::Mapping> map_page_end(std::size_t bytes) override;
  void unmap(const gpu::Mapping& mapping) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status copy_within(void* to, const void* from, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override;

  Result<gpu::LoadedKernel> load(const std::string& code, const std::string& kernel) override;
  void unload(const gpu::LoadedKernel& kernel) override;
  Status reserve_shared(const gpu::LoadedKernel& kernel, std::size_t bytes) override;
  Status launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                Stream stream) override;

  Stream own_stream() const override { return {stream_}; }
  Status wait(Stream stream) override;
  bool is_capturing(Stream stream) override { return captures(stream_of(stream)); }
  Status begin_capture(Stream stream) override;
  Result<gpu::Graph> end_capture(Stream stream) override;
  void abandon_capture(Stream stream) override;
  Status launch_graph(gpu::Graph graph, Stream stream) override;
  void destroy(gpu::Graph graph) override;
  Result<gpu::Event> create_event() override;
  void destroy(gpu::Event event) override;
  Status record(gpu::Event event, Stream stream) override;
  Result<double> milliseconds_between(gpu::Event begin, gpu::Event end) override;

 private:
  Status start();
  Status record_in_capture(gpu::Event event, api::HipStream stream);
  /// The device as AMD SMI has it; null where the library is missing or does not know it.
  api::SmiProcessor monitored() const;
  Status map(gpu::Mapping& mapping, std::size_t bytes);

  api::Runtime f_;
  int ordinal_ = 0;
  api::HipStream stream_ = nullptr;
  gpu::Properties properties_;
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
