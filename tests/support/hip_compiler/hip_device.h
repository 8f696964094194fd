// What hipRTC has built in, for clang without ROCm's headers and libraries: as much as our kernels use.
#pragma once

#define __HIPCC_RTC__ 1
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(1, threads)))

struct hip_thread_index {
  struct X {
    __device__ operator unsigned() const { return __builtin_amdgcn_workitem_id_x(); }
  } x;
};
struct hip_block_index {
  struct X {
    __device__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_x(); }
  } x;
  struct Y {
    __device__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_y(); }
  } y;
  struct Z {
    __device__ operator unsigned() const { return __builtin_amdgcn_workgroup_id_z(); }
  } z;
};
// The number of blocks, from the launch packet: global size over block size.
struct hip_grid_dim {
  struct X {
    __device__ operator unsigned() const {
      const __attribute__((address_space(4))) unsigned* const packet =
          (const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_dispatch_ptr();
      return packet[3] / (packet[1] & 0xffff);
    }
  } x;
  struct Y {
    __device__ operator unsigned() const {
      const __attribute__((address_space(4))) unsigned* const packet =
          (const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_dispatch_ptr();
      return packet[4] / (packet[1] >> 16);
    }
  } y;
};
static const __device__ hip_thread_index threadIdx{};
static const __device__ hip_block_index blockIdx{};
static const __device__ hip_grid_dim gridDim{};

static __device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

static __device__ inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static __device__ inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static __device__ inline float fabsf(float a) { return __builtin_fabsf(a); }
static __device__ inline double fabs(double a) { return __builtin_fabs(a); }
static __device__ inline double fmax(double a, double b) { return __builtin_fmax(a, b); }
static __device__ inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static __device__ inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
static __device__ inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
