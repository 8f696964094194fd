#include "backends/gpu/gpu_runtime.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace gemmtune::gpu {
namespace {

/// A launch may have more than this, static and dynamic, only after reserve_shared().
constexpr std::size_t unreserved_shared_bytes = std::size_t{48} << 10;

class GpuProgram final : public Program {
 public:
  GpuProgram(Driver& driver, const LoadedKernel& kernel, const Resources& resources)
      : driver_(driver),
        kernel_(kernel),
        resources_(resources),
        reserved_(unreserved_shared_bytes -
                  std::min(resources.static_shared_bytes, unreserved_shared_bytes)) {}
  ~GpuProgram() override {
    driver_.enter();
    driver_.unload(kernel_);
  }

  const Resources& resources() const override { return resources_; }
  const LoadedKernel& loaded() const override { return kernel_; }

  Status reserve_shared(std::size_t bytes) override {
    const std::lock_guard lock(reserving_);
    if (bytes <= reserved_) return {};
    driver_.enter();
    GEMMTUNE_RETURN_IF_ERROR(driver_.reserve_shared(kernel_, bytes));
    reserved_ = bytes;
    return {};
  }

  Status launch(const LaunchShape& shape, void** arguments, Stream stream) const override {
    return driver_.launch(kernel_, shape, arguments, stream);
  }

 private:
  Driver& driver_;
  LoadedKernel kernel_;
  Resources resources_;
  std::mutex reserving_;
  std::size_t reserved_;  // dynamic
};

}  // namespace

std::string describe(const LaunchShape& shape) {
  return fmt::format("launch of {}x{}x{} blocks of {} threads, {} bytes of shared memory", shape.grid[0],
                     shape.grid[1], shape.grid[2], shape.threads, shape.shared_bytes);
}

GpuRuntime::GpuRuntime(std::unique_ptr<Driver> driver, Result<std::unique_ptr<Compiler>> compiler,
                       KernelCache cache, int compile_threads)
    : driver_(std::move(driver)), compiler_status_(compiler.status()), cache_(std::move(cache)) {
  if (!compiler.ok()) return;
  compiler_ = std::move(*compiler);
  // One core is for whoever measures.
  const unsigned cores = std::max(2U, std::thread::hardware_concurrency());
  const auto threads = compile_threads > 0 ? static_cast<std::size_t>(compile_threads) : cores - 1;
  queue_ = std::make_unique<CompileQueue>(
      [this](const Source& source) { return cache_.get(*compiler_, source, architecture()); }, threads);
}

GpuRuntime::~GpuRuntime() {
  queue_.reset();
  if (!programs_.empty()) {
    driver_->enter();
    (void)driver_->synchronize();  // kernels that were launched may still run
  }
  programs_.clear();
}

Result<std::shared_ptr<Program>> GpuRuntime::load(const Source& source) {
  GEMMTUNE_RETURN_IF_ERROR(compiler_status_);
  const std::string key = cache_key(*compiler_, source, architecture());
  {
    const std::lock_guard lock(loading_);
    if (const auto found = programs_.find(key); found != programs_.end()) return found->second;
  }
  GEMMTUNE_TRY(const auto binary, queue_->take({key, source}));
  GEMMTUNE_TRY(const auto resources, compiler_->resources(binary));
  GEMMTUNE_RETURN_IF_ERROR(resources.acceptable(source.name));
  driver_->enter();
  const auto kernel = driver_->load(binary.code, source.kernel);
  if (!kernel.ok()) return Status(kernel.code(), fmt::format("{}: {}", source.name, kernel.message()));
  auto program = std::make_shared<GpuProgram>(*driver_, *kernel, resources);
  const std::lock_guard lock(loading_);
  return programs_.try_emplace(key, std::move(program)).first->second;
}

KeyedSource GpuRuntime::keyed(Source source) const {
  std::string key = cache_key(*compiler_, source, architecture());
  return {std::move(key), std::move(source)};
}

void GpuRuntime::compile_ahead(std::vector<KeyedSource> sources) {
  if (!queue_) return;
  {
    const std::lock_guard lock(loading_);
    std::erase_if(sources, [&](const KeyedSource& source) { return programs_.count(source.key) > 0; });
  }
  queue_->order(std::move(sources));
}

}  // namespace gemmtune::gpu
