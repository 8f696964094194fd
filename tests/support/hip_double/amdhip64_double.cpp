// libamdhip64: memory, streams, graphs, events, modules.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "backends/hip/hip_api.h"
#include "support/emulation/emulation.h"
#include "support/hip_double/hip_double.h"

namespace gemmtune::hip_double {
namespace {

using namespace hip::api;

constexpr int error_invalid_value = 1;
constexpr int error_no_device = 100;
constexpr int error_invalid_image = 200;
constexpr int error_not_found = 500;
constexpr int error_launch = 719;

struct State {
  std::mutex lock;
  std::map<std::string, long> calls;
  std::map<const void*, std::size_t> blocks;
  StreamState default_stream;
  double microseconds = 0;
  bool lost = false;
  std::string fault;  // what the emulation found
};

State& state() {
  static State one;
  return one;
}

StreamState& stream_of(void* stream) {
  return stream != nullptr ? *static_cast<StreamState*>(stream) : state().default_stream;
}

struct ModuleState {
  std::shared_ptr<emulation::Module> module;
  std::map<std::string, std::unique_ptr<struct FunctionState>> functions;
};
struct FunctionState {
  ModuleState* module = nullptr;
  std::string name;
};
struct ExecState {
  GraphState graph;
};
struct HandleState {
  std::size_t bytes = 0;
};

/// "hipMalloc=2@5": the fifth call answers 2, once; "=lost@…": from then on every call fails; "=hang@…"; "=abort@…".
struct Injection {
  std::string call;
  std::string what;
  long at = 1;
};

const std::vector<Injection>& injections() {
  static const std::vector<Injection> list = [] {
    std::vector<Injection> parsed;
    std::string rest = text("HIP_DOUBLE_FAIL", "");
    while (!rest.empty()) {
      const std::string one = rest.substr(0, rest.find(','));
      rest = one.size() < rest.size() ? rest.substr(one.size() + 1) : std::string();
      const auto equals = one.find('=');
      const auto at = one.find('@');
      if (equals == std::string::npos) continue;
      parsed.push_back({one.substr(0, equals), one.substr(equals + 1, at - equals - 1),
                        at == std::string::npos ? 1 : std::atol(one.c_str() + at + 1)});
    }
    return parsed;
  }();
  return list;
}

/// A line of HIP_DOUBLE_LOG.
void record(const std::string& call) {
  const std::string path = text("HIP_DOUBLE_LOG", "");
  if (path.empty()) return;
  if (std::FILE* file = std::fopen(path.c_str(), "a"); file != nullptr) {
    std::fprintf(file, "%d %s\n", static_cast<int>(getpid()), call.c_str());
    std::fclose(file);
  }
}

void allot(const void* begin, std::size_t bytes) {
  state().blocks[begin] = bytes;
  emulation::register_buffer(begin, bytes, "device memory");
}

void forget(const void* begin) {
  if (state().blocks.erase(begin) != 0) emulation::unregister_buffer(begin);
}

}  // namespace

long number(const char* variable, long absent) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? std::atol(value) : absent;
}

std::string text(const char* variable, const char* absent) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? value : absent;
}

int enter(const char* call) {
  long count = 0;
  {
    const std::lock_guard held(state().lock);
    count = ++state().calls[call];
    if (state().lost) return error_launch;
  }
  record(call);
  for (const Injection& one : injections()) {
    if (one.call != call || one.at != count) continue;
    if (one.what == "hang") sleep(3600);
    if (one.what == "abort") std::abort();
    if (one.what == "lost") {
      const std::lock_guard held(state().lock);
      state().lost = true;
      return error_launch;
    }
    return std::atoi(one.what.c_str());
  }
  return success;
}

bool enqueue(void* stream, const Work& work) {
  const std::lock_guard held(state().lock);
  StreamState& target = stream_of(stream);
  if (target.captured) {
    target.captured->work.push_back(std::make_shared<Work>(work));
    return false;
  }
  state().microseconds += work.microseconds;
  if (work.event != nullptr) work.event->microseconds = state().microseconds;
  return true;
}

bool is_capturing(void* stream) {
  const std::lock_guard held(state().lock);
  return stream_of(stream).captured != nullptr;
}

double now() {
  const std::lock_guard held(state().lock);
  return state().microseconds;
}

bool is_device_memory(const void* begin, std::size_t bytes) {
  const std::lock_guard held(state().lock);
  auto at = state().blocks.upper_bound(begin);
  if (at == state().blocks.begin()) return false;
  --at;
  const char* from = static_cast<const char*>(at->first);
  return static_cast<const char*>(begin) + bytes <= from + at->second;
}

}  // namespace gemmtune::hip_double

using namespace gemmtune::hip_double;
using namespace gemmtune::hip::api;

#define HIP_DOUBLE_ENTER(call) \
  if (const int failed = enter(call); failed != success) return failed

extern "C" {

Result hipInit(unsigned) {
  HIP_DOUBLE_ENTER("hipInit");
  return number("HIP_DOUBLE_DEVICES", 1) > 0 ? success : error_no_device;
}

Result hipRuntimeGetVersion(int* version) {
  *version = static_cast<int>(number("HIP_DOUBLE_VERSION", 60342131));
  return success;
}

const char* hipGetErrorName(Result result) {
  switch (result) {
    case success:
      return "hipSuccess";
    case error_out_of_memory:
      return "hipErrorOutOfMemory";
    case error_no_device:
      return "hipErrorNoDevice";
    case error_invalid_image:
      return "hipErrorInvalidImage";
    case error_not_found:
      return "hipErrorNotFound";
    case error_launch:
      return "hipErrorLaunchFailure";
    default:
      return "hipErrorInvalidValue";
  }
}

const char* hipGetErrorString(Result result) {
  static thread_local std::string message;
  const std::lock_guard held(state().lock);
  message = result == error_launch && !state().fault.empty() ? state().fault : "of the double";
  return message.c_str();
}

Result hipGetLastError() { return success; }

Result hipGetDeviceCount(int* count) {
  HIP_DOUBLE_ENTER("hipGetDeviceCount");
  *count = static_cast<int>(number("HIP_DOUBLE_DEVICES", 1));
  return success;
}

Result hipGetDevicePropertiesR0600(Properties* properties, int device) {
  HIP_DOUBLE_ENTER("hipGetDeviceProperties");
  if (device < 0 || device >= number("HIP_DOUBLE_DEVICES", 1)) return error_invalid_value;
  // All that the library writes: 1472 bytes.
  std::memset(properties, 0, 1472);
  std::snprintf(properties->name, sizeof(properties->name), "%s",
                text("HIP_DOUBLE_NAME", "AMD Instinct MI300X").c_str());
  std::snprintf(properties->architecture, sizeof(properties->architecture), "%s",
                text("HIP_DOUBLE_ARCH", "gfx942:sramecc+:xnack-").c_str());
  return success;
}

Result hipDeviceGetAttribute(int* value, int attribute, int) {
  HIP_DOUBLE_ENTER("hipDeviceGetAttribute");
  switch (attribute) {
    case attribute_multiprocessors:
      *value = static_cast<int>(number("HIP_DOUBLE_UNITS", 304));
      return success;
    case attribute_l2_bytes:
      *value = 4 << 20;
      return success;
    case attribute_shared_per_block:
      *value = text("HIP_DOUBLE_ARCH", "").starts_with("gfx950") ? 160 << 10 : 64 << 10;
      return success;
    default:
      return error_invalid_value;
  }
}

Result hipDeviceGetPCIBusId(char* bus, int bytes, int device) {
  std::snprintf(bus, static_cast<std::size_t>(bytes), "0000:%02x:00.0", 0xc1 + device);
  return success;
}

Result hipSetDevice(int) { return success; }

Result hipMemGetInfo(std::size_t* free_bytes, std::size_t* total) {
  HIP_DOUBLE_ENTER("hipMemGetInfo");
  *total = static_cast<std::size_t>(number("HIP_DOUBLE_MEMORY", 512L << 20));
  const std::lock_guard held(state().lock);
  std::size_t used = 0;
  for (const auto& [begin, bytes] : state().blocks) used += bytes;
  *free_bytes = *total - std::min(*total, used);
  return success;
}

Result hipMalloc(DevicePointer* memory, std::size_t bytes) {
  HIP_DOUBLE_ENTER("hipMalloc");
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  hipMemGetInfo(&free_bytes, &total);
  if (bytes > free_bytes) return error_out_of_memory;
  if (posix_memalign(memory, 256, bytes + 256) != 0) return error_out_of_memory;
  const std::lock_guard held(state().lock);
  allot(*memory, bytes);
  return success;
}

Result hipFree(DevicePointer memory) {
  HIP_DOUBLE_ENTER("hipFree");
  const std::lock_guard held(state().lock);
  forget(memory);
  std::free(memory);
  return success;
}

Result hipMemcpyHtoD(DevicePointer to, void* from, std::size_t bytes) {
  HIP_DOUBLE_ENTER("hipMemcpyHtoD");
  if (!is_device_memory(to, bytes)) return error_invalid_value;
  std::memcpy(to, from, bytes);
  return success;
}

Result hipMemcpyDtoH(void* to, DevicePointer from, std::size_t bytes) {
  HIP_DOUBLE_ENTER("hipMemcpyDtoH");
  if (!is_device_memory(from, bytes)) return error_invalid_value;
  std::memcpy(to, from, bytes);
  return success;
}

Result hipMemcpyDtoD(DevicePointer to, DevicePointer from, std::size_t bytes) {
  HIP_DOUBLE_ENTER("hipMemcpyDtoD");
  if (!is_device_memory(to, bytes) || !is_device_memory(from, bytes)) return error_invalid_value;
  std::memcpy(to, from, bytes);
  return success;
}

Result hipMemsetD8(DevicePointer to, unsigned char value, std::size_t bytes) {
  HIP_DOUBLE_ENTER("hipMemsetD8");
  if (!is_device_memory(to, bytes)) return error_invalid_value;
  std::memset(to, value, bytes);
  return success;
}

Result hipStreamCreateWithFlags(HipStream* stream, unsigned) {
  HIP_DOUBLE_ENTER("hipStreamCreate");
  auto* made = new StreamState;
  *stream = reinterpret_cast<HipStream>(made);
  return success;
}

Result hipStreamDestroy(HipStream stream) {
  delete reinterpret_cast<StreamState*>(stream);
  return success;
}

Result hipStreamSynchronize(HipStream) {
  HIP_DOUBLE_ENTER("hipStreamSynchronize");
  return success;
}

Result hipDeviceSynchronize() {
  HIP_DOUBLE_ENTER("hipDeviceSynchronize");
  return success;
}

Result hipEventCreateWithFlags(Event* event, unsigned) {
  HIP_DOUBLE_ENTER("hipEventCreate");
  *event = reinterpret_cast<Event>(new EventState);
  return success;
}

Result hipEventDestroy(Event event) {
  delete reinterpret_cast<EventState*>(event);
  return success;
}

Result hipEventRecord(Event event, HipStream stream) {
  HIP_DOUBLE_ENTER("hipEventRecord");
  // As the runtime's: in a capture it orders streams and records nothing.
  if (stream_of(stream).captured) return success;
  enqueue(stream, {0, reinterpret_cast<EventState*>(event)});
  return success;
}

Result hipEventElapsedTime(float* milliseconds, Event begin, Event end) {
  HIP_DOUBLE_ENTER("hipEventElapsedTime");
  const auto* from = reinterpret_cast<EventState*>(begin);
  const auto* to = reinterpret_cast<EventState*>(end);
  if (from->microseconds < 0 || to->microseconds < 0) return error_invalid_value;
  *milliseconds = static_cast<float>((to->microseconds - from->microseconds) / 1000);
  return success;
}

Result hipStreamBeginCapture(HipStream stream, int) {
  HIP_DOUBLE_ENTER("hipStreamBeginCapture");
  stream_of(stream).captured = std::make_unique<GraphState>();
  return success;
}

Result hipStreamEndCapture(HipStream stream, Graph* graph) {
  HIP_DOUBLE_ENTER("hipStreamEndCapture");
  *graph = reinterpret_cast<Graph>(stream_of(stream).captured.release());
  return *graph != nullptr ? success : error_invalid_value;
}

Result hipStreamIsCapturing(HipStream stream, int* status) {
  *status = stream_of(stream).captured ? 1 : 0;
  return success;
}

Result hipStreamGetCaptureInfo_v2(HipStream stream, int* status, unsigned long long* id, Graph* graph,
                                  const GraphNode** nodes, std::size_t* count) {
  HIP_DOUBLE_ENTER("hipStreamGetCaptureInfo");
  GraphState* captured = stream_of(stream).captured.get();
  *status = captured != nullptr ? 1 : 0;
  *id = 1;
  *graph = reinterpret_cast<Graph>(captured);
  *nodes = nullptr;
  *count = 0;
  return success;
}

Result hipGraphAddEventRecordNode(GraphNode* node, Graph graph, const GraphNode*, std::size_t, Event event) {
  HIP_DOUBLE_ENTER("hipGraphAddEventRecordNode");
  auto& work = reinterpret_cast<GraphState*>(graph)->work;
  work.push_back(std::make_shared<Work>(Work{0, reinterpret_cast<EventState*>(event)}));
  *node = reinterpret_cast<GraphNode>(work.back().get());
  return success;
}

Result hipStreamUpdateCaptureDependencies(HipStream, GraphNode* nodes, std::size_t count, unsigned flags) {
  HIP_DOUBLE_ENTER("hipStreamUpdateCaptureDependencies");
  return nodes != nullptr && count == 1 && flags == set_dependencies ? success : error_invalid_value;
}

Result hipGraphInstantiateWithFlags(GraphExec* made, Graph graph, unsigned long long) {
  HIP_DOUBLE_ENTER("hipGraphInstantiate");
  *made = reinterpret_cast<GraphExec>(new ExecState{*reinterpret_cast<GraphState*>(graph)});
  return success;
}

Result hipGraphUpload(GraphExec, HipStream) {
  HIP_DOUBLE_ENTER("hipGraphUpload");
  return success;
}

/// Sets the clock forward by what its launches take. Results of kernels are those of launches without a graph, which
/// come first.
Result hipGraphLaunch(GraphExec graph, HipStream stream) {
  HIP_DOUBLE_ENTER("hipGraphLaunch");
  for (const auto& work : reinterpret_cast<ExecState*>(graph)->graph.work) enqueue(stream, *work);
  return success;
}

Result hipGraphDestroy(Graph graph) {
  delete reinterpret_cast<GraphState*>(graph);
  return success;
}

Result hipGraphExecDestroy(GraphExec graph) {
  delete reinterpret_cast<ExecState*>(graph);
  return success;
}

Result hipModuleLoadData(Module* module, const void* image) {
  HIP_DOUBLE_ENTER("hipModuleLoadData");
  CodeObject object;
  if (!read_code_object(image, object)) return error_invalid_image;
  std::string log;
  auto made = std::make_unique<ModuleState>();
  made->module = gemmtune::emulation::Module::compile(object.source, object.options, &log);
  if (made->module == nullptr) {
    std::fprintf(stderr, "hip double: %s\n", log.c_str());
    return error_invalid_image;
  }
  *module = reinterpret_cast<Module>(made.release());
  return success;
}

Result hipModuleUnload(Module module) {
  delete reinterpret_cast<ModuleState*>(module);
  return success;
}

Result hipModuleGetFunction(Function* function, Module module, const char* name) {
  HIP_DOUBLE_ENTER("hipModuleGetFunction");
  auto* owner = reinterpret_cast<ModuleState*>(module);
  if (!owner->module->has(name)) return error_not_found;
  auto& made = owner->functions[name];
  if (!made) made = std::make_unique<FunctionState>(FunctionState{owner, name});
  *function = reinterpret_cast<Function>(made.get());
  return success;
}

Result hipModuleLaunchKernel(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                             HipStream stream, void** arguments, void**) {
  HIP_DOUBLE_ENTER("hipModuleLaunchKernel");
  const auto* called = reinterpret_cast<FunctionState*>(function);
  const double blocks = static_cast<double>(grid_x) * grid_y * grid_z;
  const double microseconds =
      6 + blocks * block_x / (256.0 * static_cast<double>(number("HIP_DOUBLE_UNITS", 304)));
  if (!enqueue(stream, {microseconds, nullptr})) return success;  // captured
  gemmtune::emulation::Launch launch{
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, arguments};
  const std::string fault = called->module->module->launch(called->name, launch);
  if (fault.empty()) return success;
  const std::lock_guard held(state().lock);
  state().fault = called->name + ": " + fault;
  state().lost = true;
  return error_launch;
}

Result hipMemGetAllocationGranularity(std::size_t* bytes, const MemoryProperties*, int) {
  *bytes = 4096;
  return success;
}

Result hipMemAddressReserve(DevicePointer* begin, std::size_t bytes, std::size_t, DevicePointer,
                            unsigned long long) {
  HIP_DOUBLE_ENTER("hipMemAddressReserve");
  *begin = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *begin != MAP_FAILED ? success : error_out_of_memory;
}

Result hipMemAddressFree(DevicePointer begin, std::size_t bytes) {
  return munmap(begin, bytes) == 0 ? success : error_invalid_value;
}

Result hipMemCreate(MemoryHandle* handle, std::size_t bytes, const MemoryProperties* properties,
                    unsigned long long) {
  HIP_DOUBLE_ENTER("hipMemCreate");
  if (properties->type != allocation_pinned || properties->location.type != location_device)
    return error_invalid_value;
  *handle = reinterpret_cast<MemoryHandle>(new HandleState{bytes});
  return success;
}

Result hipMemRelease(MemoryHandle handle) {
  delete reinterpret_cast<HandleState*>(handle);
  return success;
}

Result hipMemMap(DevicePointer, std::size_t bytes, std::size_t, MemoryHandle handle, unsigned long long) {
  HIP_DOUBLE_ENTER("hipMemMap");
  return reinterpret_cast<HandleState*>(handle)->bytes == bytes ? success : error_invalid_value;
}

Result hipMemUnmap(DevicePointer begin, std::size_t bytes) {
  const std::lock_guard held(state().lock);
  forget(begin);
  return mprotect(begin, bytes, PROT_NONE) == 0 ? success : error_invalid_value;
}

Result hipMemSetAccess(DevicePointer begin, std::size_t bytes, const MemoryAccess* access, std::size_t) {
  HIP_DOUBLE_ENTER("hipMemSetAccess");
  if (access->flags != access_read_write || mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0)
    return error_invalid_value;
  const std::lock_guard held(state().lock);
  allot(begin, bytes);
  return success;
}

}  // extern "C"
