#include "evaluate/in_process/weight_pools.h"

#include <algorithm>
#include <set>

#include "base/rounding.h"
#include "problem/operands.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_routed_calls = 32;

}  // namespace

Result<std::size_t> WeightPools::weight_size(WeightLayout layout) const {
  if (layout == WeightLayout::plain) return static_cast<std::size_t>(operand_shapes(problem_).w.bytes());
  return device_.packed_bytes(problem_, layout);
}

/// The weights and scales of one call, each from a line of its own.
Result<std::vector<WeightPools::Part>> WeightPools::parts_of(WeightLayout layout) const {
  GEMMTUNE_TRY(const std::size_t weight, weight_size(layout));
  const OperandShapes shapes = operand_shapes(problem_);
  const auto size = [](std::int64_t bytes) { return static_cast<std::size_t>(bytes); };
  std::vector<Part> parts{{&Operands::w, 0, weight},
                          {&Operands::w_scale, 0, size(shapes.w.scale_bytes())},
                          {&Operands::w_global_scale, 0, size(shapes.w.global_scale_bytes())},
                          {&Operands::w_zero_points, 0, size(shapes.w.zero_point_bytes())},
                          {&Operands::w2, 0, size(shapes.w2.bytes())},
                          {&Operands::w2_scale, 0, size(shapes.w2.scale_bytes())},
                          {&Operands::w2_global_scale, 0, size(shapes.w2.global_scale_bytes())},
                          {&Operands::w2_zero_points, 0, size(shapes.w2.zero_point_bytes())}};
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
  GEMMTUNE_TRY(auto x, ColdPool::make(device_, pool_shape(x_bytes, target, limit / 4), [&](void* to) {
                 return device_.copy_within(to, operands.x, x_bytes);
               }));
  GEMMTUNE_TRY(auto y, ColdPool::make(device_, pool_shape(y_bytes, target, limit / 4),
                                      [&](void* to) { return device_.fill(to, 0, y_bytes); }));
  x_ = std::move(x);
  y_ = std::move(y);
  return {};
}

// A call reads the weights of the experts that its tokens go to. If those of a few calls are all that is read, they stay in the
// cache, so there are as many calls as together read what the pool holds.
Result<const WeightPools::RoutedCalls*> WeightPools::routed_calls(RoutingKind routing) {
  if (!is_mixture(problem_)) return static_cast<const RoutedCalls*>(nullptr);
  const auto [found, is_new] = routed_calls_.try_emplace(routing);
  RoutedCalls& calls = found->second;
  if (!is_new) return &calls;
  const auto routes = [&](std::int64_t call) {
    return routes_of_call(problem_, policy_.seed, policy_.routing_of(routing), call);
  };
  std::vector<Routes> all{routes(0)};
  const std::set<std::int32_t> experts(all.front().ids.begin(), all.front().ids.end());
  const auto read = static_cast<std::size_t>(weight_bytes(problem_) / problem_.moe.experts) *
                    (experts.size() + static_cast<std::size_t>(problem_.moe.shared_experts));
  const std::size_t target = pool_target_bytes(device_, policy_, policy_.cache != CacheMode::warm);
  const std::size_t count =
      std::clamp<std::size_t>(target / std::max<std::size_t>(read, 1) + 1, 1, max_routed_calls);
  while (all.size() < count) all.push_back(routes(std::ssize(all)));
  const std::size_t bytes = all.front().ids.size() * sizeof(std::int32_t);
  const std::size_t stride = round_up(bytes, line_bytes);
  for (std::unique_ptr<Buffer>* buffer : {&calls.ids, &calls.weights}) {
    GEMMTUNE_TRY(*buffer, device_.allocate(stride * count, Placement::plain));
  }
  for (std::size_t i = 0; i < count; ++i) {
    calls.offsets.push_back(i * stride);
    GEMMTUNE_RETURN_IF_ERROR(
        device_.copy_in(static_cast<std::byte*>(calls.ids->data()) + i * stride, all[i].ids.data(), bytes));
    GEMMTUNE_RETURN_IF_ERROR(device_.copy_in(static_cast<std::byte*>(calls.weights->data()) + i * stride,
                                             all[i].weights.data(), bytes));
  }
  return &calls;
}

Rotation WeightPools::make_rotation(const Layout& layout, const RoutedCalls* calls,
                                    const Operands& operands) const {
  const std::size_t weights = layout.pool.copies();
  std::size_t count = x_ ? std::max({weights, x_->copies(), y_->copies()}) : weights;
  if (calls != nullptr) count = std::max(count, calls->offsets.size());
  Rotation rotation;
  rotation.operands.assign(count, operands);
  for (std::size_t i = 0; i < count; ++i) {
    Operands& slot = rotation.operands[i];
    if (x_) slot.x = x_->copy(i % x_->copies());
    if (y_) slot.y = y_->copy(i % y_->copies());
    if (calls == nullptr) continue;
    const std::size_t offset = calls->offsets[i % calls->offsets.size()];
    slot.topk_ids =
        reinterpret_cast<const std::int32_t*>(static_cast<std::byte*>(calls->ids->data()) + offset);
    slot.topk_weights =
        reinterpret_cast<const float*>(static_cast<std::byte*>(calls->weights->data()) + offset);
  }
  point_at_weights(layout, rotation);
  return rotation;
}

void WeightPools::point_at_weights(const Layout& layout, Rotation& rotation) {
  auto& operands = rotation.operands;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto* copy = static_cast<const std::byte*>(layout.pool.copy(i % layout.pool.copies()));
    for (const Part& part : layout.parts) operands[i].*part.pointer = copy + part.offset;
  }
}

Result<WeightPools::Layout*> WeightPools::layout_of(WeightLayout layout, const Operands& operands) {
  if (const auto found = layouts_.find(layout); found != layouts_.end()) return &found->second;
  GEMMTUNE_TRY(std::vector<Part> parts, parts_of(layout));
  const std::size_t target = pool_target_bytes(device_, policy_, policy_.cache != CacheMode::warm);
  const std::size_t bytes = parts.back().offset + parts.back().bytes;
  GEMMTUNE_TRY(
      auto pool,
      ColdPool::make(device_, pool_shape(bytes, target, pool_limit_bytes(device_, policy_)), [&](void* to) {
        for (const Part& part : parts)
          GEMMTUNE_RETURN_IF_ERROR(device_.copy_within(static_cast<std::byte*>(to) + part.offset,
                                                       operands.*part.pointer, part.bytes));
        return Status();
      }));
  return &layouts_.try_emplace(layout, std::move(pool), std::move(parts)).first->second;
}

Result<Rotation*> WeightPools::rotation(WeightLayout layout, RoutingKind routing, DeviceOperands& checked) {
  if (const auto found = layouts_.find(layout); found != layouts_.end()) {
    auto& rotations = found->second.rotations;
    if (const auto made = rotations.find(routing); made != rotations.end()) return &made->second;
  }
  GEMMTUNE_TRY(Operands operands, checked.operands(layout));
  if (!warm_y_) {
    GEMMTUNE_TRY(warm_y_, device_.allocate(static_cast<std::size_t>(operand_shapes(problem_).y.bytes()),
                                           Placement::plain));
    GEMMTUNE_RETURN_IF_ERROR(device_.fill(warm_y_->data(), 0, warm_y_->bytes()));
  }
  operands.y = warm_y_->data();
  operands.ldy = output_columns(problem_);
  operands.y_batch_stride = problem_.m * operands.ldy;
  GEMMTUNE_RETURN_IF_ERROR(make_activations(operands));
  GEMMTUNE_TRY(const auto calls, routed_calls(routing));
  GEMMTUNE_TRY(const auto made, layout_of(layout, operands));
  return &made->rotations.emplace(routing, make_rotation(*made, calls, operands)).first->second;
}

Status WeightPools::place_packed_again() {
  for (auto& [name, layout] : layouts_) {
    if (name == WeightLayout::plain) continue;
    GEMMTUNE_RETURN_IF_ERROR(layout.pool.place_again());
    for (auto& [routing, rotation] : layout.rotations) point_at_weights(layout, rotation);
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
