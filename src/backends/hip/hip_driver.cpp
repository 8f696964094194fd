#include "backends/hip/hip_driver.h"

#include <algorithm>
#include <array>

#include "backends/hip/libraries.h"

namespace gemmtune::hip {
namespace {

/// Of a thread that has a SIMD's 512 vector registers for itself.
constexpr int registers_per_thread = 512;

/// What the runtime states is one XCD's L2; weights also stay in the Infinity Cache behind it.
std::size_t last_level_cache_bytes(std::string_view architecture, std::size_t l2_bytes) {
  constexpr std::size_t infinity_cache_bytes = std::size_t{256} << 20;
  const bool has_one = architecture == "gfx942" || architecture == "gfx950";
  return has_one ? std::max(l2_bytes, infinity_cache_bytes) : l2_bytes;
}

}  // namespace
}  // namespace gemmtune::hip

template class gemmtune::gpu::LibraryDriver<gemmtune::hip::RuntimeLibrary>;

namespace gemmtune::hip {

Status RuntimeLibrary::status(api::Result result, std::string_view what) {
  return runtime_status(result, what);
}

std::string_view architecture_name(std::string_view with_features) {
  return with_features.substr(0, with_features.find(':'));
}

std::uint64_t packed_bus_id(const std::string& bus_id) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
  unsigned function = 0;
  if (std::sscanf(bus_id.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return 0;
  return std::uint64_t{domain} << 16 | (bus & 0xffU) << 8 | (device & 0x1fU) << 3 | (function & 7U);
}

Result<std::unique_ptr<HipDriver>> HipDriver::open(const api::Runtime& functions, int ordinal) {
  auto driver = std::make_unique<HipDriver>(functions, ordinal);
  GEMMTUNE_RETURN_IF_ERROR(driver->start());
  return driver;
}

Status HipDriver::start() {
  api::Properties seen{};
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.device_properties(&seen, ordinal_), "hipGetDeviceProperties"));
  seen.architecture[sizeof(seen.architecture) - 1] = '\0';
  properties_.architecture = architecture_name(seen.architecture);
  int values[3] = {};
  const int wanted[3] = {api::attribute_multiprocessors, api::attribute_l2_bytes,
                         api::attribute_shared_per_block};
  for (int i = 0; i < 3; ++i) {
    GEMMTUNE_RETURN_IF_ERROR(
        runtime_status(f_.device_attribute(&values[i], wanted[i], ordinal_), "hipDeviceGetAttribute"));
  }
  gpu::Limits& limits = properties_.limits;
  limits.multiprocessors = values[0];
  limits.registers_per_thread = registers_per_thread;
  limits.cache_bytes = last_level_cache_bytes(properties_.architecture, static_cast<std::size_t>(values[1]));
  // A block may have all of a compute unit's LDS.
  limits.shared_bytes_per_block = static_cast<std::size_t>(values[2]);
  limits.shared_bytes_per_multiprocessor = limits.shared_bytes_per_block;
  enter();
  return create_stream();
}

HipDriver::~HipDriver() {
  if (stream_ == nullptr) return;
  enter();
  f_.stream_destroy(stream_);
}

api::SmiProcessor HipDriver::monitored() const {
  std::call_once(looked_up_, [this] {
    const auto& opened = smi();
    std::array<char, 64> bus{};
    if (opened.ok() && f_.device_bus_id(bus.data(), static_cast<int>(bus.size()), ordinal_) == api::success)
      (void)opened.functions.by_bdf(packed_bus_id(bus.data()), &monitored_);
  });
  return monitored_;
}

Result<double> HipDriver::joules() const {
  const auto& opened = smi();
  if (!opened.ok()) return Status::unsupported("{}", opened.found.message());
  const api::SmiProcessor device = monitored();
  if (device == nullptr) return Status::unsupported("AMD SMI does not know the device");
  std::uint64_t count = 0;
  std::uint64_t time = 0;
  float microjoules = 0;
  if (const int result = opened.functions.energy(device, &count, &microjoules, &time); result != 0)
    return Status::unsupported("amdsmi_get_energy_count answers {}", result);
  return 1e-6 * static_cast<double>(microjoules) * static_cast<double>(count);
}

std::map<std::string, double> HipDriver::observe() const {
  std::map<std::string, double> seen;
  const api::SmiProcessor device = monitored();
  if (device == nullptr) return seen;
  const api::Smi& f = smi().functions;
  api::SmiClock clock{};
  if (f.clock(device, api::smi_clock_gfx, &clock) == 0) seen["sm_clock_mhz"] = clock.mhz;
  if (f.clock(device, api::smi_clock_memory, &clock) == 0) seen["memory_clock_mhz"] = clock.mhz;
  std::int64_t celsius = 0;
  if (f.temperature(device, api::smi_temperature_hotspot, api::smi_temperature_current, &celsius) == 0)
    seen["temperature_celsius"] = static_cast<double>(celsius);
  return seen;
}

Status HipDriver::synchronize() { return runtime_status(f_.device_synchronize(), "the device"); }

/// HIP needs no leave for it: what does not fit is refused here, before a launch fails.
Status HipDriver::reserve_shared(const gpu::LoadedKernel&, std::size_t bytes) {
  if (bytes <= properties_.limits.shared_bytes_per_block) return {};
  return Status::unsupported("{} bytes of LDS, a block of {} has {}", bytes, properties_.architecture,
                             properties_.limits.shared_bytes_per_block);
}

Status HipDriver::launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                         Stream stream) {
  enter();
  const api::Result result = f_.launch(
      static_cast<api::Function>(kernel.function), shape.grid[0], shape.grid[1], shape.grid[2], shape.threads,
      1, 1, static_cast<unsigned>(shape.shared_bytes), stream_of(stream), arguments, nullptr);
  if (result == api::success) return {};
  return runtime_status(result, describe(shape));
}

Status HipDriver::record(gpu::Event event, Stream stream) {
  if (is_capturing(stream)) return record_in_capture(event, stream_of(stream));
  return runtime_status(f_.event_record(native(event), stream_of(stream)), "hipEventRecord");
}

/// hipEventRecord in a capture only orders streams: the event would never be recorded. So a node of the graph records
/// it, after all that was captured and before all that will be.
Status HipDriver::record_in_capture(gpu::Event event, api::HipStream stream) {
  int state = api::capture_none;
  unsigned long long id = 0;
  api::Graph graph = nullptr;
  const api::GraphNode* before = nullptr;
  std::size_t count = 0;
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.capture_info(stream, &state, &id, &graph, &before, &count),
                                          "hipStreamGetCaptureInfo"));
  api::GraphNode node = nullptr;
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.graph_add_record(&node, graph, before, count, native(event)),
                                          "hipGraphAddEventRecordNode"));
  return runtime_status(f_.capture_depend(stream, &node, 1, api::set_dependencies),
                        "hipStreamUpdateCaptureDependencies");
}

}  // namespace gemmtune::hip
