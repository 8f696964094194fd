// The declarations of AMD's HIP runtime, hipRTC, hipBLASLt and AMD SMI that gemmtune needs: no ROCm is needed to build
// it. Names and values are those of AMD's public interfaces from ROCm 6.0 on; tests/hip checks them against the headers
// where some are installed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/gpu/runtime_api.h"

namespace gemmtune::hip::api {

using namespace gpu::api;
using Result = gpu::api::Result;  // not gemmtune::Result

// ---- HIP runtime (hip_runtime_api.h)

using DevicePointer = void*;
struct MemoryHandleTag;
struct GraphNodeTag;
using MemoryHandle = MemoryHandleTag*;
using HipStream = StreamHandle;
using GraphNode = GraphNodeTag*;

// hipDeviceAttribute_t
inline constexpr int attribute_l2_bytes = 19;
inline constexpr int attribute_multiprocessors = 63;
inline constexpr int attribute_shared_per_block = 74;
// flags
inline constexpr unsigned set_dependencies = 1;  // hipStreamSetCaptureDependencies

/// hipDeviceProp_tR0600, of which only two texts are read; all of it is the library's to write.
struct Properties {
  char name[256];
  char between[904];
  char architecture[256];  // gcnArchName: "gfx942:sramecc+:xnack-"
  char rest[1024];         // more than any version has had
};

struct MemoryProperties {
  int type;
  int handle_type;
  MemoryLocation location;
  void* win32;
  unsigned char compression;
  unsigned char rdma;
  unsigned short usage;
};

struct Runtime {
  Result (*init)(unsigned);
  Result (*runtime_version)(int*);
  const char* (*error_name)(Result);
  const char* (*error_text)(Result);
  Result (*last_error)();
  Result (*device_count)(int*);
  Result (*device_properties)(Properties*, int);
  Result (*device_attribute)(int*, int, int);
  Result (*device_bus_id)(char*, int, int);
  Result (*set_device)(int);
  Result (*memory_info)(std::size_t*, std::size_t*);
  Result (*allocate)(DevicePointer*, std::size_t);
  Result (*release)(DevicePointer);
  Result (*copy_to_device)(DevicePointer, void*, std::size_t);
  Result (*copy_to_host)(void*, DevicePointer, std::size_t);
  Result (*copy_on_device)(DevicePointer, DevicePointer, std::size_t);
  Result (*fill_bytes)(DevicePointer, unsigned char, std::size_t);
  Result (*stream_create)(HipStream*, unsigned);
  Result (*stream_destroy)(HipStream);
  Result (*stream_synchronize)(HipStream);
  Result (*device_synchronize)();
  Result (*event_create)(Event*, unsigned);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, HipStream);
  Result (*event_elapsed)(float*, Event, Event);
  Result (*capture_begin)(HipStream, int);
  Result (*capture_end)(HipStream, Graph*);
  Result (*capture_status)(HipStream, int*);
  Result (*capture_info)(HipStream, int*, unsigned long long*, Graph*, const GraphNode**, std::size_t*);
  Result (*capture_depend)(HipStream, GraphNode*, std::size_t, unsigned);
  Result (*graph_add_record)(GraphNode*, Graph, const GraphNode*, std::size_t, Event);
  Result (*graph_instantiate)(GraphExec*, Graph, unsigned long long);
  Result (*graph_upload)(GraphExec, HipStream);
  Result (*graph_launch)(GraphExec, HipStream);
  Result (*graph_destroy)(Graph);
  Result (*graph_exec_destroy)(GraphExec);
  Result (*module_load)(Module*, const void*);
  Result (*module_unload)(Module);
  Result (*module_function)(Function*, Module, const char*);
  Result (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, HipStream,
                   void**, void**);
  Result (*address_reserve)(DevicePointer*, std::size_t, std::size_t, DevicePointer, unsigned long long);
  Result (*address_free)(DevicePointer, std::size_t);
  Result (*memory_create)(MemoryHandle*, std::size_t, const MemoryProperties*, unsigned long long);
  Result (*memory_release)(MemoryHandle);
  Result (*memory_map)(DevicePointer, std::size_t, std::size_t, MemoryHandle, unsigned long long);
  Result (*memory_unmap)(DevicePointer, std::size_t);
  Result (*memory_access)(DevicePointer, std::size_t, const MemoryAccess*, std::size_t);
  Result (*memory_granularity)(std::size_t*, const MemoryProperties*, int);
};

// ---- hipRTC (hiprtc.h)

struct Rtc {
  int (*version)(int*, int*);
  const char* (*error_text)(int);
  int (*create)(Program*, const char*, const char*, int, const char**, const char**);
  int (*destroy)(Program*);
  int (*compile)(Program, int, const char**);
  int (*code_size)(Program, std::size_t*);
  int (*code)(Program, char*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
};

// ---- hipBLASLt (hipblaslt.h, hipblaslt-ext.hpp)

using LtHandle = void*;
struct LtMatmulTag;
struct LtLayoutTag;
struct LtPreferenceTag;
using LtMatmul = LtMatmulTag*;
using LtLayout = LtLayoutTag*;
using LtPreference = LtPreferenceTag*;
struct LtAlgorithm {  // hipblasLtMatmulAlgo_t
  unsigned char data[16];
  std::size_t max_workspace_bytes;
};
struct LtHeuristic {  // hipblasLtMatmulHeuristicResult_t
  LtAlgorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
inline constexpr int lt_not_supported = 7;
// hipDataType, hipblasComputeType_t, hipblasOperation_t
inline constexpr int type_f32 = 0;
inline constexpr int type_f16 = 2;
inline constexpr int type_bf16 = 14;
inline constexpr int type_e4m3 = 28;
inline constexpr int type_e4m3_fnuz = 1000;
inline constexpr int compute_f32 = 2;
inline constexpr int operation_none = 111;
inline constexpr int operation_transpose = 112;
inline constexpr int epilogue_bias = 4;
inline constexpr int gemm = 1;  // hipblaslt_ext::GemmType
// attributes of a matmul, a layout, a preference
inline constexpr int matmul_transpose_a = 0;
inline constexpr int matmul_transpose_b = 1;
inline constexpr int matmul_epilogue = 2;
inline constexpr int matmul_bias_pointer = 3;
inline constexpr int matmul_bias_type = 4;
inline constexpr int matmul_a_scale_pointer = 5;
inline constexpr int matmul_b_scale_pointer = 6;
inline constexpr int layout_batch_count = 0;
inline constexpr int layout_batch_stride = 1;
inline constexpr int layout_leading_dimension = 6;
inline constexpr int preference_workspace_bytes = 1;

/// The last five are C++ functions of the library (namespace hipblaslt_ext): no C function names a solution or finds
/// it by its index. References are pointers here; a text is returned through the first parameter.
struct HipblasLt {
  int (*version)(LtHandle, int*);
  int (*revision)(LtHandle, char*);
  int (*create)(LtHandle*);
  int (*destroy)(LtHandle);
  int (*matmul_create)(LtMatmul*, int, int);
  int (*matmul_destroy)(LtMatmul);
  int (*matmul_set)(LtMatmul, int, const void*, std::size_t);
  int (*layout_create)(LtLayout*, int, std::uint64_t, std::uint64_t, std::int64_t);
  int (*layout_destroy)(LtLayout);
  int (*layout_set)(LtLayout, int, const void*, std::size_t);
  int (*preference_create)(LtPreference*);
  int (*preference_destroy)(LtPreference);
  int (*preference_set)(LtPreference, int, const void*, std::size_t);
  int (*heuristic)(LtHandle, LtMatmul, LtLayout, LtLayout, LtLayout, LtLayout, LtPreference, int,
                   LtHeuristic*, int*);
  int (*matmul)(LtHandle, LtMatmul, const void*, const void*, LtLayout, const void*, LtLayout, const void*,
                const void*, LtLayout, void*, LtLayout, const LtAlgorithm*, void*, std::size_t, HipStream);
  int (*all_solutions)(LtHandle, int, int, int, int, int, int, int, int, std::vector<LtHeuristic>*);
  int (*by_index)(LtHandle, std::vector<int>*, std::vector<LtHeuristic>*);
  int (*index_of)(LtAlgorithm*);
  std::string (*name_of)(LtHandle, LtAlgorithm*);
  int (*supported)(LtHandle, LtMatmul, const void*, LtLayout, LtLayout, const void*, LtLayout, LtLayout,
                   LtAlgorithm*, std::size_t*);
};

// ---- AMD SMI (amdsmi.h)

using SmiProcessor = void*;
inline constexpr std::uint64_t smi_gpus = 2;
inline constexpr int smi_clock_gfx = 0;
inline constexpr int smi_clock_memory = 4;
inline constexpr int smi_temperature_hotspot = 1;
inline constexpr int smi_temperature_current = 0;
struct SmiClock {  // amdsmi_clk_info_t: the first number is the clock in MHz; versions differ in what follows
  std::uint32_t mhz;
  std::uint32_t rest[31];
};
struct Smi {
  int (*init)(std::uint64_t);
  int (*by_bdf)(std::uint64_t, SmiProcessor*);
  int (*clock)(SmiProcessor, int, SmiClock*);
  int (*temperature)(SmiProcessor, int, int, std::int64_t*);
  int (*energy)(SmiProcessor, std::uint64_t*, float*, std::uint64_t*);  // a count, its unit in µJ, a time
};

}  // namespace gemmtune::hip::api
