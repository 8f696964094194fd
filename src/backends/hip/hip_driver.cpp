#include "backends/hip/hip_driver.h"

#include <algorithm>
#include <array>

#include "backends/hip/libraries.h"
#include "base/rounding.h"

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

api::GraphExec native(gpu::Graph graph) { return reinterpret_cast<api::GraphExec>(graph); }
api::Event native(gpu::Event event) { return reinterpret_cast<api::Event>(event); }

}  // namespace

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
  return runtime_status(f_.stream_create(&stream_, api::stream_default), "hipStreamCreate");
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

// ---- memory

std::size_t HipDriver::free_memory_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  return f_.memory_info(&free, &total) == api::success ? free : 0;
}

Result<void*> HipDriver::allocate(std::size_t bytes) {
  void* block = nullptr;
  if (const api::Result result = f_.allocate(&block, bytes); result != api::success) {
    f_.last_error();  // else the next launch reports it again
    return runtime_status(result, fmt::format("hipMalloc of {} bytes", bytes));
  }
  return block;
}

void HipDriver::free(void* memory) { f_.release(memory); }

Result<gpu::Mapping> HipDriver::map_page_end(std::size_t bytes) {
  gpu::Mapping mapping;
  const Status status = map(mapping, bytes);
  if (status.ok()) return mapping;
  unmap(mapping);
  return status;
}

/// Fills `mapping` as far as it comes, for unmap(): mapped_bytes is set last.
Status HipDriver::map(gpu::Mapping& mapping, std::size_t bytes) {
  api::MemoryProperties properties{};
  properties.type = api::allocation_pinned;
  properties.location = {api::location_device, ordinal_};
  std::size_t page = 0;
  GEMMTUNE_RETURN_IF_ERROR(
      runtime_status(f_.memory_granularity(&page, &properties, 0), "hipMemGetAllocationGranularity"));
  const std::size_t usable = round_up(std::max<std::size_t>(bytes, 1), page);
  const std::size_t reserved = usable + page;
  GEMMTUNE_RETURN_IF_ERROR(
      runtime_status(f_.address_reserve(&mapping.begin, reserved, 0, nullptr, 0), "hipMemAddressReserve"));
  mapping.reserved_bytes = reserved;
  api::MemoryHandle memory = nullptr;
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.memory_create(&memory, usable, &properties, 0),
                                          fmt::format("hipMemCreate of {} bytes", usable)));
  mapping.memory = reinterpret_cast<unsigned long long>(memory);
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.memory_map(mapping.begin, usable, 0, memory, 0), "hipMemMap"));
  mapping.mapped_bytes = usable;
  const api::MemoryAccess access{properties.location, api::access_read_write};
  return runtime_status(f_.memory_access(mapping.begin, usable, &access, 1), "hipMemSetAccess");
}

void HipDriver::unmap(const gpu::Mapping& mapping) {
  if (mapping.mapped_bytes != 0) f_.memory_unmap(mapping.begin, mapping.mapped_bytes);
  if (mapping.memory != 0) f_.memory_release(reinterpret_cast<api::MemoryHandle>(mapping.memory));
  if (mapping.begin != nullptr) f_.address_free(mapping.begin, mapping.reserved_bytes);
}

Status HipDriver::copy_in(void* device, const void* host, std::size_t bytes) {
  return runtime_status(f_.copy_to_device(device, const_cast<void*>(host), bytes), "copy to the device");
}

Status HipDriver::copy_out(void* host, const void* device, std::size_t bytes) {
  return runtime_status(f_.copy_to_host(host, const_cast<void*>(device), bytes), "copy from the device");
}

Status HipDriver::copy_within(void* to, const void* from, std::size_t bytes) {
  return runtime_status(f_.copy_on_device(to, const_cast<void*>(from), bytes), "copy on the device");
}

Status HipDriver::fill(void* device, int byte, std::size_t bytes) {
  return runtime_status(f_.fill_bytes(device, static_cast<unsigned char>(byte), bytes), "fill");
}

Status HipDriver::synchronize() { return runtime_status(f_.device_synchronize(), "the device"); }

// ---- programs

Result<gpu::LoadedKernel> HipDriver::load(const std::string& code, const std::string& kernel) {
  api::Module module = nullptr;
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.module_load(&module, code.data()), "hipModuleLoadData"));
  api::Function function = nullptr;
  const Status found =
      runtime_status(f_.module_function(&function, module, kernel.c_str()), "hipModuleGetFunction " + kernel);
  if (found.ok()) return gpu::LoadedKernel{module, function};
  f_.module_unload(module);
  return found;
}

void HipDriver::unload(const gpu::LoadedKernel& kernel) {
  f_.module_unload(static_cast<api::Module>(kernel.module));
}

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

// ---- streams, graphs, events

Status HipDriver::wait(Stream stream) {
  return runtime_status(f_.stream_synchronize(stream_of(stream)), "the stream");
}

bool HipDriver::captures(api::HipStream stream) const {
  int status = api::capture_none;
  return f_.capture_status(stream, &status) == api::success && status != api::capture_none;
}

Status HipDriver::begin_capture(Stream stream) {
  return runtime_status(f_.capture_begin(stream_of(stream), api::capture_mode_thread_local),
                        "hipStreamBeginCapture");
}

Result<gpu::Graph> HipDriver::end_capture(Stream stream) {
  api::Graph captured = nullptr;
  Status status = runtime_status(f_.capture_end(stream_of(stream), &captured), "hipStreamEndCapture");
  api::GraphExec graph = nullptr;
  if (status.ok()) status = runtime_status(f_.graph_instantiate(&graph, captured, 0), "hipGraphInstantiate");
  if (captured != nullptr) f_.graph_destroy(captured);
  if (!status.ok()) return status;
  status = runtime_status(f_.graph_upload(graph, stream_of(stream)), "hipGraphUpload");
  if (status.ok()) return reinterpret_cast<gpu::Graph>(graph);
  f_.graph_exec_destroy(graph);
  return status;
}

void HipDriver::abandon_capture(Stream stream) {
  api::Graph captured = nullptr;
  f_.capture_end(stream_of(stream), &captured);
  if (captured != nullptr) f_.graph_destroy(captured);
  f_.last_error();
}

Status HipDriver::launch_graph(gpu::Graph graph, Stream stream) {
  return runtime_status(f_.graph_launch(native(graph), stream_of(stream)), "hipGraphLaunch");
}

void HipDriver::destroy(gpu::Graph graph) { f_.graph_exec_destroy(native(graph)); }

Result<gpu::Event> HipDriver::create_event() {
  api::Event event = nullptr;
  GEMMTUNE_RETURN_IF_ERROR(runtime_status(f_.event_create(&event, api::event_default), "hipEventCreate"));
  return reinterpret_cast<gpu::Event>(event);
}

void HipDriver::destroy(gpu::Event event) { f_.event_destroy(native(event)); }

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

Result<double> HipDriver::milliseconds_between(gpu::Event begin, gpu::Event end) {
  float milliseconds = 0;
  GEMMTUNE_RETURN_IF_ERROR(
      runtime_status(f_.event_elapsed(&milliseconds, native(begin), native(end)), "hipEventElapsedTime"));
  return static_cast<double>(milliseconds);
}

}  // namespace gemmtune::hip
