#include "backends/cuda/cuda_driver.h"

#include <algorithm>

#include "backends/cuda/libraries.h"

namespace gemmtune::cuda {
namespace {

/// Older drivers know programmatic dependent launches, but cannot capture them: 12.3.
constexpr int dependent_launches_since = 12030;

api::Function function_of(const gpu::LoadedKernel& kernel) {
  return static_cast<api::Function>(kernel.function);
}

}  // namespace
}  // namespace gemmtune::cuda

template class gemmtune::gpu::LibraryDriver<gemmtune::cuda::DriverLibrary>;

namespace gemmtune::cuda {

Status DriverLibrary::status(api::Result result, std::string_view what) {
  return driver_status(result, what);
}

std::string nvrtc_architecture(int compute_capability) {
  return fmt::format("sm_{}{}", compute_capability, compute_capability >= 90 ? "a" : "");
}

Result<std::unique_ptr<CudaDriver>> CudaDriver::open(const api::Driver& functions, int ordinal) {
  auto driver = std::make_unique<CudaDriver>(functions);
  GEMMTUNE_RETURN_IF_ERROR(driver->start(ordinal));
  return driver;
}

Status CudaDriver::start(int ordinal) {
  const CaptureUntouched untouched(f_);
  ordinal_ = ordinal;
  GEMMTUNE_RETURN_IF_ERROR(driver_status(f_.device_get(&device_, ordinal), "cuDeviceGet"));
  int values[7] = {};
  const int wanted[7] = {api::attribute_multiprocessors,
                         api::attribute_l2_bytes,
                         api::attribute_major,
                         api::attribute_minor,
                         api::attribute_shared_per_multiprocessor,
                         api::attribute_shared_a_block_optin,
                         api::attribute_cooperative_launch};
  for (int i = 0; i < 7; ++i) {
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(f_.device_attribute(&values[i], wanted[i], device_), "cuDeviceGetAttribute"));
  }
  int version = 0;
  GEMMTUNE_RETURN_IF_ERROR(driver_status(f_.driver_version(&version), "cuDriverGetVersion"));
  dependent_launches_ = version >= dependent_launches_since;
  capability_ = values[2] * 10 + values[3];
  properties_.architecture = nvrtc_architecture(capability_);
  gpu::Limits& limits = properties_.limits;
  limits.multiprocessors = values[0];
  limits.cache_bytes = static_cast<std::size_t>(values[1]);
  limits.shared_bytes_per_multiprocessor = static_cast<std::size_t>(values[4]);
  limits.shared_bytes_per_block = static_cast<std::size_t>(values[5]);
  limits.cycles_per_microsecond = stated(api::attribute_clock_khz) * 1e-3;
  limits.memory_bytes_per_microsecond =  // double data rate
      2 * (stated(api::attribute_memory_clock_khz) * 1e-3) * (stated(api::attribute_memory_bus_bits) / 8);
  GEMMTUNE_RETURN_IF_ERROR(driver_status(f_.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  enter();
  // Under MPS a context may have fewer multiprocessors than the device says.
  api::ExecAffinity affinity{};
  const bool partial = f_.exec_affinity != nullptr &&
                       f_.exec_affinity(&affinity, api::affinity_multiprocessors) == api::success &&
                       affinity.multiprocessors < static_cast<unsigned>(limits.multiprocessors);
  limits.cooperative_launches = values[6] != 0 && !partial;
  GEMMTUNE_RETURN_IF_ERROR(create_stream());
  count_clusters();
  return {};
}

CudaDriver::~CudaDriver() {
  if (context_ == nullptr) return;
  const CaptureUntouched untouched(f_);
  enter();
  if (stream_ != nullptr) f_.stream_destroy(stream_);
  f_.context_release(device_);
}

double CudaDriver::stated(int attribute) const {
  int value = 0;
  return f_.device_attribute(&value, attribute, device_) == api::success ? value : 0;
}

/// By a kernel that does nothing, which the driver assembles; where it does not, an estimate stands in.
void CudaDriver::count_clusters() {
  if (capability_ < 90) return;
  const std::size_t shared_bytes = properties_.limits.shared_bytes_per_block;
  const auto idle = load(fmt::format(".version 7.8\n.target sm_{}\n.address_size 64\n.visible .entry "
                                     "idle()\n{{\nret;\n}}\n",
                                     capability_),
                         "idle");
  if (!idle.ok()) return;
  if (reserve_shared(*idle, shared_bytes).ok()) {
    clusters_[1] = properties_.limits.multiprocessors;
    for (unsigned blocks = 2; blocks < clusters_.size(); ++blocks) {
      HopperLaunch launch;
      launch.cluster = blocks;
      gpu::LaunchShape shape;
      shape.threads = 128;
      shape.shared_bytes = shared_bytes;
      shape.extension = &launch;
      clusters_[blocks] = clusters_at_once(*idle, shape);
    }
  }
  unload(*idle);
}

int CudaDriver::clusters_at_once(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape) const {
  if (f_.max_active_clusters == nullptr) return 0;
  enter();
  Attributes attributes{};
  api::LaunchConfig config = config_of(shape, attributes);
  const auto* hopper = static_cast<const HopperLaunch*>(shape.extension);
  config.grid[0] = hopper != nullptr ? std::max(1U, hopper->cluster) : 1;
  config.grid[1] = config.grid[2] = 1;
  int clusters = 0;
  return f_.max_active_clusters(&clusters, function_of(kernel), &config) == api::success ? clusters : 0;
}

api::NvmlDevice CudaDriver::monitored() const {
  std::call_once(looked_up_, [this] {
    const auto& opened = nvml();
    std::array<char, 32> bus{};
    api::NvmlDevice device = nullptr;
    if (opened.ok() && f_.device_bus_id(bus.data(), static_cast<int>(bus.size()), device_) == api::success &&
        opened.functions.by_bus_id(bus.data(), &device) == 0)
      monitored_ = device;
  });
  return monitored_;
}

Result<double> CudaDriver::joules() const {
  const auto& opened = nvml();
  if (!opened.ok()) return Status::unsupported("{}", opened.found.message());
  if (opened.functions.total_energy == nullptr)
    return Status::unsupported("NVML has no nvmlDeviceGetTotalEnergyConsumption: the driver is too old");
  const api::NvmlDevice device = monitored();
  if (device == nullptr) return Status::unsupported("NVML does not know the device");
  unsigned long long millijoules = 0;
  if (const int result = opened.functions.total_energy(device, &millijoules); result != 0) {
    return Status::unsupported(
        "nvmlDeviceGetTotalEnergyConsumption answers {}: the GPU has no counter (3: older than Volta), "
        "or it cannot be read here",
        result);
  }
  return 1e-3 * static_cast<double>(millijoules);
}

std::map<std::string, double> CudaDriver::observe() const {
  const auto& opened = nvml();
  std::map<std::string, double> seen;
  const api::NvmlDevice device = monitored();
  if (device == nullptr) return seen;
  unsigned value = 0;
  if (opened.functions.clock(device, api::clock_sm, &value) == 0) seen["sm_clock_mhz"] = value;
  if (opened.functions.clock(device, api::clock_memory, &value) == 0) seen["memory_clock_mhz"] = value;
  if (opened.functions.temperature(device, 0, &value) == 0) seen["temperature_celsius"] = value;
  unsigned long long reasons = 0;
  if (opened.functions.throttle_reasons(device, &reasons) == 0)
    seen["throttle_reasons"] = static_cast<double>(reasons);
  return seen;
}

Status CudaDriver::synchronize() { return driver_status(f_.context_synchronize(), "the device"); }

Status CudaDriver::reserve_shared(const gpu::LoadedKernel& kernel, std::size_t bytes) {
  return driver_status(
      f_.function_set(function_of(kernel), api::function_max_dynamic_shared, static_cast<int>(bytes)),
      fmt::format("{} bytes of shared memory", bytes));
}

Status CudaDriver::launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                          Stream stream) {
  f_.context_set(context_);
  Attributes attributes{};
  api::LaunchConfig config = config_of(shape, attributes);
  config.stream = stream_of(stream);
  const api::Result result = f_.launch(&config, function_of(kernel), arguments, nullptr);
  if (result == api::success) return {};
  return driver_status(result, describe(shape));
}

/// `attributes` has to outlive it.
api::LaunchConfig CudaDriver::config_of(const gpu::LaunchShape& shape, Attributes& attributes) const {
  unsigned count = 0;
  if (const auto* hopper = static_cast<const HopperLaunch*>(shape.extension); hopper != nullptr) {
    if (hopper->cluster > 1) {
      api::LaunchAttribute& cluster = attributes[count++];
      cluster.id = api::launch_attribute_cluster;
      cluster.value.cluster[0] = hopper->cluster;
      cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
    }
    if (hopper->dependent && dependent_launches_) {
      api::LaunchAttribute& programmatic = attributes[count++];
      programmatic.id = api::launch_attribute_programmatic;
      programmatic.value.number = 1;
    }
    if (hopper->cooperative) {
      api::LaunchAttribute& cooperative = attributes[count++];
      cooperative.id = api::launch_attribute_cooperative;
      cooperative.value.number = 1;
    }
  }
  api::LaunchConfig config{};
  for (int i = 0; i < 3; ++i) config.grid[i] = shape.grid[static_cast<std::size_t>(i)];
  config.block[0] = shape.threads;
  config.block[1] = config.block[2] = 1;
  config.shared_bytes = static_cast<unsigned>(shape.shared_bytes);
  config.attributes = attributes.data();
  config.attribute_count = count;
  return config;
}

Status CudaDriver::record(gpu::Event event, Stream stream) {
  // Within a capture it is a node that can be read when the graph has run; elsewhere CUDA refuses that flag.
  const unsigned flags = is_capturing(stream) ? api::event_record_external : api::event_record_default;
  return driver_status(f_.event_record(native(event), stream_of(stream), flags), "cuEventRecord");
}

}  // namespace gemmtune::cuda
