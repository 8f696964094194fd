// A double of libcublas. Its products are calls of cuBLASLt, as the library's are: with operands that the
// interposer would serve if it saw them.
#include "interpose/cublas_double.h"

#include <initializer_list>

#include "backends/cublas_api.h"

namespace {

namespace api = gemmtune::cuda::api;

struct Handle {
  int pointer_mode = 0;
  int math_mode = 0;
};

int product(std::int64_t m, std::int64_t n, std::int64_t k, const void* a, const void* b, void* c) {
  void *matmul = nullptr, *a_layout = nullptr, *b_layout = nullptr, *c_layout = nullptr;
  const float one = 1, zero = 0;
  const int transpose = 1;
  cublasLtMatmulDescCreate(&matmul, api::compute_f32, api::type_f32);
  cublasLtMatmulDescSetAttribute(matmul, api::matmul_transpose_a, &transpose, sizeof transpose);
  cublasLtMatrixLayoutCreate(&a_layout, api::type_bf16, static_cast<std::uint64_t>(k),
                             static_cast<std::uint64_t>(m), k);
  cublasLtMatrixLayoutCreate(&b_layout, api::type_bf16, static_cast<std::uint64_t>(k),
                             static_cast<std::uint64_t>(n), k);
  cublasLtMatrixLayoutCreate(&c_layout, api::type_bf16, static_cast<std::uint64_t>(m),
                             static_cast<std::uint64_t>(n), m);
  cublasLtMatmul(nullptr, matmul, &one, a, a_layout, b, b_layout, &zero, c, c_layout, c, c_layout, nullptr,
                 nullptr, 0, nullptr);
  for (void* layout : {a_layout, b_layout, c_layout}) cublasLtMatrixLayoutDestroy(layout);
  return cublasLtMatmulDescDestroy(matmul);
}

}  // namespace

#define DOUBLE extern "C" __attribute__((visibility("default"))) int

DOUBLE cublasCreate_v2(void** handle) {
  *handle = new Handle;
  return 0;
}
DOUBLE cublasDestroy_v2(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
DOUBLE cublasSetPointerMode_v2(void* handle, int mode) {
  static_cast<Handle*>(handle)->pointer_mode = mode;
  return 0;
}
DOUBLE cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->pointer_mode;
  return 0;
}
DOUBLE cublasSetMathMode(void* handle, int mode) {
  static_cast<Handle*>(handle)->math_mode = mode;
  return 0;
}
DOUBLE cublasGetMathMode(void* handle, int* mode) {
  *mode = static_cast<Handle*>(handle)->math_mode;
  return 0;
}
DOUBLE cublasGetStream_v2(void*, void** stream) {
  *stream = nullptr;
  return 0;
}
DOUBLE cublasGemmEx(void*, int, int, int m, int n, int k, const void*, const void* a, int, int, const void* b,
                    int, int, const void*, void* c, int, int, int, int) {
  return product(m, n, k, a, b, c);
}
DOUBLE cublasGemmEx_64(void*, int, int, std::int64_t m, std::int64_t n, std::int64_t k, const void*,
                       const void* a, int, std::int64_t, const void* b, int, std::int64_t, const void*,
                       void* c, int, std::int64_t, int, int) {
  return product(m, n, k, a, b, c);
}
DOUBLE cublasGemmStridedBatchedEx(void*, int, int, int m, int n, int k, const void*, const void* a, int, int,
                                  long long, const void* b, int, int, long long, const void*, void* c, int,
                                  int, long long stride_c, int batch, int, int) {
  for (int i = 0; i < batch; ++i) product(m, n, k, a, b, static_cast<std::uint16_t*>(c) + i * stride_c);
  return 0;
}
