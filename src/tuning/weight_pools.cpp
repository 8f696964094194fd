#include "tuning/weight_pools.h"

#include <algorithm>
#include <new>
#include <vector>

namespace gemmtune {

Result<std::size_t> WeightPools::weight_size(WeightLayout layout) const {
  if (layout == WeightLayout::plain) return static_cast<std::size_t>(weight_bytes(problem_));
  return device_.packed_bytes(problem_, layout);
}

Status WeightPools::make_activations(const Operands& operands) {
  if (policy_.cache != CacheMode::cold || x_) return {};
  const std::size_t target = pool_target_bytes(device_, true);
  const std::size_t limit = pool_limit_bytes(device_, policy_);
  const auto x_bytes = static_cast<std::size_t>(bytes_of(problem_.x_type, problem_.m * problem_.k));
  const auto y_bytes = static_cast<std::size_t>(bytes_of(problem_.y_type, problem_.m * problem_.n));
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
    slot.w = layout.pool.copy(i % weights);
    if (x_) slot.x = x_->copy(i % x_->copies());
    if (y_) slot.y = y_->copy(i % y_->copies());
  }
}

Result<Rotation*> WeightPools::rotation(WeightLayout layout, DeviceOperands& checked) {
  const auto found = layouts_.find(layout);
  if (found != layouts_.end()) return &found->second.rotation;
  Result<Operands> operands = checked.operands(layout);
  if (!operands.ok()) return operands.status();
  if (!warm_y_) {
    auto y = device_.allocate(static_cast<std::size_t>(bytes_of(problem_.y_type, problem_.m * problem_.n)),
                              Placement::plain);
    if (!y.ok()) return y.status();
    warm_y_ = std::move(y).value();
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(warm_y_->data(), 0, warm_y_->bytes()));
  }
  operands->y = warm_y_->data();
  operands->ldy = problem_.n;
  GEMMTUNE_RETURN_IF_ERROR(make_activations(*operands));
  const Result<std::size_t> bytes = weight_size(layout);
  if (!bytes.ok()) return bytes.status();
  const std::size_t target = pool_target_bytes(device_, policy_.cache != CacheMode::warm);
  auto pool = ColdPool::make(device_, pool_shape(*bytes, target, pool_limit_bytes(device_, policy_)),
                             [&](void* to) { return copy_on_device(device_, to, operands->w, *bytes); });
  if (!pool.ok()) return pool.status();
  Layout& made = layouts_.emplace(layout, std::move(pool).value()).first->second;
  point_at(made, *operands);
  return &made.rotation;
}

Status WeightPools::place_packed_again() {
  for (auto& [name, layout] : layouts_) {
    if (name == WeightLayout::plain) continue;
    GEMMTUNE_RETURN_IF_ERROR(layout.pool.place_again());
    const std::size_t weights = layout.pool.copies();
    auto& operands = layout.rotation.operands;
    for (std::size_t i = 0; i < operands.size(); ++i) operands[i].w = layout.pool.copy(i % weights);
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
