#include "tuned/key.h"

#include <functional>

namespace gemmtune {
namespace {

std::uint64_t byte_of(auto value) { return static_cast<std::uint8_t>(value); }
std::uint64_t half_of(std::int32_t value) { return static_cast<std::uint32_t>(value); }

std::uint64_t switches_of(const Problem& problem) {
  return byte_of(problem.bias) << 7 | byte_of(problem.scale_ab) << 6 | byte_of(is_packed(problem)) << 5 |
         byte_of(problem.x_order == Order::column_major) << 4 |
         byte_of(problem.w_order == Order::column_major) << 3 | byte_of(problem.moe.gated) << 1 |
         byte_of(problem.moe.doweight_stage1);
}

/// Every member that group_of() keeps.
KeyWords words_of(int cu_num, const Problem& group, bool any_activation) {
  return {half_of(cu_num) << 32 | byte_of(group.operation) << 24 | byte_of(group.x_type) << 16 |
              byte_of(group.w_type) << 8 | byte_of(group.y_type),
          static_cast<std::uint64_t>(group.n),
          static_cast<std::uint64_t>(group.k),
          static_cast<std::uint64_t>(group.batch),
          half_of(group.moe.experts) << 32 | half_of(group.moe.topk),
          half_of(group.w_group) << 33 | byte_of(group.zero_points) << 32 | switches_of(group) << 24 |
              byte_of(group.moe.activation) << 16 | byte_of(group.moe.quant_type) << 8 |
              byte_of(any_activation)};
}

}  // namespace

Problem group_of(const Problem& problem) {
  const OperationTraits& fields = traits(problem.operation);
  Problem group;
  group.operation = problem.operation;
  group.n = problem.n;
  group.k = problem.k;
  if (fields.batched) group.batch = problem.batch;
  if (fields.key_types == KeyTypes::weight) group.w_type = problem.w_type;
  if (fields.key_types == KeyTypes::all) {
    group.x_type = problem.x_type;
    group.w_type = problem.w_type;
    group.y_type = problem.y_type;
  }
  if (fields.key_switches) {
    group.bias = problem.bias;
    group.scale_ab = problem.scale_ab;
    group.x_order = problem.x_order;
    group.w_order = problem.w_order;
  }
  group.w_group = problem.w_group;
  group.zero_points = problem.zero_points;
  if (is_packed(problem) && (fields.key_switches || has_packed_form(problem.operation)))
    group.weight_layout = WeightLayout::any;
  if (fields.mixture) {
    group.moe = problem.moe;
    // AITER's rows say neither, and the products are the same: biases, and which experts are shared.
    group.moe.shared_experts = 0;
  }
  return group;
}

bool same_key(const Problem& a, const Problem& b) { return a.m == b.m && group_of(a) == group_of(b); }

std::size_t SameKeyHash::operator()(const Problem& problem) const {
  return GroupKeyHash{}({{}, 0, group_of(problem)}) ^
         static_cast<std::size_t>(static_cast<std::uint64_t>(problem.m) * 0x9e3779b97f4a7c15ULL);
}

Problem weight_of(const Problem& problem) {
  Problem weight = group_of(problem);
  weight.bias = false;
  weight.scale_ab = false;
  return weight;
}

bool share_packed_weight(const Problem& a, const Problem& b) {
  return is_packed(a) && is_packed(b) && weight_of(a) == weight_of(b);
}

KeyWords key_words(const GroupKey& key) { return words_of(key.cu_num, key.group, key.any_activation); }

KeyWords key_words(int cu_num, const Problem& problem) { return words_of(cu_num, group_of(problem), false); }

GroupKey of_any_activation(GroupKey key) {
  key.any_activation = true;
  key.group.moe.activation = Activation::none;
  return key;
}

std::size_t GroupKeyHash::operator()(const GroupKey& key) const {
  std::uint64_t hash = hash_of(key_words(key)) + std::hash<std::string_view>{}(key.gfx);
  if (!key.unknown_types.empty()) hash ^= std::hash<std::string_view>{}(key.unknown_types);
  return static_cast<std::size_t>(hash);
}

std::int64_t token_tier(std::int64_t tokens) {
  if (tokens >= upper_token_tier) return upper_token_tier;
  if (tokens >= lower_token_tier) return lower_token_tier;
  std::int64_t power = 1;
  while (power < tokens) power *= 2;
  return power;
}

}  // namespace gemmtune
