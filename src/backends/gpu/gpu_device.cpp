#include "backends/gpu/gpu_device.h"

#include <utility>

#include "backends/default_kernels.h"
#include "backends/gpu/device_memory.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/fill/random_fill.h"
#include "backends/gpu/jit/compiled_family.h"
#include "backends/gpu/pack/pack.h"
#include "backends/gpu/verify/output_checker.h"

namespace gemmtune::gpu {

GpuDevice::GpuDevice(std::unique_ptr<GpuRuntime> runtime, DeviceInfo info,
                     std::span<const FamilyEntry* const> entries, const std::string& library_folder)
    : runtime_(std::move(runtime)),
      info_(std::move(info)),
      known_families_(family_infos(entries)),
      silu_and_mul_(*runtime_, runtime_->driver().dependent_launch()),
      timer_(runtime_->driver()) {
  for (const FamilyEntry* entry : entries) {
    if (entry->compiled && !runtime_->compiles().ok()) continue;
    auto family = entry->make({*runtime_, runtime_->driver(), library_folder});
    if (family == nullptr) continue;
    family_pointers_.push_back(family.get());
    families_.push_back(std::move(family));
  }
}

Status GpuDevice::health() const {
  const std::lock_guard lock(faults_);
  return fault_;
}

/// Remembers an error that stays: after it the context answers nothing else.
Status GpuDevice::watched(Status status) const {
  if (status.ok() || status.code() == StatusCode::out_of_memory) return status;
  if (!runtime_->driver().synchronize().ok()) {
    const std::lock_guard lock(faults_);
    if (fault_.ok()) fault_ = status;
  }
  return status;
}

Result<std::unique_ptr<Buffer>> GpuDevice::allocate(std::size_t bytes, Placement placement) {
  return allocate_memory(runtime_->driver(), bytes, placement);
}

Status GpuDevice::copy_in(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return {};
  if (device == nullptr || host == nullptr)
    return Status::invalid("copy of {} bytes from or to a null pointer", bytes);
  runtime_->driver().enter();
  GEMMTUNE_RETURN_IF_ERROR(watched(runtime_->driver().copy_in(device, host, bytes)));
  return synchronize();
}

Status GpuDevice::copy_out(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return {};
  if (device == nullptr || host == nullptr)
    return Status::invalid("copy of {} bytes from or to a null pointer", bytes);
  runtime_->driver().enter();
  return watched(runtime_->driver().copy_out(host, device, bytes));
}

Status GpuDevice::copy_within(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  runtime_->driver().enter();
  GEMMTUNE_RETURN_IF_ERROR(watched(runtime_->driver().copy_within(to, from, bytes)));
  return synchronize();
}

Status GpuDevice::fill(void* device, int byte, std::size_t bytes) {
  if (bytes == 0) return {};
  if (device == nullptr) return Status::invalid("fill of {} bytes at a null pointer", bytes);
  runtime_->driver().enter();
  GEMMTUNE_RETURN_IF_ERROR(watched(runtime_->driver().fill(device, byte, bytes)));
  return synchronize();
}

Status GpuDevice::synchronize() {
  runtime_->driver().enter();
  return watched(runtime_->driver().synchronize());
}

Result<std::size_t> GpuDevice::packed_bytes(const Problem& problem, WeightLayout layout) const {
  const WeightLayout packed = packed_layout_of(problem);
  const bool shuffled = layout == WeightLayout::aiter16x16;
  if (layout != WeightLayout::plain && layout != packed && !shuffled) {
    return Status::unsupported("weight layout {}: {} has plain, {} and aiter16x16, of {}", to_string(layout),
                               info_.name, to_string(packed), to_string(problem.w_type));
  }
  const bool one_matrix = problem.batch == 1 && !is_mixture(problem);
  if (layout != WeightLayout::plain && !one_matrix) {
    return Status::unsupported("weight layout {}: of one matrix, not of {}", to_string(layout),
                               short_name(problem));
  }
  GEMMTUNE_RETURN_IF_ERROR(check(problem));
  if (shuffled && !shuffled_tiles_of(problem).fits())
    return Status::unsupported("weight layout aiter16x16: {} x {} has no whole tiles", problem.n, problem.k);
  const std::int64_t bytes = layout == WeightLayout::fragment64   ? fragments_of(problem).bytes()
                             : layout == WeightLayout::tile64x128 ? tiles_of(problem).bytes()
                                                                  : weight_bytes(problem);
  return static_cast<std::size_t>(bytes);
}

Status GpuDevice::pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) {
  GEMMTUNE_TRY(const auto bytes, packed_bytes(problem, layout));
  if (layout == WeightLayout::plain) return copy_within(packed, plain, bytes);
  GEMMTUNE_RETURN_IF_ERROR(watched(
      layout == WeightLayout::fragment64
          ? pack_fragments(*runtime_, fragments_of(problem), problem.w_type == DataType::i4, plain, packed)
      : layout == WeightLayout::aiter16x16
          ? shuffle_tile16(*runtime_, shuffled_tiles_of(problem), plain, packed)
          : pack_tile64(*runtime_, tiles_of(problem), plain, packed)));
  return synchronize();
}

Status GpuDevice::unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                                void* plain) const {
  GEMMTUNE_TRY(const auto bytes, packed_bytes(problem, layout));
  Driver& driver = runtime_->driver();
  driver.enter();
  if (layout == WeightLayout::plain) {
    GEMMTUNE_RETURN_IF_ERROR(watched(driver.copy_within(plain, packed, bytes)));
  } else if (layout == WeightLayout::fragment64) {
    GEMMTUNE_RETURN_IF_ERROR(watched(
        unpack_fragments(*runtime_, fragments_of(problem), problem.w_type == DataType::i4, packed, plain)));
  } else if (layout == WeightLayout::aiter16x16) {
    GEMMTUNE_RETURN_IF_ERROR(watched(unshuffle_tile16(*runtime_, shuffled_tiles_of(problem), packed, plain)));
  } else {
    GEMMTUNE_RETURN_IF_ERROR(watched(unpack_tile64(*runtime_, tiles_of(problem), packed, plain)));
  }
  return watched(driver.synchronize());
}

Status GpuDevice::fill_random(void* to, const RandomFill& recipe) {
  return fill_elements(*this, *runtime_, to, recipe);
}

Status GpuDevice::silu_and_mul(const SiluAndMul& call, Stream stream) {
  if (!silu_and_mul_.is_loaded(call.type) && is_capturing(stream))
    return Status::not_found("silu_and_mul of {} has not run on {} yet", to_string(call.type), info_.name);
  return watched(silu_and_mul_.run(call, stream));
}

Result<std::unique_ptr<OutputChecker>> GpuDevice::output_checker(const Problem& problem) {
  return make_output_checker(*this, *runtime_, problem);
}

void GpuDevice::compile_ahead(const Problem& problem, std::span<const Candidate> candidates) {
  const std::lock_guard lock(announcing_);
  if (!announced_problem_ || !(*announced_problem_ == problem)) {
    announced_.clear();
    announced_problem_ = problem;
  }
  std::vector<KeyedSource> sources;
  for (const Candidate& candidate : candidates) {
    const auto [found, is_new] = announced_.try_emplace(candidate.kernel_name());
    if (is_new) found->second = sources_of(problem, candidate);
    sources.insert(sources.end(), found->second.begin(), found->second.end());
  }
  runtime_->compile_ahead(std::move(sources));
}

std::vector<KeyedSource> GpuDevice::sources_of(const Problem& problem, const Candidate& candidate) const {
  const auto found = checked(candidate, problem);
  if (!found.ok()) return {};
  const auto* family = dynamic_cast<const CompiledFamily*>(found->family);
  if (family == nullptr) return {};
  std::vector<KeyedSource> keyed;
  for (Source& source : family->sources(problem, found->config))
    keyed.push_back(runtime_->keyed(std::move(source)));
  return keyed;
}

Result<double> GpuDevice::sample(const SampleRequest& request) {
  const std::lock_guard lock(sampling_);
  auto time = timer_.time(request);
  if (!time.ok()) return watched(time.status());
  return time;
}

Result<EnergySample> GpuDevice::sample_energy(const SampleRequest& request, double seconds) {
  const std::lock_guard lock(sampling_);
  auto energy = timer_.energy(request, seconds);
  if (!energy.ok()) return watched(energy.status());
  return energy;
}

// A GPU's cache does not replace the least recently used line first: of a pool of twice its size some lines
// are still there when their turn comes again. Two and a half times what the driver states stands for
// "effective".
std::size_t GpuDevice::last_level_cache_bytes() { return runtime_->limits().cache_bytes * 5 / 2; }

std::size_t GpuDevice::free_memory_bytes() {
  runtime_->driver().enter();
  return runtime_->driver().free_memory_bytes();
}

bool GpuDevice::is_capturing(Stream stream) const {
  runtime_->driver().enter();
  return runtime_->driver().is_capturing(stream);
}

Result<Candidate> GpuDevice::baseline(const Problem& problem) const {
  return choose_baseline(known_families_, *this, problem);
}

Result<Candidate> GpuDevice::fallback(const Problem& problem) const {
  return choose_fallback(known_families_, *this, problem);
}

}  // namespace gemmtune::gpu
