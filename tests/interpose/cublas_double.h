// What the program of these tests calls of cuBLAS and cuBLASLt. The doubles of both libraries are in cublas_double.cpp and
// cublas_lt_double.cpp: descriptors hold what was set, and a product fills its output with `vendor_byte`.
#pragma once

#include <cstddef>
#include <cstdint>

constexpr int vendor_byte = 0x5A;

extern "C" {
int cublasLtMatmulDescCreate(void** made, int compute_type, int scale_type);
int cublasLtMatmulDescDestroy(void* described);
int cublasLtMatmulDescSetAttribute(void* described, int attribute, const void* value, std::size_t bytes);
int cublasLtMatrixLayoutCreate(void** made, int type, std::uint64_t rows, std::uint64_t columns,
                               std::int64_t leading);
int cublasLtMatrixLayoutDestroy(void* layout);
int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, std::size_t bytes);
int cublasLtMatmul(void* handle, const void* matmul, const void* alpha, const void* a, const void* a_layout,
                   const void* b, const void* b_layout, const void* beta, const void* c, const void* c_layout,
                   void* d, const void* d_layout, const void* algorithm, void* workspace,
                   std::size_t workspace_bytes, void* stream);
int cublasCreate_v2(void** handle);
int cublasDestroy_v2(void* handle);
int cublasSetPointerMode_v2(void* handle, int mode);
int cublasSetMathMode(void* handle, int mode);
int cublasGemmEx(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                 const void* a, int a_type, int lda, const void* b, int b_type, int ldb, const void* beta,
                 void* c, int c_type, int ldc, int compute_type, int algorithm);
int cublasGemmEx_64(void* handle, int transpose_a, int transpose_b, std::int64_t m, std::int64_t n,
                    std::int64_t k, const void* alpha, const void* a, int a_type, std::int64_t lda,
                    const void* b, int b_type, std::int64_t ldb, const void* beta, void* c, int c_type,
                    std::int64_t ldc, int compute_type, int algorithm);
int cublasGemmStridedBatchedEx(void* handle, int transpose_a, int transpose_b, int m, int n, int k,
                               const void* alpha, const void* a, int a_type, int lda, long long stride_a,
                               const void* b, int b_type, int ldb, long long stride_b, const void* beta,
                               void* c, int c_type, int ldc, long long stride_c, int batch, int compute_type,
                               int algorithm);
}
