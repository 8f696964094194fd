// What a GPU's run-time compiler has built in, for the host's compiler: included before a kernel's source. Functions
// that the lanes of a wave do together end in Calls::collective. The names of AMD's builtins are the compiler's.
#pragma once

#include "interface.h"

#define __HIPCC_RTC__ 1
#define GEMMTUNE_EMULATION 1

#define __device__
#define __constant__
#define __global__ gemmtune_emulated_kernel
#define __shared__ static __attribute__((section("emulated_lds")))
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))

extern "C" {
gemmtune::emulation::Calls gemmtune_emulation_calls;
const gemmtune::emulation::Indices* gemmtune_emulation_indices;
extern unsigned char __start_emulated_lds[];
extern unsigned char __stop_emulated_lds[];
}
// The range of shared memory, whichever arrays the source has.
__attribute__((section("emulated_lds"), used,
               aligned(1024))) static unsigned char gemmtune_emulation_first_lds[16];
extern "C" void* gemmtune_emulation_lds[2];
void* gemmtune_emulation_lds[2] = {__start_emulated_lds, __stop_emulated_lds};

#define GEMMTUNE_PLAIN __attribute__((no_sanitize("thread"), noinline, optimize("O2")))

// Constant in a thread: the compiler may call them once.
#define GEMMTUNE_INDEX(name, field, axis)                        \
  __attribute__((const)) GEMMTUNE_PLAIN static unsigned name() { \
    return gemmtune_emulation_indices->field[axis];              \
  }
#define GEMMTUNE_INDICES(name, field)           \
  GEMMTUNE_INDEX(gemmtune_##name##_x, field, 0) \
  GEMMTUNE_INDEX(gemmtune_##name##_y, field, 1) \
  GEMMTUNE_INDEX(gemmtune_##name##_z, field, 2)
GEMMTUNE_INDICES(thread, thread)
GEMMTUNE_INDICES(block, block)
GEMMTUNE_INDICES(block_dim, block_dim)
GEMMTUNE_INDICES(grid_dim, grid_dim)
struct gemmtune_index {
  unsigned x, y, z;
};
#define threadIdx (gemmtune_index{gemmtune_thread_x(), gemmtune_thread_y(), gemmtune_thread_z()})
#define blockIdx (gemmtune_index{gemmtune_block_x(), gemmtune_block_y(), gemmtune_block_z()})
#define blockDim (gemmtune_index{gemmtune_block_dim_x(), gemmtune_block_dim_y(), gemmtune_block_dim_z()})
#define gridDim (gemmtune_index{gemmtune_grid_dim_x(), gemmtune_grid_dim_y(), gemmtune_grid_dim_z()})

struct float2 {
  float x, y;
} __attribute__((aligned(8)));
struct float4 {
  float x, y, z, w;
} __attribute__((aligned(16)));
struct double2 {
  double x, y;
} __attribute__((aligned(16)));
struct uint2 {
  unsigned x, y;
} __attribute__((aligned(8)));
struct uint4 {
  unsigned x, y, z, w;
} __attribute__((aligned(16)));
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float fabsf(float a) { return __builtin_fabsf(a); }
static inline double fabs(double a) { return __builtin_fabs(a); }
static inline double fmax(double a, double b) { return __builtin_fmax(a, b); }
static inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
static inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
static inline float rintf(float a) { return __builtin_rintf(a); }
GEMMTUNE_PLAIN static float __expf(float a) { return __builtin_expf(a); }
GEMMTUNE_PLAIN static float erff(float a) { return __builtin_erff(a); }
GEMMTUNE_PLAIN static double exp(double a) { return __builtin_exp(a); }
GEMMTUNE_PLAIN static double erf(double a) { return __builtin_erf(a); }
GEMMTUNE_PLAIN static int atomicAdd(int* address, int value) {
  return gemmtune_emulation_calls.atomic_add(address, value, __builtin_return_address(0));
}
static inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
static inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }

namespace gemmtune::emulation {

template <typename Out, typename In>
static inline Out together(Operation operation, const In& in) {
  Out out;
  gemmtune_emulation_calls.collective(operation, &in, sizeof in, &out, sizeof out);
  return out;
}
static inline void barrier(Operation operation) {
  gemmtune_emulation_calls.collective(operation, nullptr, 0, nullptr, 0);
}

template <typename Operand, typename Sums>
struct Product {
  Operand a, b;
  Sums c;
};
template <typename Operand, typename Sums>
static inline Sums multiply(Operation operation, Operand a, Operand b, Sums c) {
  return together<Sums>(operation, Product<Operand, Sums>{a, b, c});
}

struct LaneRead {
  unsigned lane, value;
};

typedef short short4_vector __attribute__((vector_size(8)));
typedef _Float16 half4_vector __attribute__((vector_size(8)));
typedef _Float16 half2_vector __attribute__((vector_size(4)));
typedef float float2_vector __attribute__((vector_size(8)));
typedef float float4_vector __attribute__((vector_size(16)));
typedef float float16_vector __attribute__((vector_size(64)));
typedef short short8_vector __attribute__((vector_size(16)));
typedef _Float16 half8_vector __attribute__((vector_size(16)));
typedef int int8_vector __attribute__((vector_size(32)));
typedef int int4_vector __attribute__((vector_size(16)));
typedef int int16_vector __attribute__((vector_size(64)));

}  // namespace gemmtune::emulation

static inline void __syncthreads() {
  gemmtune::emulation::barrier(gemmtune::emulation::Operation::block_barrier);
}

#if GEMMTUNE_WAVE_LANES == 64
#define GEMMTUNE_MFMA(name, operand, sums, operation)                                                        \
  static inline gemmtune::emulation::sums __builtin_amdgcn_mfma_##name(                                      \
      gemmtune::emulation::operand a, gemmtune::emulation::operand b, gemmtune::emulation::sums c, int, int, \
      int) {                                                                                                 \
    return gemmtune::emulation::multiply(gemmtune::emulation::Operation::operation, a, b, c);                \
  }
namespace gemmtune::emulation {
typedef long bytes8;
typedef int bytes4;
}  // namespace gemmtune::emulation
GEMMTUNE_MFMA(f32_16x16x16f16, half4_vector, float4_vector, mfma_f32_16x16x16_f16)
GEMMTUNE_MFMA(f32_32x32x8f16, half4_vector, float16_vector, mfma_f32_32x32x8_f16)
GEMMTUNE_MFMA(f32_16x16x16bf16_1k, short4_vector, float4_vector, mfma_f32_16x16x16_bf16)
GEMMTUNE_MFMA(f32_32x32x8bf16_1k, short4_vector, float16_vector, mfma_f32_32x32x8_bf16)
#if defined(__gfx950__)
GEMMTUNE_MFMA(f32_16x16x32_f16, half8_vector, float4_vector, mfma_f32_16x16x32_f16)
GEMMTUNE_MFMA(f32_32x32x16_f16, half8_vector, float16_vector, mfma_f32_32x32x16_f16)
GEMMTUNE_MFMA(f32_16x16x32_bf16, short8_vector, float4_vector, mfma_f32_16x16x32_bf16)
GEMMTUNE_MFMA(f32_32x32x16_bf16, short8_vector, float16_vector, mfma_f32_32x32x16_bf16)
GEMMTUNE_MFMA(i32_16x16x64_i8, int4_vector, int4_vector, mfma_i32_16x16x64_i8)
GEMMTUNE_MFMA(i32_32x32x32_i8, int4_vector, int16_vector, mfma_i32_32x32x32_i8)
GEMMTUNE_MFMA(f32_16x16x32_fp8_fp8, bytes8, float4_vector, mfma_f32_16x16x32_e4m3fn)
GEMMTUNE_MFMA(f32_32x32x16_fp8_fp8, bytes8, float16_vector, mfma_f32_32x32x16_e4m3fn)
// As our kernels use them: operands of e2m1 (4) with the scales in the lowest byte (0), of e4m3 (0) without scales.
#define GEMMTUNE_MFMA_SCALE(name, sums, scaled, plain)                                                     \
  static inline gemmtune::emulation::sums __builtin_amdgcn_mfma_scale_##name(                              \
      gemmtune::emulation::int8_vector a, gemmtune::emulation::int8_vector b, gemmtune::emulation::sums c, \
      int a_type, int b_type, int a_byte, int a_scale, int b_byte, int b_scale) {                          \
    using namespace gemmtune::emulation;                                                                   \
    if (a_type == 0 && b_type == 0 && a_scale == 0 && b_scale == 0)                                        \
      return multiply(Operation::plain, a, b, c);                                                          \
    if (a_type != 4 || b_type != 4 || a_byte != 0 || b_byte != 0)                                          \
      gemmtune_emulation_calls.fail("scaled MFMA of operands that the emulation does not have");           \
    return together<gemmtune::emulation::sums>(                                                            \
        Operation::scaled,                                                                                 \
        ScaledProduct<gemmtune::emulation::sums>{a, b, c, (unsigned)a_scale, (unsigned)b_scale});          \
  }
namespace gemmtune::emulation {
template <typename Sums>
struct ScaledProduct {
  int8_vector a, b;
  Sums c;
  unsigned a_scale, b_scale;
};
}  // namespace gemmtune::emulation
GEMMTUNE_MFMA_SCALE(f32_16x16x128_f8f6f4, float4_vector, mfma_scale_f32_16x16x128_fp4,
                    mfma_f32_16x16x128_e4m3fn)
GEMMTUNE_MFMA_SCALE(f32_32x32x64_f8f6f4, float16_vector, mfma_scale_f32_32x32x64_fp4,
                    mfma_f32_32x32x64_e4m3fn)
#undef GEMMTUNE_MFMA_SCALE
#elif defined(__gfx942__)
GEMMTUNE_MFMA(f32_16x16x32_fp8_fp8, bytes8, float4_vector, mfma_f32_16x16x32_fp8)
GEMMTUNE_MFMA(f32_32x32x16_fp8_fp8, bytes8, float16_vector, mfma_f32_32x32x16_fp8)
#endif
#if defined(__gfx942__) || defined(__gfx950__)
GEMMTUNE_MFMA(i32_16x16x32_i8, bytes8, int4_vector, mfma_i32_16x16x32_i8)
GEMMTUNE_MFMA(i32_32x32x16_i8, bytes8, int16_vector, mfma_i32_32x32x16_i8)
#else
GEMMTUNE_MFMA(i32_16x16x16i8, bytes4, int4_vector, mfma_i32_16x16x16_i8)
GEMMTUNE_MFMA(i32_32x32x8i8, bytes4, int16_vector, mfma_i32_32x32x8_i8)
#endif
#undef GEMMTUNE_MFMA

static inline int __builtin_amdgcn_ds_bpermute(int byte_address, int value) {
  using namespace gemmtune::emulation;
  return (int)together<unsigned>(Operation::lane_read,
                                 LaneRead{(unsigned)byte_address / 4 % 64, (unsigned)value});
}
static inline int __builtin_amdgcn_readfirstlane(int value) {
  return gemmtune::emulation::together<int>(gemmtune::emulation::Operation::first_lane, value);
}
static inline void __builtin_amdgcn_wave_barrier() {
  gemmtune::emulation::barrier(gemmtune::emulation::Operation::wave_barrier);
}
// Waits of a wave's own memory operations; only direct-to-LDS loads are late on the emulation.
static inline void __builtin_amdgcn_s_waitcnt(int counts) {
  if ((counts & 15) == 0 && (counts >> 14 & 3) == 0) gemmtune_emulation_calls.wait(0);
}
static inline void gemmtune_load_to_lds(const void* from, unsigned lds_offset) {
  gemmtune_emulation_calls.load_to_lds(from, lds_offset);
}
static inline unsigned gemmtune_lds_offset(const void* address) {
  return gemmtune_emulation_calls.lds_offset(address);
}
static inline int __builtin_amdgcn_sdot4(int a, int b, int sum, bool) {
  for (int i = 0; i < 4; ++i) sum += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
  return sum;
}
static inline float __builtin_amdgcn_fdot2(gemmtune::emulation::half2_vector a,
                                           gemmtune::emulation::half2_vector b, float sum, bool) {
  return (float)a[0] * (float)b[0] + (float)a[1] * (float)b[1] + sum;
}
// v_perm_b32: bytes of b (0 to 3), of a (4 to 7), or zeros (12).
static inline unsigned __builtin_amdgcn_perm(unsigned a, unsigned b, unsigned selectors) {
  const unsigned long both = (unsigned long)a << 32 | b;
  unsigned bytes = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned selector = selectors >> 8 * i & 255;
    if (selector > 7 && selector != 12)
      gemmtune_emulation_calls.fail("v_perm_b32 with a selector that the emulation does not have");
    if (selector < 8) bytes |= (unsigned)(both >> 8 * selector & 255) << 8 * i;
  }
  return bytes;
}
#if defined(__gfx950__)
// Byte `byte` of two e2m1 elements times a power of two, as bf16, which is exact but for overflow.
static inline unsigned __builtin_amdgcn_cvt_scalef32_pk_bf16_fp4(unsigned word, float scale, unsigned byte) {
  unsigned both = 0;
  for (int i = 0; i < 2; ++i) {
    const unsigned bits = word >> (8 * byte + 4 * i) & 15;
    const int exponent = (int)(bits >> 1 & 3);
    const float mantissa = (float)(bits & 1) / 2;
    const float magnitude = exponent == 0 ? mantissa : __builtin_ldexpf(1 + mantissa, exponent - 1);
    const float value = (bits & 8 ? -magnitude : magnitude) * scale;
    both |= __float_as_uint(value) >> 16 << 16 * i;
  }
  return both;
}
#endif
#if defined(__gfx942__) || defined(__gfx950__)
// gfx942 has e4m3fnuz, whose exponents are biased by 8, gfx950 e4m3fn.
static inline float gemmtune_fp8(unsigned bits) {
#if defined(__gfx942__)
  const int bias = 8;
  if (bits == 0x80) return __builtin_nanf("");
#else
  const int bias = 7;
  if ((bits & 0x7f) == 0x7f) return __builtin_nanf("");
#endif
  const int exponent = bits >> 3 & 15;
  const float mantissa = (float)(bits & 7) / 8;
  const float value =
      exponent == 0 ? __builtin_ldexpf(mantissa, 1 - bias) : __builtin_ldexpf(1 + mantissa, exponent - bias);
  return bits & 0x80 ? -value : value;
}
static inline gemmtune::emulation::float2_vector __builtin_amdgcn_cvt_pk_f32_fp8(int word, bool high) {
  const unsigned half = (unsigned)word >> (high ? 16 : 0);
  return gemmtune::emulation::float2_vector{gemmtune_fp8(half & 255), gemmtune_fp8(half >> 8 & 255)};
}
// Ties to even; what is too large becomes NaN, and there is no -0.
GEMMTUNE_PLAIN static unsigned gemmtune_to_fp8(float value) {
  const float magnitude = __builtin_fabsf(value);
  int exponent = magnitude > 0 ? __builtin_ilogbf(magnitude) : -7;
  if (exponent < -7) exponent = -7;
  const float rounded =
      __builtin_ldexpf(__builtin_rintf(__builtin_ldexpf(magnitude, 3 - exponent)), exponent - 3);
  if (!(rounded <= 240)) return 0x80;
  if (rounded == 0) return 0;
  const int high = __builtin_ilogbf(rounded);
  const unsigned bits = high < -7
                            ? (unsigned)__builtin_ldexpf(rounded, 10)
                            : (unsigned)(high + 8) << 3 | ((unsigned)__builtin_ldexpf(rounded, 3 - high) & 7);
  return bits | (value < 0 ? 0x80 : 0);
}
static inline int __builtin_amdgcn_cvt_pk_fp8_f32(float a, float b, int old, bool high) {
  const unsigned pair = gemmtune_to_fp8(a) | gemmtune_to_fp8(b) << 8;
  return (int)(high ? ((unsigned)old & 0xffff) | pair << 16 : ((unsigned)old & 0xffff0000u) | pair);
}
#else
// Discarded branches name them.
static inline gemmtune::emulation::float2_vector __builtin_amdgcn_cvt_pk_f32_fp8(int word, bool high);
static inline int __builtin_amdgcn_cvt_pk_fp8_f32(float a, float b, int old, bool high);
#endif
static inline void __builtin_amdgcn_sched_barrier(int) {}
static inline void __builtin_amdgcn_s_setprio(int) {}

#else

#include "ptx.h"
#endif

// __tsan_*: the compiler calls them before each access to memory that is not the thread's own.
extern "C" {
#define GEMMTUNE_ACCESS(name, bytes, is_write)                                              \
  __attribute__((no_sanitize("thread"))) void name(void* address) {                         \
    gemmtune_emulation_calls.access(address, bytes, is_write, __builtin_return_address(0)); \
  }
#define GEMMTUNE_ACCESSES(bytes)                              \
  GEMMTUNE_ACCESS(__tsan_read##bytes, bytes, false)           \
  GEMMTUNE_ACCESS(__tsan_write##bytes, bytes, true)           \
  GEMMTUNE_ACCESS(__tsan_unaligned_read##bytes, bytes, false) \
  GEMMTUNE_ACCESS(__tsan_unaligned_write##bytes, bytes, true) \
  GEMMTUNE_ACCESS(__tsan_volatile_read##bytes, bytes, false)  \
  GEMMTUNE_ACCESS(__tsan_volatile_write##bytes, bytes, true)
GEMMTUNE_ACCESSES(1)
GEMMTUNE_ACCESSES(2)
GEMMTUNE_ACCESSES(4)
GEMMTUNE_ACCESSES(8)
GEMMTUNE_ACCESSES(16)
__attribute__((no_sanitize("thread"))) void __tsan_read_range(void* address, unsigned long bytes) {
  gemmtune_emulation_calls.access(address, (unsigned)bytes, false, __builtin_return_address(0));
}
__attribute__((no_sanitize("thread"))) void __tsan_write_range(void* address, unsigned long bytes) {
  gemmtune_emulation_calls.access(address, (unsigned)bytes, true, __builtin_return_address(0));
}
__attribute__((no_sanitize("thread"))) void __tsan_init() {}
__attribute__((no_sanitize("thread"))) void __tsan_func_entry(void*) {}
__attribute__((no_sanitize("thread"))) void __tsan_func_exit() {}
}

// Calls a kernel with its arguments, each where `arguments` points.
namespace gemmtune::emulation {
template <unsigned long... index>
struct Sequence {};
template <unsigned long count, unsigned long... index>
struct MakeSequence : MakeSequence<count - 1, count - 1, index...> {};
template <unsigned long... index>
struct MakeSequence<0, index...> {
  typedef Sequence<index...> type;
};
template <typename Type>
struct Plain {
  typedef Type type;
};
template <typename Type>
struct Plain<const Type> {
  typedef Type type;
};
template <typename... Arguments, unsigned long... index>
__attribute__((no_sanitize("thread"), noinline)) static void call_with(void (*kernel)(Arguments...),
                                                                       void** arguments, Sequence<index...>) {
  kernel(*(typename Plain<Arguments>::type*)arguments[index]...);
}
template <typename... Arguments>
__attribute__((no_sanitize("thread"), noinline)) static void call(void (*kernel)(Arguments...),
                                                                  void** arguments) {
  call_with(kernel, arguments, typename MakeSequence<sizeof...(Arguments)>::type());
}
}  // namespace gemmtune::emulation
