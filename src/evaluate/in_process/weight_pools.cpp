#include "evaluate/in_process/weight_pools.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune {
Result<std::size_t> WeightPools::weight_size(WeightLayout layout) const {
  if (layout == WeightLayout::plain) return static_cast<std::size_t>(operand_shapes(problem_).w.bytes());
  return device_.packed_bytes(problem_, layout);
}

/// The weights and scales of one call, each from a line of its own.
Result<std::vector<WeightPools::Part>> WeightPools::parts_of(WeightLayout layout) const {
  const Result<std::size_t> weight = weight_size(layout);
  if (!weight.ok()) return weight.status();
  const OperandShapes shapes = operand_shapes(problem_);
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  std::vector<Part> parts{{&Operands::w, 0, *weight},
                          {&Operands::w_scale, 0, size(shapes.w.scale_bytes())},
                          {&Operands::w2, 0, size(shapes.w2.bytes())},
                          {&Operands::w2_scale, 0, size(shapes.w2.scale_bytes())}};
  std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
  std::size_t end = 0;
  for (Part& part : parts) {
    part.offset = round_up(end, line_bytes);
    end = part.offset + part.bytes;
  }
  return parts;
}

Status WeightPools::make_activations(const Operands& operands) {
  if (policy_.cache != CacheMode::cold || x_) return {};
  const std::size_t target = pool_target_bytes(device_, policy_, true);
  const std::size_t limit = pool_limit_bytes(device_, policy_);
  const auto x_bytes = static_cast<std::size_t>(operand_shapes(problem_).x.bytes());
  const auto y_bytes = static_cast<std::size_t>(operand_shapes(problem_).y.bytes());
  auto x = ColdPool::make(device_, pool_shape(x_bytes, target, limit / 4),
                          [&](void* to) { return copy_on_device(device_, to, operands.x, x_bytes); });
  if (!x.ok()) return x.status();
  auto y = ColdPool::make(device_, pool_shape(y_bytes, target, limit / 4),
                          [&](void* to) { return device_.fill(to, 0, y_bytes); });
  if (!y.ok()) return y.status();
  x_ = std::move(x).value();
  y_ = std::move(y).value();
  return {};
}

void WeightPools::point_at(Layout& layout, const Operands& operands) const {
  const std::size_t weights = layout.pool.copies();
  const std::size_t count = x_ ? std::max({weights, x_->copies(), y_->copies()}) : weights;
  layout.rotation.operands.assign(count, operands);
  for (std::size_t i = 0; i < count; ++i) {
    Operands& slot = layout.rotation.operands[i];
    if (x_) slot.x = x_->copy(i % x_->copies());
    if (y_) slot.y = y_->copy(i % y_->copies());
  }
  point_at_weights(layout);
}

void WeightPools::point_at_weights(Layout& layout) {
  auto& operands = layout.rotation.operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* copy = static_cast<const std::byte*>(layout.pool.copy(i % layout.pool.copies()));
    for (const Part& part : layout.parts) operands[i].*part.pointer = copy + part.offset;
  }
}

Result<Rotation*> WeightPools::rotation(WeightLayout layout, DeviceOperands& checked) {
  const auto found = layouts_.find(layout);
  if (found != layouts_.end()) return &found->second.rotation;
  Result<Operands> operands = checked.operands(layout);
  if (!operands.ok()) return operands.status();
  if (!warm_y_) {
    auto y = device_.allocate(static_cast<std::size_t>(operand_shapes(problem_).y.bytes()), Placement::plain);
    if (!y.ok()) return y.status();
    warm_y_ = std::move(y).value();
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(warm_y_->data(), 0, warm_y_->bytes()));
  }
  operands->y = warm_y_->data();
  operands->ldy = output_columns(problem_);
  operands->y_batch_stride = problem_.m * operands->ldy;
  GEMMTUNE_RETURN_IF_ERROR(make_activations(*operands));
  Result<std::vector<Part>> parts = parts_of(layout);
  if (!parts.ok()) return parts.status();
  const std::size_t target = pool_target_bytes(device_, policy_, policy_.cache != CacheMode::warm);
  const std::size_t bytes = parts->back().offset + parts->back().bytes;
  auto pool =
      ColdPool::make(device_, pool_shape(bytes, target, pool_limit_bytes(device_, policy_)), [&](void* to) {
        for (const Part& part : *parts)
          GEMMTUNE_RETURN_IF_ERROR(copy_on_device(device_, static_cast<std::byte*>(to) + part.offset,
                                                  (*operands).*part.pointer, part.bytes));
        return Status();
      });
  if (!pool.ok()) return pool.status();
  Layout& made =
      layouts_.try_emplace(layout, std::move(pool).value(), std::move(parts).value()).first->second;
  point_at(made, *operands);
  return &made.rotation;
}

Status WeightPools::place_packed_again() {
  for (auto& [name, layout] : layouts_) {
    if (name == WeightLayout::plain) continue;
    GEMMTUNE_RETURN_IF_ERROR(layout.pool.place_again());
    point_at_weights(layout);
  }
  return {};
}

PoolShape WeightPools::largest() const {
  PoolShape largest;
  largest.copies = largest.wanted_copies = 0;
  for (const auto& [name, layout] : layouts_)
    if (layout.pool.shape().bytes() > largest.bytes()) largest = layout.pool.shape();
  return largest;
}

}  // namespace gemmtune
