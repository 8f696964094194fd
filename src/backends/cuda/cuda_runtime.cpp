#include "backends/cuda/cuda_runtime.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "backends/cuda/cubin.h"
#include "backends/cuda/nvrtc_compiler.h"

namespace gemmtune::cuda {
namespace {

/// More than this a launch may ask for only after the function was told.
constexpr std::size_t plain_shared_bytes = std::size_t{48} << 10;
/// Older drivers know programmatic dependent launches, but cannot capture them: 12.3.
constexpr int dependent_launches_since = 12030;

class CudaProgram final : public gpu::Program {
 public:
  CudaProgram(const CudaRuntime& runtime, gpu::Resources resources)
      : runtime_(runtime), resources_(resources) {}
  ~CudaProgram() override {
    if (module_ != nullptr) {
      runtime_.enter();
      runtime_.driver().module_unload(module_);
    }
  }

  Status load(const std::string& code, const gpu::Source& source) {
    runtime_.enter();
    const api::Driver& f = runtime_.driver();
    GEMMTUNE_RETURN_IF_ERROR(
        driver_status(f.module_load(&module_, code.data()), source.name + ": cuModuleLoadData"));
    return driver_status(f.module_function(&function_, module_, source.kernel.c_str()),
                         source.name + ": cuModuleGetFunction " + source.kernel);
  }

  const gpu::Resources& resources() const override { return resources_; }

  Status reserve_shared(std::size_t bytes) override {
    const std::lock_guard lock(reserving_);
    if (bytes <= reserved_) return {};
    runtime_.enter();
    GEMMTUNE_RETURN_IF_ERROR(driver_status(
        runtime_.driver().function_set(function_, api::function_max_dynamic_shared, static_cast<int>(bytes)),
        fmt::format("{} bytes of shared memory", bytes)));
    reserved_ = bytes;
    return {};
  }

  int clusters_at_once(const gpu::LaunchShape& shape) const override {
    if (runtime_.driver().most_clusters == nullptr) return 0;
    runtime_.enter();
    Attributes attributes{};
    gpu::LaunchShape one = shape;
    one.grid = {std::max(1U, shape.cluster), 1, 1};
    const api::LaunchConfig config = config_of(one, attributes);
    int clusters = 0;
    return runtime_.driver().most_clusters(&clusters, function_, &config) == api::success ? clusters : 0;
  }

  Status launch(const gpu::LaunchShape& shape, void** arguments, Stream stream) const override {
    runtime_.enter();
    Attributes attributes{};
    api::LaunchConfig config = config_of(shape, attributes);
    config.stream = runtime_.stream_of(stream);
    const api::Result result = runtime_.driver().launch(&config, function_, arguments, nullptr);
    if (result == api::success) return {};
    return driver_status(
        result, fmt::format("launch of {}x{}x{} blocks of {} threads, {} bytes of shared memory",
                            shape.grid[0], shape.grid[1], shape.grid[2], shape.threads, shape.shared_bytes));
  }

 private:
  using Attributes = std::array<api::LaunchAttribute, 2>;

  /// `attributes` has to outlive it.
  api::LaunchConfig config_of(const gpu::LaunchShape& shape, Attributes& attributes) const {
    unsigned count = 0;
    if (shape.cluster > 1) {
      api::LaunchAttribute& cluster = attributes[count++];
      cluster.id = api::launch_attribute_cluster;
      cluster.value.cluster[0] = shape.cluster;
      cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
    }
    if (shape.dependent && runtime_.launches_dependents()) {
      api::LaunchAttribute& programmatic = attributes[count++];
      programmatic.id = api::launch_attribute_programmatic;
      programmatic.value.number = 1;
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

  const CudaRuntime& runtime_;
  gpu::Resources resources_;
  api::Module module_ = nullptr;
  api::Function function_ = nullptr;
  std::mutex reserving_;
  std::size_t reserved_ = plain_shared_bytes;
};

}  // namespace

std::string nvrtc_architecture(int compute_capability) {
  return fmt::format("sm_{}{}", compute_capability, compute_capability >= 90 ? "a" : "");
}

CudaRuntime::CudaRuntime(const api::Driver& driver, RuntimeOptions options)
    : driver_(driver), options_(std::move(options)), cache_(options_.cache_folder, options_.rebuild) {}

Result<std::unique_ptr<CudaRuntime>> CudaRuntime::open(const RuntimeOptions& options) {
  const auto& opened = cuda::driver();
  if (!opened.ok()) return opened.found;
  std::unique_ptr<CudaRuntime> runtime(new CudaRuntime(opened.functions, options));
  GEMMTUNE_RETURN_IF_ERROR(runtime->start());
  return runtime;
}

Status CudaRuntime::start() {
  const auto check = [](api::Result result, std::string_view what) { return driver_status(result, what); };
  GEMMTUNE_RETURN_IF_ERROR(check(driver_.device_get(&device_, options_.ordinal), "cuDeviceGet"));
  int values[6] = {};
  const int wanted[6] = {api::attribute_multiprocessors,
                         api::attribute_l2_bytes,
                         api::attribute_major,
                         api::attribute_minor,
                         api::attribute_shared_a_multiprocessor,
                         api::attribute_shared_a_block_optin};
  for (int i = 0; i < 6; ++i) {
    GEMMTUNE_RETURN_IF_ERROR(
        check(driver_.device_attribute(&values[i], wanted[i], device_), "cuDeviceGetAttribute"));
  }
  int version = 0;
  GEMMTUNE_RETURN_IF_ERROR(check(driver_.driver_version(&version), "cuDriverGetVersion"));
  launches_dependents_ = version >= dependent_launches_since;
  limits_.multiprocessors = values[0];
  limits_.cache_bytes = static_cast<std::size_t>(values[1]);
  capability_ = values[2] * 10 + values[3];
  limits_.shared_bytes_a_multiprocessor = static_cast<std::size_t>(values[4]);
  limits_.shared_bytes_a_block = static_cast<std::size_t>(values[5]);
  architecture_ = nvrtc_architecture(capability_);
  GEMMTUNE_RETURN_IF_ERROR(check(driver_.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain"));
  enter();
  // A stream that waits for copies and fills, which run on the context's own.
  GEMMTUNE_RETURN_IF_ERROR(check(driver_.stream_create(&stream_, api::stream_default), "cuStreamCreate"));
  count_clusters();
  auto compiler = make_nvrtc_compiler(options_.library_folder);
  compiler_status_ = compiler.status();
  if (!compiler.ok()) return {};
  compiler_ = std::move(*compiler);
  // One core is for whoever measures.
  const unsigned cores = std::max(2U, std::thread::hardware_concurrency());
  queue_ = std::make_unique<gpu::CompileQueue>(
      [this](const gpu::Source& source) { return cache_.get(*compiler_, source, architecture_); }, cores - 1);
  return {};
}

/// By a kernel that does nothing, which the driver assembles; where it does not, an estimate stands in.
void CudaRuntime::count_clusters() {
  if (capability_ < 90) return;
  const gpu::Source idle{"idle", {}, {}, "idle"};
  const std::string text = fmt::format(
      ".version 7.8\n.target sm_{}\n.address_size 64\n.visible .entry idle()\n{{\nret;\n}}\n", capability_);
  CudaProgram program(*this, {});
  if (!program.load(text, idle).ok() || !program.reserve_shared(limits_.shared_bytes_a_block).ok()) return;
  limits_.clusters[1] = limits_.multiprocessors;
  for (unsigned blocks = 2; blocks < limits_.clusters.size(); ++blocks) {
    gpu::LaunchShape shape;
    shape.threads = 128;
    shape.cluster = blocks;
    shape.shared_bytes = limits_.shared_bytes_a_block;
    limits_.clusters[blocks] = program.clusters_at_once(shape);
  }
}

CudaRuntime::~CudaRuntime() {
  queue_.reset();
  programs_.clear();
  if (context_ == nullptr) return;
  enter();
  if (stream_ != nullptr) driver_.stream_destroy(stream_);
  driver_.context_release(device_);
}

Result<std::shared_ptr<gpu::Program>> CudaRuntime::load(const gpu::Source& source) {
  GEMMTUNE_RETURN_IF_ERROR(compiler_status_);
  const std::string key = gpu::cache_key(*compiler_, source, architecture_);
  {
    const std::lock_guard lock(loading_);
    if (const auto found = programs_.find(key); found != programs_.end()) return found->second;
  }
  const auto binary = queue_->take({key, source});
  if (!binary.ok()) return binary.status();
  const auto resources = read_cubin(binary->code);
  if (!resources.ok()) return resources.status();
  GEMMTUNE_RETURN_IF_ERROR(resources->acceptable(source.name));
  auto program = std::make_shared<CudaProgram>(*this, *resources);
  GEMMTUNE_RETURN_IF_ERROR(program->load(binary->code, source));
  const std::lock_guard lock(loading_);
  return programs_.try_emplace(key, std::move(program)).first->second;
}

gpu::KeyedSource CudaRuntime::keyed(gpu::Source source) const {
  std::string key = gpu::cache_key(*compiler_, source, architecture_);
  return {std::move(key), std::move(source)};
}

void CudaRuntime::compile_ahead(std::vector<gpu::KeyedSource> sources) {
  if (!queue_) return;
  {
    const std::lock_guard lock(loading_);
    std::erase_if(sources, [&](const gpu::KeyedSource& source) { return programs_.count(source.key) > 0; });
  }
  queue_->order(std::move(sources));
}

}  // namespace gemmtune::cuda
