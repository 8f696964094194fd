// Types and values of cuBLASLt's and cuBLAS's public interfaces (cublasLt.h, cublas_api.h), for the family that calls
// cuBLASLt and for the library that stands in for both. tests/backends checks them against the toolkit's headers
// where one is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gemmtune::cuda::api {

struct LtTag;
using LtHandle = LtTag*;
struct LtMatmul {  // cublasLtMatmulDescOpaque_t
  std::uint64_t opaque[32];
};
struct LtLayout {  // cublasLtMatrixLayoutOpaque_t
  std::uint64_t opaque[8];
};
struct LtPreferenceTag;
using LtPreference = LtPreferenceTag*;
struct LtAlgorithm {
  std::uint64_t opaque[8];
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
inline constexpr int lt_not_supported = 15;
// cudaDataType
inline constexpr int type_f32 = 0;
inline constexpr int type_f16 = 2;
inline constexpr int type_bf16 = 14;
inline constexpr int type_e4m3 = 28;
inline constexpr int compute_f32 = 68;
inline constexpr int operation_none = 0;
inline constexpr int operation_transpose = 1;
inline constexpr int epilogue_none = 1;
inline constexpr int epilogue_bias = 4;
inline constexpr int pointer_mode_host = 0;
inline constexpr int layout_column_major = 0;
inline constexpr int fill_full = 2;
inline constexpr int scale_mode_scalar = 0;
inline constexpr int scale_mode_outer_vector = 3;  // one a row of A and of B, float32
inline constexpr int batch_mode_strided = 0;
inline constexpr int batch_invariance_disabled = 0;
inline constexpr int batch_invariance_unset = 0x8000;
// attributes of a matmul, a layout, a preference, an algorithm
inline constexpr int matmul_compute_type = 0;
inline constexpr int matmul_scale_type = 1;
inline constexpr int matmul_pointer_mode = 2;
inline constexpr int matmul_transpose_a = 3;
inline constexpr int matmul_transpose_b = 4;
inline constexpr int matmul_transpose_c = 5;
inline constexpr int matmul_fill_mode = 6;
inline constexpr int matmul_epilogue = 7;
inline constexpr int matmul_bias_pointer = 8;
inline constexpr int matmul_sm_count = 15;
inline constexpr int matmul_a_scale_pointer = 17;
inline constexpr int matmul_b_scale_pointer = 18;
inline constexpr int matmul_d_scale_pointer = 20;
inline constexpr int matmul_d_amax_pointer = 21;
inline constexpr int matmul_fast_accumulation = 25;  // of one byte; of fp8 operands only
inline constexpr int matmul_bias_type = 26;
inline constexpr int matmul_a_scale_mode = 31;  // from 12.8 on
inline constexpr int matmul_b_scale_mode = 32;
inline constexpr int matmul_emulation = 38;         // from 13.0 on
inline constexpr int matmul_batch_invariance = 41;  // from 13.1 on
inline constexpr int layout_type = 0;
inline constexpr int layout_order = 1;
inline constexpr int layout_rows = 2;
inline constexpr int layout_columns = 3;
inline constexpr int layout_leading_dimension = 4;
inline constexpr int layout_batch_count = 5;
inline constexpr int layout_batch_stride = 6;
inline constexpr int layout_batch_mode = 8;  // from 12.9 on
inline constexpr int preference_workspace_bytes = 1;
inline constexpr int preference_alignment_a = 5;  // b, c, d follow
inline constexpr int algorithm_id = 0;
inline constexpr int algorithm_tile = 1;
inline constexpr int algorithm_split_k = 2;
inline constexpr int algorithm_reduction = 3;
inline constexpr int algorithm_swizzle = 4;
inline constexpr int algorithm_custom = 5;
inline constexpr int algorithm_stages = 6;
inline constexpr int algorithm_inner_shape = 7;
inline constexpr int algorithm_cluster = 8;
/// How an algorithm's attributes are spelled in the kernelName of family cublaslt.
struct AlgorithmAttribute {
  const char* key;
  int id;
  std::size_t bytes;
  const char* meaning;
};
// In the order of the kernelName, which is a promise.
inline constexpr AlgorithmAttribute algorithm_attributes[] = {
    {"algo", algorithm_id, 4, "algorithm id"},
    {"tile", algorithm_tile, 4, "tile id"},
    {"stages", algorithm_stages, 4, "stages id"},
    {"sk", algorithm_split_k, 4, "split-K"},
    {"red", algorithm_reduction, 4, "reduction scheme of split-K"},
    {"swizzle", algorithm_swizzle, 4, "CTA swizzling: order of the tiles"},
    {"custom", algorithm_custom, 4, "custom option of the algorithm"},
    {"inner", algorithm_inner_shape, 2, "inner shape id"},
    {"cluster", algorithm_cluster, 2, "cluster shape id"},
};
// what an algorithm can be set to
inline constexpr int capability_split_k = 0;
inline constexpr int capability_reductions = 1;
inline constexpr int capability_swizzle = 2;
inline constexpr int capability_tiles = 6;
inline constexpr int capability_custom = 7;
inline constexpr int capability_stages = 13;
inline constexpr int reduction_in_place = 1;
inline constexpr int reduction_compute_type = 2;

// ---- cuBLAS
inline constexpr int status_success = 0;
inline constexpr int status_not_initialized = 1;
// cublasMath_t; 16 may be added: no reduced precision in reductions
inline constexpr int math_pedantic = 2;
inline constexpr int math_tf32 = 3;
inline constexpr int math_mode_mask = 15;

}  // namespace gemmtune::cuda::api
