// Our declarations of AMD's interfaces against the headers that are installed: Debian's libamdhip64-dev (5.2.3), or
// ROCm's. Without them the tests are skipped.
#include "backends/hip/hip_api.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "support/called_alike.h"

#if __has_include(<hip/hip_runtime_api.h>)
#define __HIP_PLATFORM_AMD__ 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>
#pragma GCC diagnostic pop
#define HAS_HIP 1
#endif

namespace gemmtune::hip {
namespace {

#ifndef HAS_HIP

TEST(HipApi, AgreesWithTheHeaders) {
  GTEST_SKIP() << "no hip/hip_runtime_api.h (apt-get install libamdhip64-dev)";
}

#else

using test::called_alike;

/// Clang and C++ say noexcept where GCC's C does not; overloads are chosen by the caller.
#define EXPECT_CALLED_ALIKE(field, function) \
  EXPECT_TRUE(called_alike(decltype(api::Runtime::field){}, &function)) << #function
#define EXPECT_COMPILES_ALIKE(field, function) \
  EXPECT_TRUE(called_alike(decltype(api::Rtc::field){}, &function)) << #function

TEST(HipApi, FunctionsOfTheRuntime) {
  EXPECT_CALLED_ALIKE(init, hipInit);
  EXPECT_CALLED_ALIKE(runtime_version, hipRuntimeGetVersion);
  EXPECT_CALLED_ALIKE(error_name, hipGetErrorName);
  EXPECT_CALLED_ALIKE(error_text, hipGetErrorString);
  EXPECT_CALLED_ALIKE(last_error, hipGetLastError);
  EXPECT_CALLED_ALIKE(device_count, hipGetDeviceCount);
  EXPECT_CALLED_ALIKE(device_attribute, hipDeviceGetAttribute);
  EXPECT_CALLED_ALIKE(device_bus_id, hipDeviceGetPCIBusId);
  EXPECT_CALLED_ALIKE(set_device, hipSetDevice);
  EXPECT_CALLED_ALIKE(memory_info, hipMemGetInfo);
  EXPECT_TRUE(called_alike(decltype(api::Runtime::allocate){},
                           static_cast<hipError_t (*)(void**, std::size_t)>(&hipMalloc)));
  EXPECT_CALLED_ALIKE(release, hipFree);
  EXPECT_CALLED_ALIKE(copy_to_device, hipMemcpyHtoD);
  EXPECT_CALLED_ALIKE(copy_to_host, hipMemcpyDtoH);
  EXPECT_CALLED_ALIKE(copy_on_device, hipMemcpyDtoD);
  EXPECT_CALLED_ALIKE(fill_bytes, hipMemsetD8);
  EXPECT_CALLED_ALIKE(stream_create, hipStreamCreateWithFlags);
  EXPECT_CALLED_ALIKE(stream_destroy, hipStreamDestroy);
  EXPECT_CALLED_ALIKE(stream_synchronize, hipStreamSynchronize);
  EXPECT_CALLED_ALIKE(device_synchronize, hipDeviceSynchronize);
  EXPECT_CALLED_ALIKE(event_create, hipEventCreateWithFlags);
  EXPECT_CALLED_ALIKE(event_destroy, hipEventDestroy);
  EXPECT_CALLED_ALIKE(event_record, hipEventRecord);
  EXPECT_CALLED_ALIKE(event_elapsed, hipEventElapsedTime);
  EXPECT_CALLED_ALIKE(capture_begin, hipStreamBeginCapture);
  EXPECT_CALLED_ALIKE(capture_end, hipStreamEndCapture);
  EXPECT_CALLED_ALIKE(capture_status, hipStreamIsCapturing);
  EXPECT_CALLED_ALIKE(capture_info, hipStreamGetCaptureInfo_v2);
  EXPECT_CALLED_ALIKE(capture_depend, hipStreamUpdateCaptureDependencies);
  EXPECT_CALLED_ALIKE(graph_add_record, hipGraphAddEventRecordNode);
  EXPECT_CALLED_ALIKE(graph_instantiate, hipGraphInstantiateWithFlags);
  EXPECT_CALLED_ALIKE(graph_launch, hipGraphLaunch);
  EXPECT_CALLED_ALIKE(graph_destroy, hipGraphDestroy);
  EXPECT_CALLED_ALIKE(graph_exec_destroy, hipGraphExecDestroy);
  EXPECT_CALLED_ALIKE(module_load, hipModuleLoadData);
  EXPECT_CALLED_ALIKE(module_unload, hipModuleUnload);
  EXPECT_CALLED_ALIKE(module_function, hipModuleGetFunction);
  EXPECT_CALLED_ALIKE(launch, hipModuleLaunchKernel);
  EXPECT_CALLED_ALIKE(address_reserve, hipMemAddressReserve);
  EXPECT_CALLED_ALIKE(address_free, hipMemAddressFree);
  EXPECT_CALLED_ALIKE(memory_create, hipMemCreate);
  EXPECT_CALLED_ALIKE(memory_release, hipMemRelease);
  EXPECT_CALLED_ALIKE(memory_map, hipMemMap);
  EXPECT_CALLED_ALIKE(memory_unmap, hipMemUnmap);
  EXPECT_CALLED_ALIKE(memory_access, hipMemSetAccess);
  EXPECT_CALLED_ALIKE(memory_granularity, hipMemGetAllocationGranularity);
}

TEST(HipApi, FunctionsOfTheCompiler) {
  EXPECT_COMPILES_ALIKE(version, hiprtcVersion);
  EXPECT_COMPILES_ALIKE(error_text, hiprtcGetErrorString);
  EXPECT_COMPILES_ALIKE(create, hiprtcCreateProgram);
  EXPECT_COMPILES_ALIKE(destroy, hiprtcDestroyProgram);
  EXPECT_COMPILES_ALIKE(compile, hiprtcCompileProgram);
  EXPECT_COMPILES_ALIKE(code_size, hiprtcGetCodeSize);
  EXPECT_COMPILES_ALIKE(code, hiprtcGetCode);
  EXPECT_COMPILES_ALIKE(log_size, hiprtcGetProgramLogSize);
  EXPECT_COMPILES_ALIKE(log, hiprtcGetProgramLog);
}

TEST(HipApi, Values) {
  EXPECT_EQ(api::success, static_cast<int>(hipSuccess));
  EXPECT_EQ(api::error_out_of_memory, static_cast<int>(hipErrorOutOfMemory));
  EXPECT_EQ(api::attribute_l2_bytes, static_cast<int>(hipDeviceAttributeL2CacheSize));
  EXPECT_EQ(api::attribute_multiprocessors, static_cast<int>(hipDeviceAttributeMultiprocessorCount));
  EXPECT_EQ(api::attribute_shared_per_block, static_cast<int>(hipDeviceAttributeMaxSharedMemoryPerBlock));
  EXPECT_EQ(api::event_default, static_cast<unsigned>(hipEventDefault));
  EXPECT_EQ(api::stream_default, static_cast<unsigned>(hipStreamDefault));
  EXPECT_EQ(api::capture_mode_thread_local, static_cast<int>(hipStreamCaptureModeThreadLocal));
  EXPECT_EQ(api::capture_none, static_cast<int>(hipStreamCaptureStatusNone));
  EXPECT_EQ(api::set_dependencies, static_cast<unsigned>(hipStreamSetCaptureDependencies));
  EXPECT_EQ(api::location_device, static_cast<int>(hipMemLocationTypeDevice));
  EXPECT_EQ(api::allocation_pinned, static_cast<int>(hipMemAllocationTypePinned));
  EXPECT_EQ(api::access_read_write, static_cast<int>(hipMemAccessFlagsProtReadWrite));
}

TEST(HipApi, Structures) {
  EXPECT_EQ(sizeof(api::MemoryProperties), sizeof(hipMemAllocationProp));
  EXPECT_EQ(sizeof(api::MemoryAccess), sizeof(hipMemAccessDesc));
  EXPECT_EQ(offsetof(api::MemoryAccess, flags), offsetof(hipMemAccessDesc, flags));
}

/// What ROCm 6.0 changed: gemmtune refuses older runtimes.
TEST(HipApi, StructuresOfRocm6) {
#if HIP_VERSION_MAJOR >= 6
  EXPECT_EQ(offsetof(api::MemoryProperties, location), offsetof(hipMemAllocationProp, location));
  EXPECT_EQ(offsetof(api::MemoryProperties, win32), offsetof(hipMemAllocationProp, win32HandleMetaData));
  EXPECT_EQ(offsetof(api::Properties, architecture), offsetof(hipDeviceProp_tR0600, gcnArchName));
  EXPECT_GE(sizeof(api::Properties), sizeof(hipDeviceProp_tR0600));
  EXPECT_CALLED_ALIKE(device_properties, hipGetDevicePropertiesR0600);
  EXPECT_CALLED_ALIKE(graph_upload, hipGraphUpload);
#else
  GTEST_SKIP() << "the headers are HIP " << HIP_VERSION_MAJOR
               << "'s; hipDeviceProp_tR0600, hipMemAllocationProp "
               << "and hipGraphUpload are ROCm 6's";
#endif
}

#endif

}  // namespace
}  // namespace gemmtune::hip
