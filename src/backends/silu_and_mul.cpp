#include "backends/silu_and_mul.h"

#include <algorithm>
#include <utility>

#include "problem/problem.h"

namespace gemmtune {

Status check(const SiluAndMul& call) {
  if (call.type != DataType::f32 && call.type != DataType::f16 && call.type != DataType::bf16)
    return Status::invalid("dtype of gate is {}, expected bf16, f16 or f32", to_string(call.type));
  for (const auto& [name, value] : {std::pair("rows", call.rows), std::pair("columns", call.columns)})
    if (value < 0 || value > max_dimension)
      return Status::invalid("{} = {}, expected 0 to {}", name, value, max_dimension);
  for (const auto& [name, value] :
       {std::pair("ldgate", call.ldgate), std::pair("ldup", call.ldup), std::pair("ldy", call.ldy)})
    if (value < call.columns || value > max_dimension)
      return Status::invalid("{} = {}, expected {} to {} elements", name, value, call.columns, max_dimension);
  const std::int64_t elements = (call.rows - 1) * std::max({call.ldgate, call.ldup, call.ldy}) + call.columns;
  if (elements > max_tensor_bytes / bytes_of(call.type, 1))
    return Status::invalid("gate, up or y extends over {} elements, expected at most 2^47 bytes", elements);
  return {};
}

}  // namespace gemmtune
