// A double of libcublasLt.
#include <cstring>
#include <map>
#include <vector>

#include "backends/cublas_api.h"
#include "interpose/cublas_double.h"

namespace {

namespace api = gemmtune::cuda::api;

struct Described {
  std::map<int, std::vector<char>> values;

  template <typename Value>
  void set(int attribute, Value value) {
    const char* const bytes = reinterpret_cast<const char*>(&value);
    values[attribute].assign(bytes, bytes + sizeof value);
  }
};

int set(void* described, int attribute, const void* value, std::size_t bytes) {
  const char* const begin = static_cast<const char*>(value);
  static_cast<Described*>(described)->values[attribute].assign(begin, begin + bytes);
  return 0;
}

/// As the library: a value of another size is refused.
int get(const void* described, int attribute, void* value, std::size_t bytes, std::size_t* written) {
  const auto& values = static_cast<const Described*>(described)->values;
  const auto found = values.find(attribute);
  if (found == values.end() || found->second.size() != bytes) return 7;
  std::memcpy(value, found->second.data(), bytes);
  *written = bytes;
  return 0;
}

}  // namespace

#define DOUBLE extern "C" __attribute__((visibility("default"))) int

DOUBLE cublasLtMatmulDescCreate(void** made, int compute_type, int scale_type) {
  auto* const described = new Described;
  described->set(api::matmul_compute_type, compute_type);
  described->set(api::matmul_scale_type, scale_type);
  described->set(api::matmul_pointer_mode, 0);
  for (const int attribute : {api::matmul_transpose_a, api::matmul_transpose_b, api::matmul_transpose_c})
    described->set(attribute, 0);
  described->set(api::matmul_fill_mode, 2);
  described->set(api::matmul_epilogue, 1);
  described->set(api::matmul_sm_count, 0);
  described->set(api::matmul_bias_type, -1);
  for (const int attribute :
       {api::matmul_bias_pointer, api::matmul_a_scale_pointer, api::matmul_b_scale_pointer,
        api::matmul_d_scale_pointer, api::matmul_d_amax_pointer})
    described->set<const void*>(attribute, nullptr);
  *made = described;
  return 0;
}
DOUBLE cublasLtMatmulDescDestroy(void* described) {
  delete static_cast<Described*>(described);
  return 0;
}
DOUBLE cublasLtMatmulDescSetAttribute(void* described, int attribute, const void* value, std::size_t bytes) {
  return set(described, attribute, value, bytes);
}
DOUBLE cublasLtMatmulDescGetAttribute(const void* described, int attribute, void* value, std::size_t bytes,
                                      std::size_t* written) {
  return get(described, attribute, value, bytes, written);
}
DOUBLE cublasLtMatrixLayoutCreate(void** made, int type, std::uint64_t rows, std::uint64_t columns,
                                  std::int64_t leading) {
  auto* const layout = new Described;
  layout->set(api::layout_type, type);
  layout->set(api::layout_order, 0);
  layout->set(api::layout_rows, rows);
  layout->set(api::layout_columns, columns);
  layout->set(api::layout_leading_dimension, leading);
  layout->set(api::layout_batch_count, 1);
  layout->set(api::layout_batch_stride, std::int64_t{0});
  *made = layout;
  return 0;
}
DOUBLE cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Described*>(layout);
  return 0;
}
DOUBLE cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, std::size_t bytes) {
  return set(layout, attribute, value, bytes);
}
DOUBLE cublasLtMatrixLayoutGetAttribute(const void* layout, int attribute, void* value, std::size_t bytes,
                                        std::size_t* written) {
  return get(layout, attribute, value, bytes, written);
}
DOUBLE cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void*, std::size_t, std::size_t*) { return 7; }
/// Two bytes an element, enough for the marker.
DOUBLE cublasLtMatmul(void*, const void*, const void*, const void*, const void*, const void*, const void*,
                      const void*, const void*, const void*, void* d, const void* d_layout, const void*,
                      void*, std::size_t, void*) {
  std::uint64_t rows = 0, columns = 0;
  std::size_t written = 0;
  get(d_layout, api::layout_rows, &rows, sizeof rows, &written);
  get(d_layout, api::layout_columns, &columns, sizeof columns, &written);
  std::memset(d, vendor_byte, rows * columns * 2);
  return 0;
}
