#include "tuned/key.h"

#include <functional>

namespace gemmtune {
namespace {

std::uint32_t switches_of(const Problem& problem) {
  const bool bits[] = {problem.bias,
                       problem.scale_ab,
                       problem.bpreshuffle,
                       problem.x_order == Order::column_major,
                       problem.w_order == Order::column_major,
                       problem.y_order == Order::column_major,
                       problem.moe.gated,
                       problem.moe.doweight_stage1};
  std::uint32_t switches = 0;
  for (const bool bit : bits) switches = switches << 1 | (bit ? 1U : 0U);
  return switches;
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
    group.bpreshuffle = problem.bpreshuffle;
    group.x_order = problem.x_order;
    group.w_order = problem.w_order;
    group.y_order = problem.y_order;
  }
  if (fields.mixture) {
    group.moe = problem.moe;
    group.moe.shared_experts = 0;  // AITER's rows do not say it, and the products are the same
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
  return a.bpreshuffle && b.bpreshuffle && weight_of(a) == weight_of(b);
}

GroupKey of_any_activation(GroupKey key) {
  key.any_activation = true;
  key.group.moe.activation = Activation::none;
  return key;
}

std::size_t GroupKeyHash::operator()(const GroupKey& key) const {
  const Problem& group = key.group;
  std::uint64_t hash = std::hash<std::string_view>{}(key.gfx);
  const std::uint64_t words[] = {
      static_cast<std::uint64_t>(key.cu_num) << 32 | static_cast<std::uint64_t>(group.operation) << 24 |
          static_cast<std::uint64_t>(group.x_type) << 16 | static_cast<std::uint64_t>(group.w_type) << 8 |
          static_cast<std::uint64_t>(group.y_type),
      static_cast<std::uint64_t>(group.n) << 32 ^ static_cast<std::uint64_t>(group.k),
      static_cast<std::uint64_t>(group.batch) << 8 | switches_of(group),
      static_cast<std::uint64_t>(group.moe.experts) << 32 | static_cast<std::uint64_t>(group.moe.topk) << 16 |
          static_cast<std::uint64_t>(group.moe.activation) << 8 |
          static_cast<std::uint64_t>(group.moe.quant_type)};
  // Odd constants, one a word, so that the products do not wait for each other.
  hash += words[0] * 0x9e3779b97f4a7c15ULL + words[1] * 0xbf58476d1ce4e5b9ULL +
          words[2] * 0x94d049bb133111ebULL + words[3] * 0xd6e8feb86659fd93ULL;
  hash ^= hash >> 32;
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
