#include "backends/cuda/cuda_device.h"

#include <array>
#include <utility>

#include "backends/cuda/device_memory.h"
#include "backends/cuda/families/all_families.h"
#include "backends/first_accepting.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/fill/random_fill.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/pack/pack.h"
#include "backends/gpu/verify/output_checker.h"

namespace gemmtune::cuda {
namespace {

api::DevicePointer address(const void* pointer) { return reinterpret_cast<api::DevicePointer>(pointer); }

}  // namespace

Result<DeviceInfo> describe_device(int ordinal, const std::string& library_folder) {
  const auto& opened = driver();
  if (!opened.ok()) return opened.found;
  const api::Driver& f = opened.functions;
  api::Device device = 0;
  GEMMTUNE_RETURN_IF_ERROR(driver_status(f.device_get(&device, ordinal), fmt::format("cuda:{}", ordinal)));
  std::array<char, 256> name{};
  GEMMTUNE_RETURN_IF_ERROR(
      driver_status(f.device_name(name.data(), static_cast<int>(name.size()), device), "cuDeviceGetName"));
  int major = 0;
  int minor = 0;
  DeviceInfo info;
  f.device_attribute(&major, api::attribute_major, device);
  f.device_attribute(&minor, api::attribute_minor, device);
  f.device_attribute(&info.cu_num, api::attribute_multiprocessors, device);
  info.backend = "cuda";
  info.name = fmt::format("cuda:{}", ordinal);
  info.model = name.data();
  info.gfx = fmt::format("sm_{}{}", major, minor);
  std::array<char, 32> bus{};
  if (f.device_bus_id(bus.data(), static_cast<int>(bus.size()), device) == api::success)
    info.bus_id = bus.data();
  info.libraries = {opened.description, nvrtc(library_folder).description,
                    cublas_lt(library_folder).description, nvml().description};
  return info;
}

Result<std::unique_ptr<Device>> CudaDevice::open(const RuntimeOptions& options) {
  auto info = describe_device(options.ordinal, options.library_folder);
  if (!info.ok()) return info.status();
  auto runtime = CudaRuntime::open(options);
  if (!runtime.ok()) return runtime.status();
  auto device = std::make_unique<CudaDevice>(std::move(*runtime), options.library_folder);
  device->info_ = std::move(*info);
  return std::unique_ptr<Device>(std::move(device));
}

CudaDevice::CudaDevice(std::unique_ptr<CudaRuntime> runtime, const std::string& library_folder)
    : runtime_(std::move(runtime)), families_(make_families(*runtime_, library_folder)), timer_(*runtime_) {
  for (const auto& family : families_) family_pointers_.push_back(family.get());
}

Status CudaDevice::health() const {
  const std::lock_guard lock(faults_);
  return fault_;
}

/// Remembers an error that stays: after it the context answers nothing else.
Status CudaDevice::watched(Status status) {
  if (status.ok() || status.code() == StatusCode::out_of_memory) return status;
  const api::Result after = runtime_->driver().context_synchronize();
  if (after != api::success) {
    const std::lock_guard lock(faults_);
    if (fault_.ok()) fault_ = status;
  }
  return status;
}

std::map<std::string, double> CudaDevice::observe() {
  const auto& opened = nvml();
  std::map<std::string, double> seen;
  api::NvmlDevice device = nullptr;
  if (!opened.ok() || opened.functions.by_bus_id(info_.bus_id.c_str(), &device) != 0) return seen;
  unsigned value = 0;
  if (opened.functions.clock(device, api::clock_sm, &value) == 0) seen["sm_clock_mhz"] = value;
  if (opened.functions.clock(device, api::clock_memory, &value) == 0) seen["memory_clock_mhz"] = value;
  if (opened.functions.temperature(device, 0, &value) == 0) seen["temperature_celsius"] = value;
  unsigned long long reasons = 0;
  if (opened.functions.throttle_reasons(device, &reasons) == 0)
    seen["throttle_reasons"] = static_cast<double>(reasons);
  return seen;
}

Result<std::unique_ptr<Buffer>> CudaDevice::allocate(std::size_t bytes, Placement placement) {
  return allocate_memory(*runtime_, bytes, placement);
}

Status CudaDevice::copy_in(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return {};
  if (device == nullptr || host == nullptr)
    return Status::invalid("copy of {} bytes from or to a null pointer", bytes);
  runtime_->enter();
  GEMMTUNE_RETURN_IF_ERROR(watched(
      driver_status(runtime_->driver().copy_to_device(address(device), host, bytes), "copy to the device")));
  return synchronize();
}

Status CudaDevice::copy_out(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return {};
  if (device == nullptr || host == nullptr)
    return Status::invalid("copy of {} bytes from or to a null pointer", bytes);
  runtime_->enter();
  return watched(
      driver_status(runtime_->driver().copy_to_host(host, address(device), bytes), "copy from the device"));
}

Status CudaDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  runtime_->enter();
  GEMMTUNE_RETURN_IF_ERROR(watched(driver_status(
      runtime_->driver().copy_on_device(address(to), address(from), bytes), "copy on the device")));
  return synchronize();
}

Status CudaDevice::fill(void* device, int byte, std::size_t bytes) {
  if (bytes == 0) return {};
  if (device == nullptr) return Status::invalid("fill of {} bytes at a null pointer", bytes);
  runtime_->enter();
  GEMMTUNE_RETURN_IF_ERROR(watched(driver_status(
      runtime_->driver().fill_bytes(address(device), static_cast<unsigned char>(byte), bytes), "fill")));
  return synchronize();
}

Status CudaDevice::synchronize() {
  runtime_->enter();
  return watched(driver_status(runtime_->driver().context_synchronize(), "the device"));
}

Result<std::size_t> CudaDevice::packed_bytes(const Problem& problem, WeightLayout layout) const {
  if (layout != WeightLayout::plain && layout != WeightLayout::tile64x128) {
    return Status::unsupported("weight layout {}: the cuda backend has plain and tile64x128",
                               to_string(layout));
  }
  if (layout != WeightLayout::plain && (problem.operation != Operation::a16w16 || problem.batch != 1)) {
    return Status::unsupported("weight layout {}: of a16w16 alone, not of {}", to_string(layout),
                               short_name(problem));
  }
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  const std::int64_t bytes =
      layout == WeightLayout::plain ? weight_bytes(problem) : gpu::tiles_of(problem).bytes();
  return static_cast<std::size_t>(bytes);
}

Status CudaDevice::pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) {
  const auto bytes = packed_bytes(problem, layout);
  if (!bytes.ok()) return bytes.status();
  if (layout == WeightLayout::plain) return copy_within(packed, plain, *bytes);
  GEMMTUNE_RETURN_IF_ERROR(watched(gpu::pack_tile64(*runtime_, gpu::tiles_of(problem), plain, packed)));
  return synchronize();
}

Status CudaDevice::unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                                 void* plain) const {
  const auto bytes = packed_bytes(problem, layout);
  if (!bytes.ok()) return bytes.status();
  runtime_->enter();
  const api::Driver& f = runtime_->driver();
  if (layout == WeightLayout::plain) {
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(f.copy_on_device(address(plain), address(packed), *bytes), "copy on the device"));
  } else {
    GEMMTUNE_RETURN_IF_ERROR(gpu::unpack_tile64(*runtime_, gpu::tiles_of(problem), packed, plain));
  }
  return driver_status(f.context_synchronize(), "the device");
}

Status CudaDevice::fill_random(void* to, const RandomFill& recipe) {
  return gpu::fill_elements(*this, *runtime_, to, recipe);
}

Result<std::unique_ptr<OutputChecker>> CudaDevice::output_checker(const Problem& problem) {
  return gpu::make_output_checker(*this, *runtime_, problem);
}

void CudaDevice::compile_ahead(const Problem& problem, std::span<const Candidate> candidates) {
  const std::lock_guard lock(announcing_);
  if (!announced_problem_ || !(*announced_problem_ == problem)) {
    announced_.clear();
    announced_problem_ = problem;
  }
  std::vector<gpu::KeyedSource> sources;
  for (const Candidate& candidate : candidates) {
    const auto [found, is_new] = announced_.try_emplace(candidate.kernel_name());
    if (is_new) found->second = source_of(problem, candidate);
    if (found->second) sources.push_back(*found->second);
  }
  runtime_->compile_ahead(std::move(sources));
}

std::optional<gpu::KeyedSource> CudaDevice::source_of(const Problem& problem,
                                                      const Candidate& candidate) const {
  const auto* family = dynamic_cast<const gpu::CompiledFamily*>(find_family(candidate.family));
  if (family == nullptr || candidate.revision != family->revision()) return std::nullopt;
  auto source = family->source(problem, candidate.config);
  if (!source.ok()) return std::nullopt;
  return runtime_->keyed(std::move(*source));
}

Result<double> CudaDevice::sample(const SampleRequest& request) {
  const std::lock_guard lock(sampling_);
  auto time = timer_.time(request);
  if (!time.ok()) return watched(time.status());
  return time;
}

// A GPU's cache does not replace the least recently used line first: of a pool of twice its size some lines
// are still there when their turn comes again. Two and a half times what the driver states stands for
// "effective".
std::size_t CudaDevice::last_level_cache_bytes() { return runtime_->limits().cache_bytes * 5 / 2; }

std::size_t CudaDevice::free_memory_bytes() {
  runtime_->enter();
  std::size_t free = 0;
  std::size_t total = 0;
  return runtime_->driver().memory_info(&free, &total) == api::success ? free : 0;
}

bool CudaDevice::is_capturing(Stream stream) const {
  runtime_->enter();
  int status = api::capture_none;
  return runtime_->driver().capture_status(runtime_->stream_of(stream), &status) == api::success &&
         status != api::capture_none;
}

Result<Candidate> CudaDevice::baseline(const Problem& problem) const {
  constexpr std::array<std::string_view, 1> order{"cublaslt"};
  return first_accepting(families(), order, problem, StatusCode::not_found,
                         [this](std::string_view name) { return missing_family(name); });
}

Result<Candidate> CudaDevice::fallback(const Problem& problem) const {
  constexpr std::array<std::string_view, 5> order{"cublaslt", "skinny", "wgmma", "mma", "simt"};
  return first_accepting(families(), order, problem, StatusCode::unsupported,
                         [this](std::string_view name) { return missing_family(name); });
}

}  // namespace gemmtune::cuda
