// y = silu(gate) · up, element by element: what lies between the products of a gated feed-forward layer. Computed in
// float32 and rounded once; silu(v) = v / (1 + e^−v).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "numbers/data_type.h"

namespace gemmtune {

/// Matrices on one device, whose rows are ld… elements apart. y may be gate or up, with the same distance of rows.
struct SiluAndMul {
  DataType type = DataType::bf16;  // of all three: f32, f16 or bf16
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const void* gate = nullptr;
  const void* up = nullptr;
  void* y = nullptr;
  std::int64_t ldgate = 0;
  std::int64_t ldup = 0;
  std::int64_t ldy = 0;

  bool is_empty() const { return rows == 0 || columns == 0; }
};

/// `invalid` if the type is another one, or a size or a distance of rows is out of range. Pointers are not looked at.
Status check(const SiluAndMul& call);

}  // namespace gemmtune
