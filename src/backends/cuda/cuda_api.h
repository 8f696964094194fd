// The declarations of NVIDIA's driver, NVRTC, cuBLASLt and NVML that gemmtune needs: no toolkit is needed to
// build it. Names and values are those of NVIDIA's public interfaces; tests/backends checks them against the
// toolkit's headers where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cublas_api.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/runtime_api.h"

namespace gemmtune::cuda::api {

using namespace gpu::api;
using Result = gpu::api::Result;  // not gemmtune::Result

// ---- driver (cuda.h)

using Device = int;
using DevicePointer = unsigned long long;
using MemoryHandle = unsigned long long;
struct ContextTag;
using Context = ContextTag*;
using CudaStream = StreamHandle;

// CUdevice_attribute
inline constexpr int attribute_clock_khz = 13;
inline constexpr int attribute_multiprocessors = 16;
inline constexpr int attribute_memory_clock_khz = 36;
inline constexpr int attribute_memory_bus_bits = 37;
inline constexpr int attribute_l2_bytes = 38;
inline constexpr int attribute_major = 75;
inline constexpr int attribute_minor = 76;
inline constexpr int attribute_shared_per_multiprocessor = 81;
inline constexpr int attribute_cooperative_launch = 95;
inline constexpr int attribute_shared_a_block_optin = 97;
// CUfunction_attribute
inline constexpr int function_max_dynamic_shared = 8;
// flags
inline constexpr unsigned event_record_default = 0;
inline constexpr unsigned event_record_external = 1;
inline constexpr int capture_mode_relaxed = 2;

inline constexpr int launch_attribute_cooperative = 2;
inline constexpr int launch_attribute_cluster = 4;
inline constexpr int launch_attribute_programmatic =
    6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
struct LaunchAttribute {
  int id;
  int pad;
  union {
    char bytes[64];
    unsigned cluster[3];
    int number;
  } value;
};
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  CudaStream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

/// How much of the device a context has: multiprocessors.
struct ExecAffinity {
  int type;
  unsigned multiprocessors;
};
inline constexpr int affinity_multiprocessors = 0;

using TensorMap = cuda::TensorMap;
// CUtensorMapDataType and its neighbours
inline constexpr int tensor_uint8 = 0;
inline constexpr int tensor_uint16 = 1;
inline constexpr int tensor_uint32 = 2;
inline constexpr int tensor_interleave_none = 0;
inline constexpr int tensor_swizzle_none = 0;
inline constexpr int tensor_swizzle_128 = 3;
inline constexpr int tensor_promote_128 = 2;
inline constexpr int tensor_fill_zero = 0;

struct MemoryProperties {
  int type;
  int handle_types;
  MemoryLocation location;
  void* win32;
  unsigned char compression;
  unsigned char rdma;
  unsigned short usage;
  unsigned char reserved[4];
};

struct Driver {
  Result (*init)(unsigned);
  Result (*driver_version)(int*);
  Result (*error_name)(Result, const char**);
  Result (*error_text)(Result, const char**);
  Result (*device_count)(int*);
  Result (*device_get)(Device*, int);
  Result (*device_name)(char*, int, Device);
  Result (*device_attribute)(int*, int, Device);
  Result (*device_bus_id)(char*, int, Device);
  Result (*context_retain)(Context*, Device);
  Result (*context_release)(Device);
  Result (*context_set)(Context);
  Result (*memory_info)(std::size_t*, std::size_t*);
  Result (*allocate)(DevicePointer*, std::size_t);
  Result (*release)(DevicePointer);
  Result (*copy_to_device)(DevicePointer, const void*, std::size_t);
  Result (*copy_to_host)(void*, DevicePointer, std::size_t);
  Result (*copy_on_device)(DevicePointer, DevicePointer, std::size_t);
  Result (*fill_bytes)(DevicePointer, unsigned char, std::size_t);
  Result (*stream_create)(CudaStream*, unsigned);
  Result (*stream_destroy)(CudaStream);
  Result (*stream_synchronize)(CudaStream);
  Result (*context_synchronize)();
  Result (*event_create)(Event*, unsigned);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, CudaStream, unsigned);
  Result (*event_synchronize)(Event);
  Result (*event_elapsed)(float*, Event, Event);
  Result (*capture_begin)(CudaStream, int);
  Result (*capture_end)(CudaStream, Graph*);
  Result (*capture_status)(CudaStream, int*);
  Result (*exchange_capture_mode)(int*);
  Result (*graph_instantiate)(GraphExec*, Graph, unsigned long long);
  Result (*graph_upload)(GraphExec, CudaStream);
  Result (*graph_launch)(GraphExec, CudaStream);
  Result (*graph_destroy)(Graph);
  Result (*graph_exec_destroy)(GraphExec);
  Result (*module_load)(Module*, const void*);
  Result (*module_unload)(Module);
  Result (*module_function)(Function*, Module, const char*);
  Result (*function_set)(Function, int, int);
  Result (*launch)(const LaunchConfig*, Function, void**, void**);
  Result (*address_reserve)(DevicePointer*, std::size_t, std::size_t, DevicePointer, unsigned long long);
  Result (*address_free)(DevicePointer, std::size_t);
  Result (*memory_create)(MemoryHandle*, std::size_t, const MemoryProperties*, unsigned long long);
  Result (*memory_release)(MemoryHandle);
  Result (*memory_map)(DevicePointer, std::size_t, std::size_t, MemoryHandle, unsigned long long);
  Result (*memory_unmap)(DevicePointer, std::size_t);
  Result (*memory_access)(DevicePointer, std::size_t, const MemoryAccess*, std::size_t);
  Result (*memory_granularity)(std::size_t*, const MemoryProperties*, int);
  // For Hopper's clusters and TMA; null where the driver is older.
  Result (*max_active_clusters)(int*, Function, const LaunchConfig*);
  Result (*exec_affinity)(ExecAffinity*, int);
  Result (*tensor_map)(TensorMap*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                       const std::uint32_t*, const std::uint32_t*, int, int, int, int);
};

// ---- NVRTC (nvrtc.h)

struct Nvrtc {
  int (*version)(int*, int*);
  const char* (*error_text)(int);
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int, const char* const*);
  int (*code_size)(Program, std::size_t*);
  int (*code)(Program, char*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
};

// ---- cuBLASLt (cublasLt.h); its types and values: backends/cublas_api.h

struct CublasLt {
  std::size_t (*version)();
  const char* (*status_text)(int);
  int (*create)(LtHandle*);
  int (*destroy)(LtHandle);
  int (*matmul_init)(LtMatmul*, std::size_t, int, int);
  int (*matmul_set)(LtMatmul*, int, const void*, std::size_t);
  int (*layout_init)(LtLayout*, std::size_t, int, std::uint64_t, std::uint64_t, std::int64_t);
  int (*layout_set)(LtLayout*, int, const void*, std::size_t);
  int (*preference_create)(LtPreference*);
  int (*preference_destroy)(LtPreference);
  int (*preference_set)(LtPreference, int, const void*, std::size_t);
  int (*heuristic)(LtHandle, LtMatmul*, LtLayout*, LtLayout*, LtLayout*, LtLayout*, LtPreference, int,
                   LtHeuristic*, int*);
  int (*algorithm_init)(LtHandle, int, int, int, int, int, int, int, LtAlgorithm*);
  int (*algorithm_ids)(LtHandle, int, int, int, int, int, int, int, int*, int*);
  int (*algorithm_capability)(const LtAlgorithm*, int, void*, std::size_t, std::size_t*);
  int (*algorithm_check)(LtHandle, LtMatmul*, LtLayout*, LtLayout*, LtLayout*, LtLayout*, const LtAlgorithm*,
                         LtHeuristic*);
  int (*algorithm_set)(LtAlgorithm*, int, const void*, std::size_t);
  int (*algorithm_get)(const LtAlgorithm*, int, void*, std::size_t, std::size_t*);
  int (*matmul)(LtHandle, LtMatmul*, const void*, const void*, LtLayout*, const void*, LtLayout*, const void*,
                const void*, LtLayout*, void*, LtLayout*, const LtAlgorithm*, void*, std::size_t, CudaStream);
};

// ---- NVML (nvml.h)

struct NvmlDeviceTag;
using NvmlDevice = NvmlDeviceTag*;
inline constexpr int clock_sm = 1;
inline constexpr int clock_memory = 2;
struct Nvml {
  int (*init)();
  int (*shutdown)();
  int (*by_bus_id)(const char*, NvmlDevice*);
  int (*clock)(NvmlDevice, int, unsigned*);
  int (*throttle_reasons)(NvmlDevice, unsigned long long*);
  int (*temperature)(NvmlDevice, int, unsigned*);
  int (*total_energy)(NvmlDevice, unsigned long long*);  // millijoules; null: the library has none
};

}  // namespace gemmtune::cuda::api
