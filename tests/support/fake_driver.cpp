#include "support/fake_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/rounding.h"

namespace gemmtune::testing {
namespace {

struct FakeModule {
  std::string kernel;
};

class FakeDriver final : public gpu::Driver {
 public:
  explicit FakeDriver(FakeGpu& gpu) : gpu_(gpu) { gpu_.open = true; }
  ~FakeDriver() override { gpu_.open = false; }

  const gpu::Properties& properties() const override { return gpu_.properties; }
  std::map<std::string, double> observe() const override { return {{"sm_clock_mhz", 1980}}; }
  Result<double> joules() const override {
    return gpu_.joules ? gpu_.joules() : Status::unsupported("the fake monitor counts no joules");
  }
  void enter() const override {
    const std::lock_guard held(gpu_.lock);
    gpu_.entered.insert(std::this_thread::get_id());
  }

  std::size_t free_memory_bytes() override {
    (void)call("free_memory_bytes");
    return gpu_.free_bytes;
  }
  Result<void*> allocate(std::size_t bytes) override {
    GEMMTUNE_RETURN_IF_ERROR(call("allocate"));
    if (bytes > gpu_.free_bytes) return Status::out_of_memory("allocation of {} bytes: none left", bytes);
    void* block = std::aligned_alloc(256, round_up<std::size_t>(bytes, 256));
    std::memset(block, 0xcd, bytes);
    gpu_.free_bytes -= bytes;
    gpu_.blocks[block] = bytes;
    return block;
  }
  void free(void* memory) override {
    (void)call("free");
    const auto found = gpu_.blocks.find(memory);
    gpu_.free_bytes += found->second;
    gpu_.blocks.erase(found);
    std::free(memory);
  }
  Result<gpu::Mapping> map_page_end(std::size_t bytes) override {
    GEMMTUNE_RETURN_IF_ERROR(call("map_page_end"));
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    gpu::Mapping mapping;
    mapping.mapped_bytes = round_up(bytes, page);
    mapping.reserved_bytes = mapping.mapped_bytes + page;
    mapping.begin =
        mmap(nullptr, mapping.reserved_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(static_cast<std::byte*>(mapping.begin) + mapping.mapped_bytes, page, PROT_NONE);
    ++gpu_.mappings;
    return mapping;
  }
  void unmap(const gpu::Mapping& mapping) override {
    (void)call("unmap");
    munmap(mapping.begin, mapping.reserved_bytes);
    --gpu_.mappings;
  }
  Status copy_in(void* device, const void* host, std::size_t bytes) override {
    return move("copy_in", device, host, bytes);
  }
  Status copy_out(void* host, const void* device, std::size_t bytes) override {
    return move("copy_out", host, device, bytes);
  }
  Status copy_within(void* to, const void* from, std::size_t bytes) override {
    return move("copy_within", to, from, bytes);
  }
  Status fill(void* device, int byte, std::size_t bytes) override {
    GEMMTUNE_RETURN_IF_ERROR(call("fill"));
    std::memset(device, byte, bytes);
    return {};
  }
  Status synchronize() override { return call("synchronize"); }

  Result<gpu::LoadedKernel> load(const std::string& code, const std::string& kernel) override {
    GEMMTUNE_RETURN_IF_ERROR(call("load"));
    if (code.find(kernel) == std::string::npos) return Status::internal("no function {}", kernel);
    ++gpu_.modules;
    auto* module = new FakeModule{kernel};
    return gpu::LoadedKernel{module, module};
  }
  void unload(const gpu::LoadedKernel& kernel) override {
    (void)call("unload");
    --gpu_.modules;
    delete static_cast<FakeModule*>(kernel.module);
  }
  Status reserve_shared(const gpu::LoadedKernel&, std::size_t bytes) override {
    GEMMTUNE_RETURN_IF_ERROR(call("reserve_shared"));
    if (bytes <= gpu_.properties.limits.shared_bytes_per_block) return {};
    return Status::internal("{} bytes of shared memory: too many", bytes);
  }
  Status launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                Stream stream) override {
    enter();
    GEMMTUNE_RETURN_IF_ERROR(call("launch"));
    const std::string& name = static_cast<const FakeModule*>(kernel.function)->kernel;
    const bool captured = gpu_.capturing;
    {
      const std::lock_guard held(gpu_.lock);
      gpu_.launches.push_back({name, shape, stream, captured});
    }
    const auto found = gpu_.run.find(name);
    if (!captured && found != gpu_.run.end()) found->second(shape, arguments);
    return {};
  }

  Stream own_stream() const override { return {&gpu_}; }
  Status wait(Stream) override { return call("wait"); }
  bool is_capturing(Stream) override {
    (void)call("is_capturing");
    return gpu_.capturing;
  }
  Status begin_capture(Stream) override {
    GEMMTUNE_RETURN_IF_ERROR(call("begin_capture"));
    if (gpu_.capturing) return Status::internal("the stream is in a capture");
    gpu_.capturing = true;
    return {};
  }
  Result<gpu::Graph> end_capture(Stream) override {
    const Status status = call("end_capture");
    gpu_.capturing = false;
    if (!status.ok()) return status;
    ++gpu_.graphs;
    return reinterpret_cast<gpu::Graph>(&gpu_);
  }
  void abandon_capture(Stream) override {
    (void)call("abandon_capture");
    gpu_.capturing = false;
  }
  Status launch_graph(gpu::Graph, Stream) override {
    std::this_thread::sleep_for(std::chrono::duration<double>(gpu_.graph_seconds));
    return call("launch_graph");
  }
  void destroy(gpu::Graph) override {
    (void)call("destroy_graph");
    --gpu_.graphs;
  }
  Result<gpu::Event> create_event() override {
    GEMMTUNE_RETURN_IF_ERROR(call("create_event"));
    ++gpu_.events;
    return reinterpret_cast<gpu::Event>(&gpu_);
  }
  void destroy(gpu::Event) override {
    (void)call("destroy_event");
    --gpu_.events;
  }
  Status record(gpu::Event, Stream) override { return call("record"); }
  Result<double> milliseconds_between(gpu::Event, gpu::Event) override {
    GEMMTUNE_RETURN_IF_ERROR(call("milliseconds_between"));
    return gpu_.milliseconds;
  }

 private:
  Status call(const std::string& name) {
    const std::lock_guard held(gpu_.lock);
    gpu_.calls.push_back(name);
    if (!gpu_.entered.contains(std::this_thread::get_id())) ++gpu_.calls_outside;
    if (!gpu_.fault.ok()) return gpu_.fault;
    const auto found = gpu_.failures.find(name);
    if (found == gpu_.failures.end()) return {};
    Status status = std::move(found->second);
    gpu_.failures.erase(found);
    return status;
  }
  Status move(const char* name, void* to, const void* from, std::size_t bytes) {
    GEMMTUNE_RETURN_IF_ERROR(call(name));
    std::memcpy(to, from, bytes);
    return {};
  }

  FakeGpu& gpu_;
};

}  // namespace

FakeGpu::FakeGpu() {
  properties.architecture = "fake_1";
  properties.limits.multiprocessors = 132;
  properties.limits.shared_bytes_per_block = 232448;
  properties.limits.shared_bytes_per_multiprocessor = 233472;
  properties.limits.cache_bytes = 62914560;
}

std::vector<std::string> FakeGpu::take_calls() { return std::exchange(calls, {}); }

std::unique_ptr<gpu::Driver> make_fake_driver(FakeGpu& gpu) { return std::make_unique<FakeDriver>(gpu); }

Result<gpu::Binary> FakeCompiler::compile(const gpu::Source& source, std::string_view) const {
  const std::lock_guard held(lock_);
  compiled_.push_back(source.name);
  if (source.text.find("bad") != std::string::npos) return Status::invalid("{}: bad source", source.name);
  std::string code = source.kernel;
  for (const char* const trait : {" static", " spills"})
    if (source.text.find(trait + 1) != std::string::npos) code += trait;
  return gpu::Binary{std::move(code), {}};
}

Result<gpu::Resources> FakeCompiler::resources(const gpu::Binary& binary) const {
  gpu::Resources resources;
  resources.registers = 32;
  if (binary.code.find(" spills") != std::string::npos) resources.stack_bytes = 16;
  if (binary.code.find(" static") != std::string::npos) resources.static_shared_bytes = 4096;
  return resources;
}

}  // namespace gemmtune::testing
