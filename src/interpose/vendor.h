// The functions of the vendor's libraries that this one stands in for, and those by which calls are read.
#pragma once

#include <cstddef>

#include "backends/cublas_api.h"

namespace gemmtune::interpose {

namespace api = cuda::api;
struct CublasTag;
using CublasHandle = CublasTag*;
using Stream = void*;

/// False with GEMMTUNE_CUBLAS=0: every call is the library's.
bool is_on();

/// True while a call of this thread is in the library or in gemmtune: what they call themselves is not ours.
inline thread_local bool inside = false;
struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

using LtMatmulFunction = int(void* handle, const void* matmul, const void* alpha, const void* a,
                             const void* a_layout, const void* b, const void* b_layout, const void* beta,
                             const void* c, const void* c_layout, void* d, const void* d_layout,
                             const api::LtAlgorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                             Stream stream);
using AttributeFunction = int(const void* described, int attribute, void* value, std::size_t bytes,
                              std::size_t* written);

/// Null members: the process has no cuBLASLt.
struct CublasLt {
  LtMatmulFunction* matmul = nullptr;
  AttributeFunction* matmul_get = nullptr;
  AttributeFunction* layout_get = nullptr;
  AttributeFunction* algorithm_get = nullptr;
  bool plain_descriptors = false;  // of api::LtMatmul's and api::LtLayout's size, all that was set within
};
const CublasLt& cublas_lt();

/// Of `Number` int (cublasGemmEx) or int64_t (cublasGemmEx_64).
template <typename Number>
using GemmFunction = int(CublasHandle, int transpose_a, int transpose_b, Number m, Number n, Number k,
                         const void* alpha, const void* a, int a_type, Number lda, const void* b, int b_type,
                         Number ldb, const void* beta, void* c, int c_type, Number ldc, int compute_type,
                         int algorithm);
template <typename Number>
using StridedGemmFunction = int(CublasHandle, int transpose_a, int transpose_b, Number m, Number n, Number k,
                                const void* alpha, const void* a, int a_type, Number lda, long long stride_a,
                                const void* b, int b_type, Number ldb, long long stride_b, const void* beta,
                                void* c, int c_type, Number ldc, long long stride_c, Number batch,
                                int compute_type, int algorithm);

struct Cublas {
  GemmFunction<int>* gemm = nullptr;
  GemmFunction<std::int64_t>* gemm_64 = nullptr;
  StridedGemmFunction<int>* strided = nullptr;
  StridedGemmFunction<std::int64_t>* strided_64 = nullptr;
  int (*stream)(CublasHandle, Stream*) = nullptr;
  int (*pointer_mode)(CublasHandle, int*) = nullptr;
  int (*math_mode)(CublasHandle, int*) = nullptr;
};
const Cublas& cublas();

}  // namespace gemmtune::interpose
