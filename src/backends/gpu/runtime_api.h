// Types and values that CUDA's driver and AMD's HIP runtime have in common. cuda_api.h and hip_api.h take them over, and the tests that
// check those against the vendors' headers check these.
#pragma once

namespace gemmtune::gpu::api {

using Result = int;
struct ModuleTag;
struct FunctionTag;
struct StreamTag;
struct EventTag;
struct GraphTag;
struct GraphExecTag;
using Module = ModuleTag*;
using Function = FunctionTag*;
using StreamHandle = StreamTag*;
using Event = EventTag*;
using Graph = GraphTag*;
using GraphExec = GraphExecTag*;

inline constexpr Result success = 0;
inline constexpr Result error_out_of_memory = 2;
// flags
inline constexpr unsigned event_default = 0;
inline constexpr unsigned stream_default = 0;
inline constexpr int capture_mode_thread_local = 1;
inline constexpr int capture_none = 0;

struct MemoryLocation {
  int type;
  int id;
};
inline constexpr int location_device = 1;
inline constexpr int allocation_pinned = 1;
struct MemoryAccess {
  MemoryLocation location;
  int flags;
};
inline constexpr int access_read_write = 3;

/// Of the compiler, NVRTC or hipRTC.
struct ProgramTag;
using Program = ProgramTag*;

}  // namespace gemmtune::gpu::api
