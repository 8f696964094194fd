#include "backends/hip/libraries.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/folder.h"

namespace gemmtune::hip {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view get_rocm =
    "install ROCm 6.0 or later (amdgpu-install --usecase=rocm), or set LD_LIBRARY_PATH to the folder of its "
    "libraries";
constexpr std::string_view get_rtc =
    "without it gemmtune's own GPU kernels cannot be compiled; it is ROCm's package hip-runtime-amd, or set "
    "GEMMTUNE_LIBRARY_DIR to the folder of libhiprtc.so";
constexpr std::string_view get_hipblaslt =
    "install the package hipblaslt of ROCm 6.1 or later, or set GEMMTUNE_LIBRARY_DIR to the folder of "
    "libhipblaslt.so";
constexpr std::string_view get_smi = "install ROCm's package amd-smi-lib";

using gpu::open_library;
using gpu::SymbolFinder;

void bind_runtime(SymbolFinder& find, api::Runtime& f) {
  find(f.init, "hipInit")(f.runtime_version, "hipRuntimeGetVersion")(f.error_name, "hipGetErrorName");
  find(f.error_text, "hipGetErrorString")(f.last_error, "hipGetLastError")(f.device_count,
                                                                           "hipGetDeviceCount");
  find(f.device_properties, "hipGetDevicePropertiesR0600")(f.device_attribute, "hipDeviceGetAttribute");
  find(f.device_bus_id, "hipDeviceGetPCIBusId")(f.set_device, "hipSetDevice")(f.memory_info, "hipMemGetInfo");
  find(f.allocate, "hipMalloc")(f.release, "hipFree")(f.copy_to_device, "hipMemcpyHtoD");
  find(f.copy_to_host, "hipMemcpyDtoH")(f.copy_on_device, "hipMemcpyDtoD")(f.fill_bytes, "hipMemsetD8");
  find(f.stream_create, "hipStreamCreateWithFlags")(f.stream_destroy, "hipStreamDestroy");
  find(f.stream_synchronize, "hipStreamSynchronize")(f.device_synchronize, "hipDeviceSynchronize");
  find(f.event_create, "hipEventCreateWithFlags")(f.event_destroy, "hipEventDestroy");
  find(f.event_record, "hipEventRecord")(f.event_elapsed, "hipEventElapsedTime");
  find(f.capture_begin, "hipStreamBeginCapture")(f.capture_end, "hipStreamEndCapture");
  find(f.capture_status, "hipStreamIsCapturing")(f.capture_info, "hipStreamGetCaptureInfo_v2");
  find(f.capture_depend, "hipStreamUpdateCaptureDependencies")(f.graph_add_record,
                                                               "hipGraphAddEventRecordNode");
  find(f.graph_instantiate, "hipGraphInstantiateWithFlags")(f.graph_upload, "hipGraphUpload");
  find(f.graph_launch, "hipGraphLaunch")(f.graph_destroy, "hipGraphDestroy");
  find(f.graph_exec_destroy, "hipGraphExecDestroy")(f.module_load, "hipModuleLoadData");
  find(f.module_unload, "hipModuleUnload")(f.module_function, "hipModuleGetFunction");
  find(f.launch, "hipModuleLaunchKernel")(f.address_reserve, "hipMemAddressReserve");
  find(f.address_free, "hipMemAddressFree")(f.memory_create, "hipMemCreate")(f.memory_release,
                                                                             "hipMemRelease");
  find(f.memory_map, "hipMemMap")(f.memory_unmap, "hipMemUnmap")(f.memory_access, "hipMemSetAccess");
  find(f.memory_granularity, "hipMemGetAllocationGranularity");
}

void bind_rtc(SymbolFinder& find, api::Rtc& f) {
  find(f.version, "hiprtcVersion")(f.error_text, "hiprtcGetErrorString")(f.create, "hiprtcCreateProgram");
  find(f.destroy, "hiprtcDestroyProgram")(f.compile, "hiprtcCompileProgram")(f.code_size,
                                                                             "hiprtcGetCodeSize");
  find(f.code, "hiprtcGetCode")(f.log_size, "hiprtcGetProgramLogSize")(f.log, "hiprtcGetProgramLog");
}

void bind_hipblaslt(SymbolFinder& find, api::HipblasLt& f) {
  find(f.version, "hipblasLtGetVersion")(f.revision, "hipblasLtGetGitRevision");
  find(f.create, "hipblasLtCreate")(f.destroy, "hipblasLtDestroy");
  find(f.matmul_create, "hipblasLtMatmulDescCreate")(f.matmul_destroy, "hipblasLtMatmulDescDestroy");
  find(f.matmul_set, "hipblasLtMatmulDescSetAttribute")(f.layout_create, "hipblasLtMatrixLayoutCreate");
  find(f.layout_destroy, "hipblasLtMatrixLayoutDestroy")(f.layout_set, "hipblasLtMatrixLayoutSetAttribute");
  find(f.preference_create, "hipblasLtMatmulPreferenceCreate");
  find(f.preference_destroy, "hipblasLtMatmulPreferenceDestroy");
  find(f.preference_set, "hipblasLtMatmulPreferenceSetAttribute");
  find(f.heuristic, "hipblasLtMatmulAlgoGetHeuristic")(f.matmul, "hipblasLtMatmul");
  find(f.all_solutions,
       "_ZN13hipblaslt_ext11getAllAlgosEPvNS_8GemmTypeE18hipblasOperation_tS2_11hipDataTypeS3_S3_S3_"
       "20hipblasComputeType_tRSt6vectorI33_hipblasLtMatmulHeuristicResult_tSaIS6_EE");
  find(f.by_index,
       "_ZN13hipblaslt_ext17getAlgosFromIndexEPvRSt6vectorIiSaIiEERS1_I33_hipblasLtMatmulHeuristicResult_"
       "tSaIS5_EE");
  find(f.index_of, "_ZN13hipblaslt_ext16getIndexFromAlgoER22_hipblasLtMatmulAlgo_t");
  find(f.name_of, "_ZN13hipblaslt_ext23getSolutionNameFromAlgoB5cxx11EPvR22_hipblasLtMatmulAlgo_t");
  find(f.supported,
       "_ZN13hipblaslt_ext21matmulIsAlgoSupportedEPvP27hipblasLtMatmulDescOpaque_"
       "tPKvP29hipblasLtMatrixLayoutOpaque_tS6_S4_S6_S6_R22_hipblasLtMatmulAlgo_tRm");
}

void bind_smi(SymbolFinder& find, api::Smi& f) {
  find(f.init, "amdsmi_init")(f.by_bdf, "amdsmi_get_processor_handle_from_bdf")(f.clock,
                                                                                "amdsmi_get_clock_info");
  find(f.temperature, "amdsmi_get_temp_metric")(f.energy, "amdsmi_get_energy_count");
}

/// Where a library of ROCm may lie: `folder`, the loader's own places, /opt/rocm and its versions, the newest first.
std::vector<std::string> rocm_paths(const std::string& folder, const std::vector<std::string>& names) {
  std::vector<std::string> versions;
  for (const std::string& path : paths_in("/opt"))
    if (fs::path(path).filename().string().starts_with("rocm")) versions.push_back(path);
  std::sort(versions.rbegin(), versions.rend());
  std::vector<fs::path> folders;
  for (const std::string& version : versions) folders.push_back(fs::path(version) / "lib");
  return gpu::library_paths(folder, names, folders);
}

/// "6.2.41134" for HIP's own 60241134.
std::string hip_version(int version) {
  return fmt::format("{}.{}.{}", version / 10000000, version % 10000000 / 100000, version % 100000);
}

Opened<api::Runtime> open_runtime_library() {
  // The runtime starts ROCm's, which takes 15 ms of a core, before it looks at the variable.
  if (const char* visible = std::getenv("HIP_VISIBLE_DEVICES");
      visible != nullptr && visible == std::string_view("-1")) {
    Opened<api::Runtime> hidden;
    hidden.description.name = "HIP runtime";
    hidden.description.why = "HIP_VISIBLE_DEVICES=-1 hides all GPUs";
    hidden.found = Status::not_found("HIP runtime: {}", hidden.description.why);
    return hidden;
  }
  auto opened = open_library<api::Runtime>(
      "HIP runtime",
      rocm_paths({}, {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5"}),
      get_rocm, bind_runtime);
  if (!opened.ok()) return opened;
  const api::Runtime& f = opened.functions;
  int version = 0;
  f.runtime_version(&version);
  opened.description.version = hip_version(version);
  if (const api::Result result = f.init(0); result != api::success) {
    opened.description.why = fmt::format(
        "hipInit answers {} ({}); is a GPU visible (rocminfo, HIP_VISIBLE_DEVICES), and is the user in the "
        "groups video and render?",
        f.error_name(result), f.error_text(result));
    opened.found = Status::not_found("HIP runtime: {}", opened.description.why);
  }
  return opened;
}

Opened<api::Rtc> open_rtc(const std::string& folder) {
  auto opened = open_library<api::Rtc>(
      "hipRTC", rocm_paths(folder, {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so"}), get_rtc, bind_rtc);
  if (opened.ok()) opened.description.version = gpu::compiler_version(opened.functions);
  return opened;
}

/// "0.10.0-bb5fd0e": indices of solutions are of one build.
std::string hipblaslt_version(const api::HipblasLt& f) {
  api::LtHandle handle = nullptr;
  if (f.create(&handle) != 0) return {};
  int version = 0;
  std::string revision(256, '\0');
  f.version(handle, &version);
  if (f.revision(handle, revision.data()) != 0) revision.clear();
  f.destroy(handle);
  revision.resize(std::min<std::size_t>(revision.find('\0'), 7));
  return fmt::format("{}.{}.{}{}{}", version / 100000, version % 100000 / 100, version % 100,
                     revision.empty() ? "" : "-", revision);
}

Opened<api::HipblasLt> open_hipblas_lt(const std::string& folder) {
  auto opened = open_library<api::HipblasLt>(
      "hipBLASLt", rocm_paths(folder, {"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"}),
      get_hipblaslt, bind_hipblaslt);
  // A handle needs a device.
  if (opened.ok() && runtime().ok()) opened.description.version = hipblaslt_version(opened.functions);
  return opened;
}

Opened<api::Smi> open_smi() {
  auto opened = open_library<api::Smi>("AMD SMI", rocm_paths({}, {"libamd_smi.so"}), get_smi, bind_smi);
  if (opened.ok() && opened.functions.init(api::smi_gpus) != 0) {
    opened.description.why = "amdsmi_init failed";
    opened.found = Status::not_found("AMD SMI: amdsmi_init failed");
  }
  return opened;
}

}  // namespace

const Opened<api::Runtime>& runtime() {
  static const Opened<api::Runtime> opened = open_runtime_library();
  return opened;
}

const Opened<api::Rtc>& rtc(const std::string& folder) {
  return gpu::opened_once<api::Rtc, open_rtc>(folder);
}

const Opened<api::HipblasLt>& hipblas_lt(const std::string& folder) {
  return gpu::opened_once<api::HipblasLt, open_hipblas_lt>(folder);
}

const Opened<api::Smi>& smi() {
  static const Opened<api::Smi> opened = open_smi();
  return opened;
}

Status runtime_status(api::Result result, std::string_view what) {
  if (result == api::success) return {};
  const api::Runtime& f = runtime().functions;
  const char* name = f.error_name != nullptr ? f.error_name(result) : "";
  const char* text = f.error_text != nullptr ? f.error_text(result) : "";
  const std::string message = fmt::format("{}: {}: {}", what, name, text);
  return result == api::error_out_of_memory ? Status::out_of_memory("{}", message)
                                            : Status::internal("{}", message);
}

}  // namespace gemmtune::hip
