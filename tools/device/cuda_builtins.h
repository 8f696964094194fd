// What NVRTC has built in, declared for clang without a toolkit: as much as our kernels use. For editors (clangd) and for the check of syntax;
// nothing here is defined, and no program is made with it. clang's target is nvptx64, whose constraints of asm are NVRTC's.
#pragma once

#define __CUDACC_RTC__ 1
#define __device__
#define __constant__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct gemmtune_index {
  unsigned x, y, z;
};
extern const gemmtune_index threadIdx, blockIdx, blockDim, gridDim;

struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
struct int4 {
  int x, y, z, w;
} __attribute__((aligned(16)));
struct float2 {
  float x, y;
} __attribute__((aligned(8)));
struct float4 {
  float x, y, z, w;
} __attribute__((aligned(16)));
struct double2 {
  double x, y;
} __attribute__((aligned(16)));
uint2 make_uint2(unsigned x, unsigned y);
uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w);
float2 make_float2(float x, float y);
float4 make_float4(float x, float y, float z, float w);

void __syncthreads();
int __syncthreads_count(int predicate);
void __syncwarp(unsigned mask = 0xffffffffu);
void __threadfence();
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32);
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32);
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = 32);
int __any_sync(unsigned mask, int predicate);
int __reduce_add_sync(unsigned mask, int value);
int __all_sync(unsigned mask, int predicate);
unsigned __ballot_sync(unsigned mask, int predicate);

template <typename T>
T __ldg(const T* from);
template <typename T>
T __ldcg(const T* from);
template <typename T>
void __stcg(T* to, T value);
template <typename T>
T atomicAdd(T* to, T value);
template <typename T>
T atomicOr(T* to, T value);
unsigned long __cvta_generic_to_shared(const void* pointer);
unsigned long __cvta_generic_to_global(const void* pointer);

float __uint_as_float(unsigned bits);
unsigned __float_as_uint(float value);
float __int_as_float(int bits);
int __float_as_int(float value);
unsigned __byte_perm(unsigned low, unsigned high, unsigned selector);
unsigned __umulhi(unsigned a, unsigned b);
int __popc(unsigned bits);
int __ffs(int bits);
float __expf(float value);
float __fdividef(float a, float b);
float fmaf(float a, float b, float c);
float fmaxf(float a, float b);
float fminf(float a, float b);
float fabsf(float value);
float erff(float value);
double fma(double a, double b, double c);
double fmax(double a, double b);
double fabs(double value);
double exp(double value);
double erf(double value);
int max(int a, int b);
int min(int a, int b);
