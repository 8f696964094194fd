// PlanCache: plans by whole problem (M, alignment and layout included) and generation of the table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "dispatch/plan.h"
#include "problem/problem.h"

namespace gemmtune {

struct PlanKey {
  Problem problem;
  std::uint64_t generation = 0;
  bool dependent = false;  // LaunchPromises::dependent
  bool measured_only =
      false;  // the plan says that no row answers; of problems that a row answers it is false
  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

struct PlanKeyHash {
  std::size_t operator()(const PlanKey& key) const;
};

/// Safe from any thread: shards with a lock each. Full, it drops the least recently used plan of the shard
/// that takes the new one (of the next shard that has any, where that one is empty). A hit allocates nothing.
class PlanCache {
 public:
  static constexpr std::size_t default_capacity = 4096;

  explicit PlanCache(std::size_t capacity = default_capacity, std::size_t shards = 16);

  /// An empty reference where the cache has none.
  PlanRef find(const PlanKey& key);
  /// Keeps a reference of `plan`; what was there for the key stays.
  void insert(const PlanKey& key, const PlanRef& plan);
  void clear();
  /// Drops the plans that no row of the device's own answered and whose problem `answered_now` says yes to. It is called under a
  /// lock of the cache.
  void drop_untuned(const std::function<bool(const Problem& problem)>& answered_now);
  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

 private:
  struct Item {
    PlanKey key;
    PlanRef plan;
  };
  struct alignas(64) Shard {
    std::mutex mutex;
    std::list<Item> items;  // the most recently used first
    std::unordered_map<PlanKey, std::list<Item>::iterator, PlanKeyHash> index;
  };

  Shard& shard_of(std::size_t hash) { return shards_[(hash >> 48) % shard_count_]; }
  void drop_one(const Shard& first);

  std::size_t capacity_;
  std::size_t shard_count_;
  std::unique_ptr<Shard[]> shards_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace gemmtune
