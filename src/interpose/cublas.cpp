// cublasGemmEx and cublasGemmStridedBatchedEx, each with 32-bit and 64-bit sizes.
#include <cstdint>

#include "interpose/service.h"
#include "interpose/vendor.h"

namespace gemmtune::interpose {
namespace {

/// What the handle and the scalars of a call say.
struct Given {
  CublasHandle handle = nullptr;
  int transpose_a = 0;
  int transpose_b = 0;
  const void* alpha = nullptr;
  const void* beta = nullptr;
  int compute_type = 0;
};

/// `served`, or what is not gemmtune's.
Outcome read_handle(const Cublas& cublas, const Given& given, const Call& call, Stream& stream) {
  int mode = -1;
  if (cublas.pointer_mode(given.handle, &mode) != api::status_success || mode != api::pointer_mode_host)
    return Outcome::pointer_mode;
  if (given.compute_type != api::compute_f32) return Outcome::compute_type;
  if (cublas.math_mode(given.handle, &mode) != api::status_success) return Outcome::compute_type;
  mode &= api::math_mode_mask;
  if (mode == api::math_pedantic || (mode == api::math_tf32 && call.a_type == api::type_f32))
    return Outcome::compute_type;
  const auto known = [](int operation) {
    return operation == api::operation_none || operation == api::operation_transpose;
  };
  if (!known(given.transpose_a) || !known(given.transpose_b)) return Outcome::layout;
  if (given.alpha == nullptr || given.beta == nullptr || *static_cast<const float*>(given.alpha) != 1.0F ||
      *static_cast<const float*>(given.beta) != 0.0F)
    return Outcome::alpha_beta;
  if (call.a == nullptr || call.b == nullptr || call.d == nullptr) return Outcome::layout;
  return cublas.stream(given.handle, &stream) == api::status_success ? Outcome::served : Outcome::setting;
}

/// True if the call was answered; else it is the library's. Requires a guard.
bool answer(const Cublas& cublas, const Given& given, Call& call) {
  if (cublas.stream == nullptr || cublas.pointer_mode == nullptr || cublas.math_mode == nullptr) return false;
  call.transpose_a = given.transpose_a == api::operation_transpose;
  call.transpose_b = given.transpose_b == api::operation_transpose;
  Stream stream = nullptr;
  Outcome outcome = read_handle(cublas, given, call, stream);
  if (outcome == Outcome::served) outcome = serve(call, {.stream = stream});
  count(outcome);
  return is_done(outcome);
}

/// gemmtune's answer, else the library's: `pass` calls it.
template <typename Pass>
int answer_or(const Pass& pass, const Given& given, Call call) {
  if (inside || !is_on()) return pass();
  const Inside guard;
  return answer(cublas(), given, call) ? api::status_success : pass();
}

template <typename Number>
int gemm(GemmFunction<Number>* vendor, CublasHandle handle, int transpose_a, int transpose_b, Number m,
         Number n, Number k, const void* alpha, const void* a, int a_type, Number lda, const void* b,
         int b_type, Number ldb, const void* beta, void* c, int c_type, Number ldc, int compute_type,
         int algorithm) {
  if (vendor == nullptr) return api::status_not_initialized;
  const auto pass = [&] {
    return vendor(handle, transpose_a, transpose_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c,
                  c_type, ldc, compute_type, algorithm);
  };
  const Given given{handle, transpose_a, transpose_b, alpha, beta, compute_type};
  return answer_or(pass, given,
                   {.m = m,
                    .n = n,
                    .k = k,
                    .a_type = a_type,
                    .b_type = b_type,
                    .d_type = c_type,
                    .a = a,
                    .b = b,
                    .d = c,
                    .lda = lda,
                    .ldb = ldb,
                    .ldd = ldc});
}

template <typename Number>
int strided(StridedGemmFunction<Number>* vendor, CublasHandle handle, int transpose_a, int transpose_b,
            Number m, Number n, Number k, const void* alpha, const void* a, int a_type, Number lda,
            long long stride_a, const void* b, int b_type, Number ldb, long long stride_b, const void* beta,
            void* c, int c_type, Number ldc, long long stride_c, Number batch, int compute_type,
            int algorithm) {
  if (vendor == nullptr) return api::status_not_initialized;
  const auto pass = [&] {
    return vendor(handle, transpose_a, transpose_b, m, n, k, alpha, a, a_type, lda, stride_a, b, b_type, ldb,
                  stride_b, beta, c, c_type, ldc, stride_c, batch, compute_type, algorithm);
  };
  const Given given{handle, transpose_a, transpose_b, alpha, beta, compute_type};
  return answer_or(pass, given,
                   {.m = m,
                    .n = n,
                    .k = k,
                    .a_type = a_type,
                    .b_type = b_type,
                    .d_type = c_type,
                    .a = a,
                    .b = b,
                    .d = c,
                    .lda = lda,
                    .ldb = ldb,
                    .ldd = ldc,
                    .batch = batch,
                    .stride_a = stride_a,
                    .stride_b = stride_b,
                    .stride_d = stride_c});
}

}  // namespace
}  // namespace gemmtune::interpose

namespace gi = gemmtune::interpose;

#define GEMMTUNE_STANDS_IN extern "C" __attribute__((visibility("default"))) int

#define GEMMTUNE_GEMM(name, vendor, Number)                                                                  \
  GEMMTUNE_STANDS_IN name(gi::CublasHandle handle, int transpose_a, int transpose_b, Number m, Number n,     \
                          Number k, const void* alpha, const void* a, int a_type, Number lda, const void* b, \
                          int b_type, Number ldb, const void* beta, void* c, int c_type, Number ldc,         \
                          int compute_type, int algorithm) {                                                 \
    return gi::gemm<Number>(gi::cublas().vendor, handle, transpose_a, transpose_b, m, n, k, alpha, a,        \
                            a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute_type, algorithm);     \
  }

#define GEMMTUNE_STRIDED_GEMM(name, vendor, Number)                                                      \
  GEMMTUNE_STANDS_IN name(gi::CublasHandle handle, int transpose_a, int transpose_b, Number m, Number n, \
                          Number k, const void* alpha, const void* a, int a_type, Number lda,            \
                          long long stride_a, const void* b, int b_type, Number ldb, long long stride_b, \
                          const void* beta, void* c, int c_type, Number ldc, long long stride_c,         \
                          Number batch, int compute_type, int algorithm) {                               \
    return gi::strided<Number>(gi::cublas().vendor, handle, transpose_a, transpose_b, m, n, k, alpha, a, \
                               a_type, lda, stride_a, b, b_type, ldb, stride_b, beta, c, c_type, ldc,    \
                               stride_c, batch, compute_type, algorithm);                                \
  }

GEMMTUNE_GEMM(cublasGemmEx, gemm, int)
GEMMTUNE_GEMM(cublasGemmEx_64, gemm_64, std::int64_t)
GEMMTUNE_STRIDED_GEMM(cublasGemmStridedBatchedEx, strided, int)
GEMMTUNE_STRIDED_GEMM(cublasGemmStridedBatchedEx_64, strided_64, std::int64_t)
