/* What a problem is described with: element types, operations, quantization, activations, weight layouts and
 * orders. Included by c.h. Each enumeration has a C++ form with the same values; gemmtune.h includes those. */
#ifndef GEMMTUNE_ENUMERATIONS_H
#define GEMMTUNE_ENUMERATIONS_H

#include <stdint.h>

typedef enum gemmtune_type {
  GEMMTUNE_TYPE_UNSET = 0, /* of w and y: the type of x */
  GEMMTUNE_F32 = 1,
  GEMMTUNE_F16 = 2,
  GEMMTUNE_BF16 = 3,
  GEMMTUNE_F8_E4M3FN = 4,
  GEMMTUNE_F8_E4M3FNUZ = 5,
  GEMMTUNE_I8 = 6,
  GEMMTUNE_F4_E2M1 = 7, /* two in a byte */
  GEMMTUNE_U8 = 8,
  GEMMTUNE_I4 = 9 /* two in a byte */
} gemmtune_type;

/* What is multiplied, one for each of AITER's tables. */
typedef enum gemmtune_operation {
  GEMMTUNE_A16W16 = 0,           /* bf16, fp16, fp32; fp8 with scale_ab */
  GEMMTUNE_A8W8 = 1,             /* int8 or fp8, a scale for each row of x and of w */
  GEMMTUNE_A8W8_BPRESHUFFLE = 2, /* the same with a packed weight */
  GEMMTUNE_A8W8_BLOCKSCALE = 3,  /* fp8, x scaled in blocks of 1 x 128, w of 128 x 128 */
  GEMMTUNE_A8W8_BLOCKSCALE_BPRESHUFFLE = 4,
  GEMMTUNE_A4W4_BLOCKSCALE = 5, /* fp4 with a scale for every 32 of K */
  GEMMTUNE_BATCHED_BF16 = 6,
  GEMMTUNE_BATCHED_A8W8 = 7,
  GEMMTUNE_FUSED_MOE = 8, /* both GEMMs of a mixture of experts */
  GEMMTUNE_A16W4 = 9,     /* bf16 or fp16 with an MXFP4 weight: fp4 with a scale for every 32 of K */
  GEMMTUNE_A8W4 = 10,     /* fp8, a scale for each row of x, with an MXFP4 weight */
  GEMMTUNE_A16W4_NVFP4 =
      11, /* bf16 or fp16 with an NVFP4 weight: fp4 with an e4m3 scale for every 16 of K, and one float */
  GEMMTUNE_A8W4_NVFP4 = 12, /* fp8, a scale for each row of x, with an NVFP4 weight */
  GEMMTUNE_A4W4_NVFP4 = 13, /* both NVFP4 */
  GEMMTUNE_A16W4_INT4 = 14, /* bf16 or fp16 with an int4 weight: a scale for every w_group of K */
  GEMMTUNE_A8W4_INT4 = 15   /* int8, a scale for each row of x, with an int4 weight */
} gemmtune_operation;

/* How operands are quantized: AITER's QuantType, which a mixture of experts has, and two of dense operations alone. */
typedef enum gemmtune_quant_type {
  GEMMTUNE_QUANT_NONE = 0,
  GEMMTUNE_QUANT_PER_TENSOR = 1,
  GEMMTUNE_QUANT_PER_TOKEN = 2,
  GEMMTUNE_QUANT_PER_1X32 = 3,
  GEMMTUNE_QUANT_PER_1X128 = 4,
  GEMMTUNE_QUANT_PER_128X128 = 5,
  GEMMTUNE_QUANT_PER_1X16 = 6, /* NVFP4 */
  GEMMTUNE_QUANT_PER_GROUP = 7 /* int4 weights */
} gemmtune_quant_type;

/* The function between the two GEMMs of a mixture of experts: AITER's ActivationType. */
typedef enum gemmtune_activation {
  GEMMTUNE_ACTIVATION_NONE = 0,
  GEMMTUNE_ACTIVATION_SILU = 1,
  GEMMTUNE_ACTIVATION_GELU = 2,
  GEMMTUNE_ACTIVATION_SWIGLU = 3,
  GEMMTUNE_ACTIVATION_SITUV2 = 4
} gemmtune_activation;

/* How a weight is stored. It belongs to the weight: one copy serves every M. Other values are opaque ids of
 * layouts of gemmtune's own and of vendors' libraries; they come from gemmtune_weight_layout and
 * gemmtune_plan_info, and mean the same bytes in one version of gemmtune and of the library, on one device
 * with one number of threads: do not store weights of opaque layouts. */
typedef int32_t gemmtune_layout;
enum {
  GEMMTUNE_LAYOUT_PLAIN = 0,     /* row-major [N, K], as a checkpoint has it */
  GEMMTUNE_LAYOUT_ANY = 1,       /* packed, not decided yet: the plan chooses, gemmtune_plan_info says what */
  GEMMTUNE_LAYOUT_AITER16X16 = 2 /* AITER's shuffle_weight(w, (16, 16)) */
};

/* How x or w of an a16w16 lies in memory. ROW_MAJOR: x [M, K] and w [N, K] row by row. COLUMN_MAJOR: x [K, M] and
 * w [K, N] row by row. */
typedef enum gemmtune_order { GEMMTUNE_ROW_MAJOR = 0, GEMMTUNE_COLUMN_MAJOR = 1 } gemmtune_order;

#endif

#if defined(GEMMTUNE_CPP_INTERFACE) && !defined(GEMMTUNE_CPP_ENUMERATIONS)
#define GEMMTUNE_CPP_ENUMERATIONS

namespace gemmtune {
inline namespace api {

enum class Type { unset, f32, f16, bf16, f8_e4m3fn, f8_e4m3fnuz, i8, f4_e2m1, u8, i4 };
enum class Operation {
  a16w16,
  a8w8,
  a8w8_bpreshuffle,
  a8w8_blockscale,
  a8w8_blockscale_bpreshuffle,
  a4w4_blockscale,
  batched_bf16,
  batched_a8w8,
  fused_moe,
  a16w4,
  a8w4,
  a16w4_nvfp4,
  a8w4_nvfp4,
  a4w4_nvfp4,
  a16w4_int4,
  a8w4_int4,
};
enum class QuantType { none, per_tensor, per_token, per_1x32, per_1x128, per_128x128, per_1x16, per_group };
enum class Activation { none, silu, gelu, swiglu, situv2 };
/// Other values are opaque ids, see gemmtune_layout.
enum class Layout : int32_t { plain, any, aiter16x16 };
/// Of x [M, K] and w [N, K]; column_major: [K, M] and [K, N] row by row.
enum class Order { row_major, column_major };

}  // namespace api
}  // namespace gemmtune

#endif
