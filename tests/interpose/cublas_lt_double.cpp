// A double of libcublasLt.
#include <cstdlib>
#include <cstring>

#include "backends/cublas_api.h"
#include "interpose/cublas_double.h"

namespace {

namespace api = gemmtune::cuda::api;

struct Attribute {
  int id;
  std::size_t bytes;
};
constexpr Attribute of_matmul[] = {
    {api::matmul_compute_type, 4},    {api::matmul_scale_type, 4},      {api::matmul_pointer_mode, 4},
    {api::matmul_transpose_a, 4},     {api::matmul_transpose_b, 4},     {api::matmul_transpose_c, 4},
    {api::matmul_fill_mode, 4},       {api::matmul_epilogue, 4},        {api::matmul_bias_pointer, 8},
    {api::matmul_sm_count, 4},        {api::matmul_a_scale_pointer, 8}, {api::matmul_b_scale_pointer, 8},
    {api::matmul_d_scale_pointer, 8}, {api::matmul_d_amax_pointer, 8},  {api::matmul_bias_type, 4},
    {api::matmul_batch_invariance, 4}};
constexpr Attribute of_layout[] = {{api::layout_type, 4},
                                   {api::layout_order, 4},
                                   {api::layout_rows, 8},
                                   {api::layout_columns, 8},
                                   {api::layout_leading_dimension, 8},
                                   {api::layout_batch_count, 4},
                                   {api::layout_batch_stride, 8},
                                   {api::layout_batch_mode, 4}};

/// As the library: all in the descriptor's own bytes, a value of another size is refused.
template <typename Described, std::size_t count>
std::uint64_t* find(Described* described, const Attribute (&attributes)[count], int id, std::size_t bytes) {
  static_assert(sizeof(Described) >= count * sizeof(std::uint64_t));
  for (std::size_t i = 0; i < count; ++i)
    if (attributes[i].id == id && attributes[i].bytes == bytes) return described->opaque + i;
  return nullptr;
}

int copy(void* to, const void* from, std::size_t bytes) {
  if (to == nullptr || from == nullptr) return 7;
  std::memcpy(to, from, bytes);
  return 0;
}

}  // namespace

#define DOUBLE extern "C" __attribute__((visibility("default"))) int

DOUBLE cublasLtMatmulDescSetAttribute(void* described, int attribute, const void* value, std::size_t bytes) {
  return copy(find(static_cast<api::LtMatmul*>(described), of_matmul, attribute, bytes), value, bytes);
}
DOUBLE cublasLtMatmulDescGetAttribute(const void* described, int attribute, void* value, std::size_t bytes,
                                      std::size_t*) {
  auto* const matmul = static_cast<api::LtMatmul*>(const_cast<void*>(described));
  return copy(value, find(matmul, of_matmul, attribute, bytes), bytes);
}
DOUBLE cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, std::size_t bytes) {
  return copy(find(static_cast<api::LtLayout*>(layout), of_layout, attribute, bytes), value, bytes);
}
DOUBLE cublasLtMatrixLayoutGetAttribute(const void* described, int attribute, void* value, std::size_t bytes,
                                        std::size_t*) {
  auto* const layout = static_cast<api::LtLayout*>(const_cast<void*>(described));
  return copy(value, find(layout, of_layout, attribute, bytes), bytes);
}
DOUBLE cublasLtMatmulDescCreate(void** made, int compute_type, int scale_type) {
  *made = new api::LtMatmul{};  // 0 is the default of the others
  const auto set = [&](int attribute, int value) {
    cublasLtMatmulDescSetAttribute(*made, attribute, &value, sizeof value);
  };
  set(api::matmul_compute_type, compute_type);
  set(api::matmul_scale_type, scale_type);
  set(api::matmul_fill_mode, api::fill_full);
  set(api::matmul_epilogue, api::epilogue_none);
  set(api::matmul_bias_type, -1);
  set(api::matmul_batch_invariance, api::batch_invariance_unset);
  return 0;
}
DOUBLE cublasLtMatmulDescDestroy(void* described) {
  delete static_cast<api::LtMatmul*>(described);
  return 0;
}
DOUBLE cublasLtMatrixLayoutCreate(void** made, int type, std::uint64_t rows, std::uint64_t columns,
                                  std::int64_t leading) {
  *made = new api::LtLayout{};
  const int one = 1;
  cublasLtMatrixLayoutSetAttribute(*made, api::layout_type, &type, sizeof type);
  cublasLtMatrixLayoutSetAttribute(*made, api::layout_rows, &rows, sizeof rows);
  cublasLtMatrixLayoutSetAttribute(*made, api::layout_columns, &columns, sizeof columns);
  cublasLtMatrixLayoutSetAttribute(*made, api::layout_leading_dimension, &leading, sizeof leading);
  return cublasLtMatrixLayoutSetAttribute(*made, api::layout_batch_count, &one, sizeof one);
}
DOUBLE cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<api::LtLayout*>(layout);
  return 0;
}
DOUBLE cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void*, std::size_t, std::size_t*) { return 7; }
/// GEMMTUNE_TEST_CUBLASLT: another version than 13.1.0, whose descriptors nobody knows.
extern "C" __attribute__((visibility("default"))) std::size_t cublasLtGetVersion() {
  const char* const version = std::getenv("GEMMTUNE_TEST_CUBLASLT");
  return version != nullptr ? std::strtoul(version, nullptr, 10) : 130100;
}
/// Two bytes an element, enough for the marker.
DOUBLE cublasLtMatmul(void*, const void*, const void*, const void*, const void*, const void*, const void*,
                      const void*, const void*, const void*, void* d, const void* d_layout, const void*,
                      void*, std::size_t, void*) {
  std::uint64_t rows = 0, columns = 0;
  cublasLtMatrixLayoutGetAttribute(d_layout, api::layout_rows, &rows, sizeof rows, nullptr);
  cublasLtMatrixLayoutGetAttribute(d_layout, api::layout_columns, &columns, sizeof columns, nullptr);
  std::memset(d, vendor_byte, rows * columns * 2);
  return 0;
}
