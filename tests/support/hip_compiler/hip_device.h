// What hipRTC has built in, for clang without ROCm's headers and libraries: as much as our kernels use.
#pragma once

#define __HIPCC_RTC__ 1
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
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
// The number of threads of a block, where all blocks are whole.
struct hip_block_dim {
  struct X {
    __device__ operator unsigned() const {
      return ((const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_dispatch_ptr())[1] & 0xffff;
    }
  } x;
};
static const __device__ hip_thread_index threadIdx{};
static const __device__ hip_block_dim blockDim{};
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
static __device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
static __device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
static __device__ inline float rintf(float a) { return __builtin_rintf(a); }
static __device__ inline float __expf(float a) { return __builtin_amdgcn_exp2f(a * 1.44269504f); }
// Of a few registers, as the device libraries' own: Abramowitz and Stegun 7.1.26.
static __device__ inline float erff(float a) {
  const float t = 1.0f / (1.0f + 0.3275911f * fabsf(a));
  const float p =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return __builtin_copysignf(1.0f - p * __expf(-a * a), a);
}
// Only compiled here, never run.
static __device__ inline double exp(double a) { return (double)__expf((float)a); }
static __device__ inline double erf(double a) { return (double)erff((float)a); }
static __device__ inline int atomicAdd(int* address, int value) {
  return __hip_atomic_fetch_add(address, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
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
