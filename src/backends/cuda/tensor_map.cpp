#include "backends/cuda/tensor_map.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "backends/cuda/libraries.h"

namespace gemmtune::cuda {

namespace {

int type_of(int element_bytes) {
  return element_bytes == 1   ? api::tensor_uint8
         : element_bytes == 2 ? api::tensor_uint16
                              : api::tensor_uint32;
}

}  // namespace

Status encode(const api::Driver& driver, const MatrixBox& box, api::TensorMap& map) {
  if (reinterpret_cast<std::uintptr_t>(box.data) % 16 != 0 || box.row_bytes % 16 != 0) {
    return Status::unsupported("TMA needs pointers and rows at multiples of 16 bytes: {}, rows of {} bytes",
                               box.data, box.row_bytes);
  }
  const std::int64_t batch_bytes = box.batches > 1 ? box.batch_bytes : box.row_bytes;
  if (batch_bytes % 16 != 0)
    return Status::unsupported("TMA needs batches at multiples of 16 bytes: {} bytes", batch_bytes);
  const std::uint64_t sizes[] = {static_cast<std::uint64_t>(box.columns),
                                 static_cast<std::uint64_t>(box.rows),
                                 static_cast<std::uint64_t>(box.batches)};
  const std::uint64_t strides[] = {static_cast<std::uint64_t>(box.row_bytes),
                                   static_cast<std::uint64_t>(batch_bytes)};
  const std::int64_t whole = 128 / box.element_bytes;
  const std::int64_t across = box.box_columns > 0 ? box.box_columns : whole;
  const std::uint32_t extent[] = {static_cast<std::uint32_t>(across),
                                  static_cast<std::uint32_t>(box.box_rows), 1};
  const std::uint32_t steps[] = {1, 1, 1};
  const std::uint32_t dimensions = box.batches > 0 ? 3 : 2;
  const api::Result result =
      driver.tensor_map(&map, type_of(box.element_bytes), dimensions, const_cast<void*>(box.data), sizes,
                        strides, extent, steps, api::tensor_interleave_none,
                        across == whole ? api::tensor_swizzle_128 : api::tensor_swizzle_none,
                        api::tensor_promote_128, api::tensor_fill_zero);
  return driver_status(result, "cuTensorMapEncodeTiled");
}

Status encode(const api::Driver& driver, const ArrayBox& box, api::TensorMap& map) {
  constexpr std::size_t most = 5;
  const std::size_t rank = box.dimensions.size();
  if (rank < 3 || rank > most) return Status::internal("a tensor map of {} dimensions", rank);
  std::array<std::uint64_t, most> sizes{};
  std::array<std::uint64_t, most> strides{};
  std::array<std::uint32_t, most> extent{};
  std::array<std::uint32_t, most> steps{};
  bool aligned = reinterpret_cast<std::uintptr_t>(box.data) % 16 == 0;
  for (std::size_t i = 0; i < rank; ++i) {
    const ArrayBox::Dimension& dimension = box.dimensions[i];
    sizes[i] = static_cast<std::uint64_t>(dimension.size);
    extent[i] = static_cast<std::uint32_t>(i == 0 ? 128 / box.element_bytes : dimension.box);
    steps[i] = 1;
    if (i == 0) continue;
    strides[i - 1] = static_cast<std::uint64_t>(dimension.stride_bytes);
    aligned = aligned && dimension.stride_bytes % 16 == 0;
  }
  if (!aligned)
    return Status::unsupported("TMA needs pointers and rows at multiples of 16 bytes: {}, rows of {} bytes",
                               box.data, box.dimensions[1].stride_bytes);
  const api::Result result = driver.tensor_map(
      &map, type_of(box.element_bytes), static_cast<std::uint32_t>(rank), const_cast<void*>(box.data),
      sizes.data(), strides.data(), extent.data(), steps.data(), api::tensor_interleave_none,
      api::tensor_swizzle_128, api::tensor_promote_128, api::tensor_fill_zero);
  return driver_status(result, "cuTensorMapEncodeTiled");
}

namespace {

/// Two addresses with few bits in common, of which no memory is touched.
const void* address_of_bits(std::uintptr_t bits) { return reinterpret_cast<const void*>(bits); }

bool holds_address_first(const api::TensorMap& map, const MatrixBox& box) {
  return map.opaque[0] == reinterpret_cast<std::uintptr_t>(box.data);
}

}  // namespace

MovableMap::MovableMap(const api::Driver& driver, const MatrixBox& box) : driver_(driver), box_(box) {
  if (driver.tensor_map == nullptr || box.rows == 0 || box.box_rows == 0) return;
  MatrixBox there = box;
  there.data = address_of_bits(0x7a5a5a5a5a00);
  MatrixBox elsewhere = box;
  elsewhere.data = address_of_bits(0x05a5a5a5a5f0);
  api::TensorMap other{};
  movable_ = encode(driver, there, encoded_).ok() && encode(driver, elsewhere, other).ok() &&
             holds_address_first(encoded_, there) && holds_address_first(other, elsewhere) &&
             std::equal(std::next(std::begin(encoded_.opaque)), std::end(encoded_.opaque),
                        std::next(std::begin(other.opaque)));
}

Status MovableMap::at(const void* data, std::int64_t row_bytes, std::int64_t batch_bytes,
                      api::TensorMap& map) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const bool same_batches = box_.batches <= 1 || batch_bytes == box_.batch_bytes;
  if (movable_ && row_bytes == box_.row_bytes && same_batches && address % 16 == 0) {
    map = encoded_;
    map.opaque[0] = address;
    return {};
  }
  MatrixBox box = box_;
  box.data = data;
  box.row_bytes = row_bytes;
  box.batch_bytes = batch_bytes;
  return encode(driver_, box, map);
}

}  // namespace gemmtune::cuda
