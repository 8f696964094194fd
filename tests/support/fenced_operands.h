// The operands of a call through the C functions, each between unreadable pages.
#pragma once

#include <gemmtune/c.h>

#include <cstddef>
#include <cstring>

#include "problem/operands.h"
#include "support/fenced_memory.h"
#include "verify/inputs.h"

namespace gemmtune::test {

/// Bytes of an operand. One that a problem does not have begins at an unreadable page.
class FencedCopy {
 public:
  FencedCopy(const void* data, std::size_t bytes, Fence fence) : memory_(bytes, fence) {
    if (bytes != 0) std::memcpy(memory_.data(), data, bytes);
  }
  template <typename Container>
  FencedCopy(const Container& values, Fence fence)
      : FencedCopy(values.data(), values.size() * sizeof values[0], fence) {}
  template <typename Value = void>
  const Value* data() const {
    return reinterpret_cast<const Value*>(memory_.data());
  }

 private:
  FencedMemory memory_;
};

/// Dense operands of `problem`, with room for y.
class FencedOperands {
 public:
  FencedOperands(const Problem& problem, const HostOperands& host, Fence fence)
      : x(host.x, fence),
        w(host.w, fence),
        bias(host.bias, fence),
        x_scale(host.x_scale, fence),
        w_scale(host.w_scale, fence),
        x_global_scale(host.x_global_scale, fence),
        w_global_scale(host.w_global_scale, fence),
        w_zero_points(host.w_zero_points, fence),
        w2(host.w2, fence),
        w2_scale(host.w2_scale, fence),
        w2_global_scale(host.w2_global_scale, fence),
        w2_zero_points(host.w2_zero_points, fence),
        bias2(host.bias2, fence),
        topk_ids(host.topk_ids, fence),
        topk_weights(host.topk_weights, fence),
        y(static_cast<std::size_t>(operand_shapes(problem).y.bytes()), fence) {
    moe_.size = sizeof moe_;
    moe_.w2 = w2.data();
    moe_.w2_scale = w2_scale.data();
    moe_.w2_global_scale = w2_global_scale.data<float>();
    moe_.w2_zero_points = w2_zero_points.data<std::int8_t>();
    moe_.bias2 = bias2.data<float>();
    moe_.topk_ids = topk_ids.data<std::int32_t>();
    moe_.topk_weights = topk_weights.data<float>();
  }
  FencedOperands(const FencedOperands&) = delete;
  FencedOperands& operator=(const FencedOperands&) = delete;

  /// `weight` in place of w; null: w.
  gemmtune_operands given(const void* weight = nullptr) {
    gemmtune_operands operands{};
    operands.size = sizeof operands;
    operands.x = x.data();
    operands.w = weight != nullptr ? weight : w.data();
    operands.bias = bias.data();
    operands.y = y.data();
    operands.x_scale = x_scale.data();
    operands.w_scale = w_scale.data();
    operands.x_global_scale = x_global_scale.data<float>();
    operands.w_global_scale = w_global_scale.data<float>();
    operands.w_zero_points = w_zero_points.data<std::int8_t>();
    operands.moe = &moe_;
    return operands;
  }

  const FencedCopy x;
  const FencedCopy w;
  const FencedCopy bias;
  const FencedCopy x_scale;
  const FencedCopy w_scale;
  const FencedCopy x_global_scale;
  const FencedCopy w_global_scale;
  const FencedCopy w_zero_points;
  const FencedCopy w2;
  const FencedCopy w2_scale;
  const FencedCopy w2_global_scale;
  const FencedCopy w2_zero_points;
  const FencedCopy bias2;
  const FencedCopy topk_ids;
  const FencedCopy topk_weights;
  FencedMemory y;

 private:
  gemmtune_moe_operands moe_{};
};

}  // namespace gemmtune::test
