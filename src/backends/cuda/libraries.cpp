#include "backends/cuda/libraries.h"

#include <algorithm>
#include <filesystem>

#include "base/folder.h"

namespace gemmtune::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view get_driver =
    "install NVIDIA's driver (on Debian: apt-get install nvidia-driver) and see that nvidia-smi runs";
constexpr std::string_view get_nvrtc =
    "without it gemmtune's own GPU kernels cannot be compiled; install the CUDA toolkit, or `pip install "
    "nvidia-cuda-nvrtc` and set GEMMTUNE_LIBRARY_DIR to the folder of libnvrtc.so";
constexpr std::string_view get_cublas =
    "install the CUDA toolkit, or `pip install nvidia-cublas` and set GEMMTUNE_LIBRARY_DIR to the folder of "
    "libcublasLt.so";

using gpu::open_library;
using gpu::SymbolFinder;

void bind(SymbolFinder& find, api::Driver& f) {
  find(f.init, "cuInit")(f.driver_version, "cuDriverGetVersion")(f.error_name, "cuGetErrorName");
  find(f.error_text, "cuGetErrorString")(f.device_count, "cuDeviceGetCount")(f.device_get, "cuDeviceGet");
  find(f.device_name, "cuDeviceGetName")(f.device_attribute, "cuDeviceGetAttribute");
  find(f.device_bus_id, "cuDeviceGetPCIBusId")(f.context_retain, "cuDevicePrimaryCtxRetain");
  find(f.context_release, "cuDevicePrimaryCtxRelease_v2")(f.context_set, "cuCtxSetCurrent");
  find(f.memory_info, "cuMemGetInfo_v2")(f.allocate, "cuMemAlloc_v2")(f.release, "cuMemFree_v2");
  find(f.copy_to_device, "cuMemcpyHtoD_v2")(f.copy_to_host, "cuMemcpyDtoH_v2");
  find(f.copy_on_device, "cuMemcpyDtoD_v2")(f.fill_bytes, "cuMemsetD8_v2");
  find(f.stream_create, "cuStreamCreate")(f.stream_destroy, "cuStreamDestroy_v2");
  find(f.stream_synchronize, "cuStreamSynchronize")(f.context_synchronize, "cuCtxSynchronize");
  find(f.event_create, "cuEventCreate")(f.event_destroy, "cuEventDestroy_v2");
  find(f.event_record, "cuEventRecordWithFlags")(f.event_synchronize, "cuEventSynchronize");
  find(f.event_elapsed, "cuEventElapsedTime")(f.capture_begin, "cuStreamBeginCapture_v2");
  find(f.capture_end, "cuStreamEndCapture")(f.capture_status, "cuStreamIsCapturing");
  find(f.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode")(f.graph_instantiate,
                                                                     "cuGraphInstantiateWithFlags");
  find(f.graph_upload, "cuGraphUpload")(f.graph_launch, "cuGraphLaunch")(f.graph_destroy, "cuGraphDestroy");
  find(f.graph_exec_destroy, "cuGraphExecDestroy")(f.module_load, "cuModuleLoadData");
  find(f.module_unload, "cuModuleUnload")(f.module_function, "cuModuleGetFunction");
  find(f.function_set, "cuFuncSetAttribute")(f.address_reserve, "cuMemAddressReserve");
  find(f.address_free, "cuMemAddressFree")(f.memory_create, "cuMemCreate")(f.memory_release, "cuMemRelease");
  find(f.memory_map, "cuMemMap")(f.memory_unmap, "cuMemUnmap")(f.memory_access, "cuMemSetAccess");
  find(f.memory_granularity, "cuMemGetAllocationGranularity")(f.launch, "cuLaunchKernelEx");
}

void bind(SymbolFinder& find, api::Nvrtc& f) {
  find(f.version, "nvrtcVersion")(f.error_text, "nvrtcGetErrorString")(f.create, "nvrtcCreateProgram");
  find(f.destroy, "nvrtcDestroyProgram")(f.compile, "nvrtcCompileProgram")(f.code_size, "nvrtcGetCUBINSize");
  find(f.code, "nvrtcGetCUBIN")(f.log_size, "nvrtcGetProgramLogSize")(f.log, "nvrtcGetProgramLog");
}

void bind(SymbolFinder& find, api::CublasLt& f) {
  find(f.version, "cublasLtGetVersion")(f.status_text, "cublasLtGetStatusString");
  find(f.create, "cublasLtCreate")(f.destroy, "cublasLtDestroy");
  find(f.matmul_init, "cublasLtMatmulDescInit_internal")(f.matmul_set, "cublasLtMatmulDescSetAttribute");
  find(f.layout_init, "cublasLtMatrixLayoutInit_internal")(f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(f.preference_create, "cublasLtMatmulPreferenceCreate");
  find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic")(f.algorithm_init, "cublasLtMatmulAlgoInit");
  find(f.algorithm_check, "cublasLtMatmulAlgoCheck")(f.algorithm_ids, "cublasLtMatmulAlgoGetIds");
  find(f.algorithm_capability, "cublasLtMatmulAlgoCapGetAttribute");
  find(f.algorithm_set, "cublasLtMatmulAlgoConfigSetAttribute");
  find(f.algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute")(f.matmul, "cublasLtMatmul");
}

void bind(SymbolFinder& find, api::Nvml& f) {
  find(f.init, "nvmlInit_v2")(f.shutdown, "nvmlShutdown")(f.by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
  find(f.clock, "nvmlDeviceGetClockInfo")(f.temperature, "nvmlDeviceGetTemperature");
  find(f.throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
}

std::string dotted(int version, int unit, int digit) {
  return fmt::format("{}.{}", version / unit, version % unit / digit);
}

Opened<api::Driver> open_driver() {
  auto opened = open_library<api::Driver>("driver", {"libcuda.so.1"}, get_driver, bind);
  if (!opened.ok()) return opened;
  const auto refuse = [&](const std::string& why) {
    opened.description.why = why;
    opened.found = Status::not_found("driver: {}", why);
    return opened;
  };
  const api::Driver& f = opened.functions;
  if (const api::Result result = f.init(0); result != api::success) {
    const char* text = nullptr;
    f.error_text(result, &text);
    return refuse(fmt::format("cuInit answers {} ({}); is a GPU visible (nvidia-smi, CUDA_VISIBLE_DEVICES)?",
                              result, text != nullptr ? text : "no text"));
  }
  int version = 0;
  f.driver_version(&version);
  opened.description.version = dotted(version, 1000, 10);
  // Not every driver that is otherwise good enough has it.
  if (const auto library = SharedLibrary::open({"libcuda.so.1"}); library.ok()) {
    (void)library->find("cuTensorMapEncodeTiled", opened.functions.tensor_map);
    (void)library->find("cuOccupancyMaxActiveClusters", opened.functions.max_active_clusters);
    (void)library->find("cuCtxGetExecAffinity", opened.functions.exec_affinity);
  }
  return opened;
}

Opened<api::Nvrtc> open_nvrtc(const std::string& folder) {
  auto opened = open_library<api::Nvrtc>(
      "NVRTC", toolkit_paths(folder, {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}), get_nvrtc, bind);
  if (opened.ok()) opened.description.version = gpu::compiler_version(opened.functions);
  return opened;
}

Opened<api::CublasLt> open_cublas_lt(const std::string& folder) {
  auto opened = open_library<api::CublasLt>(
      "cublasLt", toolkit_paths(folder, {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}),
      get_cublas, bind);
  if (opened.ok()) {
    const auto version = static_cast<int>(opened.functions.version());
    const int unit = version >= 100000 ? 10000 : 1000;
    opened.description.version = fmt::format("{}.{}.{}", version / unit, version % unit / 100, version % 100);
  }
  return opened;
}

Opened<api::Nvml> open_nvml() {
  auto opened = open_library<api::Nvml>("NVML", {"libnvidia-ml.so.1"}, get_driver, bind);
  if (opened.ok() && opened.functions.init() != 0) opened.found = Status::not_found("NVML: nvmlInit failed");
  // NVML has it since Volta.
  if (const auto library = SharedLibrary::open({"libnvidia-ml.so.1"}); opened.ok() && library.ok())
    (void)library->find("nvmlDeviceGetTotalEnergyConsumption", opened.functions.total_energy);
  return opened;
}

/// lib/python3*/site-packages/nvidia/*/lib below a root, as pip unpacks the libraries.
void add_pip_folders(const fs::path& root, std::vector<fs::path>& folders) {
  for (const char* packages : {"site-packages", "dist-packages"}) {
    for (const fs::path python : paths_in((root / "lib").string())) {
      if (!python.filename().string().starts_with("python3")) continue;
      for (const std::string& package : paths_in((python / packages / "nvidia").string()))
        folders.push_back(fs::path(package) / "lib");
    }
  }
}

}  // namespace

std::vector<std::string> toolkit_paths(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<fs::path> folders{"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
  for (const char* root : {"/usr/local", "/usr"}) add_pip_folders(root, folders);
  std::sort(folders.begin() + 2, folders.end());
  return gpu::library_paths(folder, names, folders);
}

const Opened<api::Driver>& driver() {
  static const Opened<api::Driver> opened = open_driver();
  return opened;
}

const Opened<api::Nvrtc>& nvrtc(const std::string& folder) {
  return gpu::opened_once<api::Nvrtc, open_nvrtc>(folder);
}

const Opened<api::CublasLt>& cublas_lt(const std::string& folder) {
  return gpu::opened_once<api::CublasLt, open_cublas_lt>(folder);
}

const Opened<api::Nvml>& nvml() {
  static const Opened<api::Nvml> opened = open_nvml();
  return opened;
}

Status driver_status(api::Result result, std::string_view what) {
  if (result == api::success) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  const api::Driver& f = driver().functions;
  if (f.error_name != nullptr) f.error_name(result, &name);
  if (f.error_text != nullptr) f.error_text(result, &text);
  const std::string message = fmt::format("{}: {}: {}", what, name != nullptr ? name : std::to_string(result),
                                          text != nullptr ? text : "no text");
  return result == api::error_out_of_memory ? Status::out_of_memory("{}", message)
                                            : Status::internal("{}", message);
}

}  // namespace gemmtune::cuda
