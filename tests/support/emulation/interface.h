// Between the emulation and the kernels that it compiles: device.h includes this in every shared object.
#pragma once

namespace gemmtune::emulation {

enum class Operation : int {
  wave_barrier,
  block_barrier,
  lane_read,  // ds_bpermute and shuffles: `in` is {source lane, value}
  first_lane,
  mfma_f32_16x16x16_f16,
  mfma_f32_32x32x8_f16,
  mfma_f32_16x16x16_bf16,
  mfma_f32_32x32x8_bf16,
  mfma_f32_16x16x32_fp8,  // e4m3fnuz
  mfma_f32_32x32x16_fp8,
  mfma_i32_16x16x32_i8,
  mfma_i32_32x32x16_i8,
  mfma_i32_16x16x16_i8,
  mfma_i32_32x32x8_i8,
  mfma_f32_16x16x32_f16,  // of gfx950
  mfma_f32_32x32x16_f16,
  mfma_f32_16x16x32_bf16,
  mfma_f32_32x32x16_bf16,
  mfma_i32_16x16x64_i8,
  mfma_i32_32x32x32_i8,
  mfma_f32_16x16x32_e4m3fn,  // fp8 of gfx950
  mfma_f32_32x32x16_e4m3fn,
  mfma_f32_16x16x128_e4m3fn,
  mfma_f32_32x32x64_e4m3fn,
  mfma_scale_f32_16x16x128_fp4,
  mfma_scale_f32_32x32x64_fp4,
  mma_m16n8k16_f16,  // NVIDIA's mma.sync
  mma_m16n8k16_bf16,
  mma_m16n8k32_e4m3,  // e4m3fn
  ldmatrix_x4,        // `in` is the address of a row of 16 bytes
  ldmatrix_x4_trans,
};

/// What a kernel's code calls.
struct Calls {
  /// Before each access; `at` is the instruction.
  void (*access)(const void* address, unsigned bytes, bool is_write, const void* at);
  /// All lanes of the wave (of the block) come here; `in` and `out` are this lane's operands.
  void (*collective)(Operation operation, const void* in, unsigned in_bytes, void* out, unsigned out_bytes);
  /// A global load to LDS, which is done at the next wait(): 4 bytes for this lane, at the wave's address + 4 · lane.
  void (*load_to_lds)(const void* from, unsigned lds_offset);
  /// cp.async: 16 bytes, or zeros, to shared memory, done at the wait for its group.
  void (*copy_async)(unsigned to, const void* from, unsigned bytes);
  void (*commit)();
  /// All of this lane's loads to LDS but the last `pending` groups (of load_to_lds: 0).
  void (*wait)(unsigned pending);
  unsigned (*lds_offset)(const void* address);
  void (*fail)(const char* message);
  /// Atomic additions race only with what is not one. The value before.
  int (*atomic_add)(int* address, int value, const void* at);
};

struct Indices {
  unsigned thread[3];
  unsigned block[3];
  unsigned block_dim[3];
  unsigned grid_dim[3];
};

}  // namespace gemmtune::emulation
