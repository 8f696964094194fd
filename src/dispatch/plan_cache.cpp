#include "dispatch/plan_cache.h"

#include <algorithm>
#include <iterator>

namespace gemmtune {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

}  // namespace

std::size_t PlanKeyHash::operator()(const PlanKey& key) const {
  const Problem& problem = key.problem;
  std::uint64_t flags = static_cast<std::uint64_t>(problem.operation);
  const auto add = [&flags](std::uint64_t value, int width) { flags = flags << width | value; };
  add(static_cast<std::uint64_t>(problem.x_type), 4);
  add(static_cast<std::uint64_t>(problem.w_type), 4);
  add(static_cast<std::uint64_t>(problem.y_type), 4);
  add(static_cast<std::uint64_t>(problem.weight_layout), 4);
  add(problem.bias, 1);
  add(problem.scale_ab, 1);
  add(problem.e8m0_scales, 1);
  add(is_packed(problem), 1);
  add(static_cast<std::uint64_t>(problem.x_order), 1);
  add(static_cast<std::uint64_t>(problem.w_order), 1);
  add(key.dependent, 1);
  add(key.measured_only, 1);
  add(problem.zero_points, 1);
  add(static_cast<std::uint32_t>(problem.alignment), 32);
  // Products that do not wait for each other.
  const std::uint64_t hash = key.generation * 0xa0761d6478bd642fULL +
                             static_cast<std::uint64_t>(problem.m) * 0xbf58476d1ce4e5b9ULL +
                             static_cast<std::uint64_t>(problem.n) * 0x94d049bb133111ebULL +
                             static_cast<std::uint64_t>(problem.k) * 0xd6e8feb86659fd93ULL +
                             static_cast<std::uint64_t>(problem.batch) * 0xe7037ed1a0b428dbULL +
                             static_cast<std::uint64_t>(problem.w_group) * 0x8ebc6af09c88c6e3ULL;
  return mix(hash ^ (hash >> 32), flags);
}

PlanCache::PlanCache(std::size_t capacity, std::size_t shards)
    : capacity_(std::max<std::size_t>(capacity, 1)),
      shard_count_(std::max<std::size_t>(shards, 1)),
      shards_(std::make_unique<Shard[]>(shard_count_)) {}

PlanRef PlanCache::find(const PlanKey& key) {
  Shard& shard = shard_of(PlanKeyHash()(key));
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.index.find(key);
  if (found == shard.index.end()) return {};
  shard.items.splice(shard.items.begin(), shard.items, found->second);
  return found->second->plan;
}

void PlanCache::insert(const PlanKey& key, const PlanRef& plan) {
  Shard& shard = shard_of(PlanKeyHash()(key));
  if (size() >= capacity_) drop_one(shard);
  const std::lock_guard lock(shard.mutex);
  if (shard.index.contains(key)) return;
  std::list<Item> item;  // in no list of the shard until nothing can fail any more
  item.push_front({key, plan});
  shard.index.emplace(key, item.begin());
  shard.items.splice(shard.items.begin(), item);
  size_.fetch_add(1, std::memory_order_relaxed);
}

void PlanCache::drop_one(const Shard& first) {
  const auto start = static_cast<std::size_t>(&first - shards_.get());
  for (std::size_t i = 0; i < shard_count_; ++i) {
    Shard& shard = shards_[(start + i) % shard_count_];
    PlanRef dropped;  // freed after the lock
    const std::lock_guard lock(shard.mutex);
    if (shard.items.empty()) continue;
    dropped = std::move(shard.items.back().plan);
    shard.index.erase(shard.items.back().key);
    shard.items.pop_back();
    size_.fetch_sub(1, std::memory_order_relaxed);
    return;
  }
}

void PlanCache::drop_untuned(const std::function<bool(const Problem& problem)>& answered_now) {
  for (std::size_t i = 0; i < shard_count_; ++i) {
    Shard& shard = shards_[i];
    std::list<Item> dropped;  // freed after the lock
    const std::lock_guard lock(shard.mutex);
    for (auto item = shard.items.begin(); item != shard.items.end();) {
      const auto next = std::next(item);
      if (is_miss(item->plan->account().match) && answered_now(item->key.problem)) {
        shard.index.erase(item->key);
        dropped.splice(dropped.end(), shard.items, item);
        size_.fetch_sub(1, std::memory_order_relaxed);  // here: the next question may throw
      }
      item = next;
    }
  }
}

void PlanCache::clear() {
  for (std::size_t i = 0; i < shard_count_; ++i) {
    std::list<Item> dropped;  // freed after the lock
    const std::lock_guard lock(shards_[i].mutex);
    size_.fetch_sub(shards_[i].items.size(), std::memory_order_relaxed);
    dropped.swap(shards_[i].items);
    shards_[i].index.clear();
  }
}

}  // namespace gemmtune
