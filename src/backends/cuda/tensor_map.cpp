#include "backends/cuda/tensor_map.h"

#include "backends/cuda/libraries.h"

namespace gemmtune::cuda {

Status encode(const api::Driver& driver, const MatrixBox& box, api::TensorMap& map) {
  if (reinterpret_cast<std::uintptr_t>(box.data) % 16 != 0 || box.row_bytes % 16 != 0) {
    return Status::unsupported(
        "the copy engine needs pointers and rows at multiples of 16 bytes: {}, rows of {} bytes", box.data,
        box.row_bytes);
  }
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(box.columns),
                                 static_cast<std::uint64_t>(box.rows)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(box.row_bytes)};
  const std::uint32_t extent[] = {static_cast<std::uint32_t>(128 / box.element_bytes),
                                  static_cast<std::uint32_t>(box.box_rows)};
  const std::uint32_t steps[] = {1, 1};
  const int type = box.element_bytes == 1 ? api::tensor_uint8 : api::tensor_uint16;
  const api::Result result = driver.tensor_map(
      &map, type, 2, const_cast<void*>(box.data), sizes, strides, extent, steps, api::tensor_interleave_none,
      api::tensor_swizzle_128, api::tensor_promote_256, api::tensor_fill_zero);
  return driver_status(result, "cuTensorMapEncodeTiled");
}

}  // namespace gemmtune::cuda
