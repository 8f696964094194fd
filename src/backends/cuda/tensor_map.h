// Tensor maps: the descriptors of matrices that TMA reads and writes.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cuda/cuda_api.h"
#include "base/status.h"

namespace gemmtune::cuda {

/// Row-major [rows, columns] of 1-, 2- or 4-byte elements; a box is box_rows x box_columns. Where that is 128
/// bytes wide, it lies in shared memory with the swizzle of 128 bytes, else row behind row. What of a box
/// lies outside of the matrix reads as zero and is not written.
struct MatrixBox {
  const void* data = nullptr;  // 16-byte aligned
  int element_bytes = 2;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_bytes = 0;    // a multiple of 16
  std::int64_t box_rows = 0;     // ≤ 256
  std::int64_t box_columns = 0;  // ≤ 128 bytes; 0: 128 bytes
  std::int64_t batches = 0;      // such matrices, of a map with three dimensions; 0: one, and two dimensions
  std::int64_t batch_bytes = 0;  // from one to the next, a multiple of 16; of one batch it does not matter
};

/// `unsupported` if the matrix is not aligned as TMA needs it.
Status encode(const api::Driver& driver, const MatrixBox& box, api::TensorMap& map);

/// An array of 3 to 5 dimensions and a box of it, the contiguous dimension first; the box has 128 bytes of that one and lies in
/// shared memory with the swizzle of 128 bytes.
struct ArrayBox {
  struct Dimension {
    std::int64_t size = 0;
    std::int64_t stride_bytes = 0;  // a multiple of 16; of the first one ignored
    std::int64_t box = 0;           // ≤ 256; of the first one ignored
  };
  const void* data = nullptr;  // 16-byte aligned
  int element_bytes = 2;
  std::span<const Dimension> dimensions;
};
Status encode(const api::Driver& driver, const ArrayBox& box, api::TensorMap& map);

/// A map that was encoded once, for matrices of one size at any address: a call then copies 128 bytes instead
/// of calling the driver. No documentation promises that a map holds its matrix's address in its first word and
/// nowhere else, so the constructor checks it; if it does not hold, or if the rows or batches have another stride, each
/// call encodes. Immutable.
class MovableMap {
 public:
  /// `box.data` does not matter. `driver` must outlive the map; without a driver nothing can be encoded. The driver is not asked
  /// about an empty box, which stands for a matrix that a launch does not have.
  MovableMap(const api::Driver& driver, const MatrixBox& box);
  /// The map of the matrix at `data`; as encode().
  Status at(const void* data, std::int64_t row_bytes, api::TensorMap& map) const {
    return at(data, row_bytes, box_.batch_bytes, map);
  }
  Status at(const void* data, std::int64_t row_bytes, std::int64_t batch_bytes, api::TensorMap& map) const;
  bool is_movable() const { return movable_; }

 private:
  const api::Driver& driver_;
  MatrixBox box_;
  api::TensorMap encoded_{};
  bool movable_ = false;
};

}  // namespace gemmtune::cuda
