// Our declarations of NVIDIA's interfaces against the toolkit's own headers. Built where those are installed.
#include "backends/cuda/cuda_api.h"

#include <cublasLt.h>
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace gemmtune::cuda {
namespace {

template <typename Ours, typename Theirs>
void expect_same_size() {
  EXPECT_EQ(sizeof(Ours), sizeof(Theirs));
  EXPECT_EQ(alignof(Ours), alignof(Theirs));
}

TEST(CudaApi, DriverValues) {
  EXPECT_EQ(api::success, CUDA_SUCCESS);
  EXPECT_EQ(api::error_out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(api::attribute_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(api::attribute_l2_bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(api::attribute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(api::attribute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(api::attribute_shared_per_multiprocessor,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  EXPECT_EQ(api::attribute_cooperative_launch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH);
  EXPECT_EQ(api::affinity_multiprocessors, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
  EXPECT_EQ(api::attribute_shared_a_block_optin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(api::function_max_dynamic_shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(api::event_default, static_cast<unsigned>(CU_EVENT_DEFAULT));
  EXPECT_EQ(api::event_record_default, static_cast<unsigned>(CU_EVENT_RECORD_DEFAULT));
  EXPECT_EQ(api::event_record_external, static_cast<unsigned>(CU_EVENT_RECORD_EXTERNAL));
  EXPECT_EQ(api::stream_default, static_cast<unsigned>(CU_STREAM_DEFAULT));
  EXPECT_EQ(api::capture_mode_thread_local, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(api::capture_none, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(api::launch_attribute_cooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  EXPECT_EQ(api::launch_attribute_cluster, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(api::launch_attribute_programmatic, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(api::tensor_uint8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(api::tensor_uint16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
  EXPECT_EQ(api::tensor_uint32, CU_TENSOR_MAP_DATA_TYPE_UINT32);
  EXPECT_EQ(api::tensor_interleave_none, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(api::tensor_swizzle_128, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(api::tensor_swizzle_none, CU_TENSOR_MAP_SWIZZLE_NONE);
  EXPECT_EQ(api::tensor_promote_128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_EQ(api::tensor_fill_zero, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  EXPECT_EQ(api::location_device, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(api::allocation_pinned, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(api::access_read_write, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

TEST(CudaApi, DriverStructures) {
  expect_same_size<api::ExecAffinity, CUexecAffinityParam>();
  EXPECT_EQ(offsetof(api::ExecAffinity, multiprocessors), offsetof(CUexecAffinityParam, param));
  expect_same_size<api::LaunchConfig, CUlaunchConfig>();
  EXPECT_EQ(offsetof(api::LaunchConfig, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
  EXPECT_EQ(offsetof(api::LaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(api::LaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(api::LaunchConfig, attribute_count), offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(sizeof(api::LaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(api::LaunchAttribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(sizeof(api::TensorMap), sizeof(CUtensorMap));
  EXPECT_EQ(alignof(api::TensorMap) % alignof(CUtensorMap), 0U);
  expect_same_size<api::MemoryProperties, CUmemAllocationProp>();
  EXPECT_EQ(offsetof(api::MemoryProperties, location), offsetof(CUmemAllocationProp, location));
  expect_same_size<api::MemoryAccess, CUmemAccessDesc>();
  EXPECT_EQ(offsetof(api::MemoryAccess, flags), offsetof(CUmemAccessDesc, flags));
  EXPECT_EQ(sizeof(api::DevicePointer), sizeof(CUdeviceptr));
}

TEST(CudaApi, CublasLt) {
  expect_same_size<api::LtMatmul, cublasLtMatmulDescOpaque_t>();
  expect_same_size<api::LtLayout, cublasLtMatrixLayoutOpaque_t>();
  expect_same_size<api::LtAlgorithm, cublasLtMatmulAlgo_t>();
  expect_same_size<api::LtHeuristic, cublasLtMatmulHeuristicResult_t>();
  EXPECT_EQ(offsetof(api::LtHeuristic, workspace_bytes),
            offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(api::LtHeuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));
  EXPECT_EQ(api::lt_not_supported, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(api::type_f32, CUDA_R_32F);
  EXPECT_EQ(api::type_f16, CUDA_R_16F);
  EXPECT_EQ(api::type_bf16, CUDA_R_16BF);
  EXPECT_EQ(api::type_e4m3, CUDA_R_8F_E4M3);
  EXPECT_EQ(api::compute_f32, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(api::operation_none, CUBLAS_OP_N);
  EXPECT_EQ(api::operation_transpose, CUBLAS_OP_T);
  EXPECT_EQ(api::epilogue_bias, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(api::matmul_transpose_a, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(api::matmul_transpose_b, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(api::matmul_epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(api::matmul_bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(api::matmul_a_scale_pointer, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
  EXPECT_EQ(api::matmul_b_scale_pointer, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
  EXPECT_EQ(api::matmul_bias_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  EXPECT_EQ(api::epilogue_none, CUBLASLT_EPILOGUE_DEFAULT);
  EXPECT_EQ(api::pointer_mode_host, CUBLASLT_POINTER_MODE_HOST);
  EXPECT_EQ(api::layout_column_major, CUBLASLT_ORDER_COL);
  EXPECT_EQ(api::fill_full, CUBLAS_FILL_MODE_FULL);
  EXPECT_EQ(api::matmul_compute_type, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
  EXPECT_EQ(api::matmul_scale_type, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
  EXPECT_EQ(api::matmul_pointer_mode, CUBLASLT_MATMUL_DESC_POINTER_MODE);
  EXPECT_EQ(api::matmul_transpose_c, CUBLASLT_MATMUL_DESC_TRANSC);
  EXPECT_EQ(api::matmul_fill_mode, CUBLASLT_MATMUL_DESC_FILL_MODE);
  EXPECT_EQ(api::matmul_sm_count, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET);
  EXPECT_EQ(api::matmul_d_scale_pointer, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
  EXPECT_EQ(api::matmul_d_amax_pointer, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER);
  EXPECT_EQ(api::matmul_fast_accumulation, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
#if CUBLAS_VERSION >= 120800
  EXPECT_EQ(api::matmul_a_scale_mode, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  EXPECT_EQ(api::matmul_b_scale_mode, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
  EXPECT_EQ(api::scale_mode_scalar, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
#endif
  EXPECT_EQ(api::layout_type, CUBLASLT_MATRIX_LAYOUT_TYPE);
  EXPECT_EQ(api::layout_order, CUBLASLT_MATRIX_LAYOUT_ORDER);
  EXPECT_EQ(api::layout_rows, CUBLASLT_MATRIX_LAYOUT_ROWS);
  EXPECT_EQ(api::layout_columns, CUBLASLT_MATRIX_LAYOUT_COLS);
  EXPECT_EQ(api::layout_batch_count, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(api::layout_batch_stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(api::status_success, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(api::status_not_initialized, CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(api::math_pedantic, CUBLAS_PEDANTIC_MATH);
  EXPECT_EQ(api::math_tf32, CUBLAS_TF32_TENSOR_OP_MATH);
  EXPECT_EQ(api::layout_leading_dimension, CUBLASLT_MATRIX_LAYOUT_LD);
  EXPECT_EQ(api::preference_workspace_bytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(api::preference_alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(api::preference_alignment_a + 3, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(api::algorithm_id, CUBLASLT_ALGO_CONFIG_ID);
  EXPECT_EQ(api::algorithm_tile, CUBLASLT_ALGO_CONFIG_TILE_ID);
  EXPECT_EQ(api::algorithm_split_k, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  EXPECT_EQ(api::algorithm_reduction, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
  EXPECT_EQ(api::algorithm_swizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
  EXPECT_EQ(api::algorithm_custom, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
  EXPECT_EQ(api::algorithm_stages, CUBLASLT_ALGO_CONFIG_STAGES_ID);
  EXPECT_EQ(api::algorithm_inner_shape, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
  EXPECT_EQ(api::algorithm_cluster, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  EXPECT_EQ(api::capability_split_k, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT);
  EXPECT_EQ(api::capability_reductions, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(api::capability_swizzle, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT);
  EXPECT_EQ(api::capability_tiles, CUBLASLT_ALGO_CAP_TILE_IDS);
  EXPECT_EQ(api::capability_custom, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX);
  EXPECT_EQ(api::capability_stages, CUBLASLT_ALGO_CAP_STAGES_IDS);
  EXPECT_EQ(api::reduction_in_place, CUBLASLT_REDUCTION_SCHEME_INPLACE);
  EXPECT_EQ(api::reduction_compute_type, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

}  // namespace
}  // namespace gemmtune::cuda
