#include "interpose/decisions.h"

#include <array>
#include <cstring>
#include <mutex>

namespace gemmtune::interpose {
namespace {

constexpr std::size_t slots = std::size_t{1} << 15;  // a power of two
constexpr std::size_t max_decisions = slots / 2;

// Open addressing; a slot is filled once and never changes.
std::array<std::atomic<const Decision*>, slots> table{};
std::mutex filling;
std::size_t filled = 0;

bool same(const DecisionKey& a, const DecisionKey& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::size_t slot_of(const DecisionKey& key) {
  std::array<std::uint64_t, sizeof(DecisionKey) / 8> words;
  std::memcpy(words.data(), &key, sizeof key);
  std::uint64_t hash = 0;
  for (const std::uint64_t word : words) hash = (hash ^ word) * 0x9E3779B97F4A7C15U + (hash >> 29);
  return static_cast<std::size_t>(hash >> 40) % slots;
}

}  // namespace

DecisionKey key_of(const void* context, const gemmtune_problem& problem,
                   const cuda::api::LtAlgorithm* algorithm) {
  DecisionKey key;
  key.context = context;
  key.m = problem.m;
  key.n = problem.n;
  key.k = problem.k;
  key.batch = problem.batch;
  key.x_type = problem.x_type;
  key.y_type = problem.y_type;
  key.bias = problem.bias;
  key.orders = problem.x_order * 2 + problem.w_order;
  if (algorithm != nullptr) key.algorithm = *algorithm;
  return key;
}

const Decision* find_decision(const DecisionKey& key) {
  for (std::size_t slot = slot_of(key);; slot = (slot + 1) % slots) {
    const Decision* const decision = table[slot].load(std::memory_order_acquire);
    if (decision == nullptr || same(decision->key, key)) return decision;
  }
}

const Decision* keep_decision(std::unique_ptr<Decision> decision) {
  const std::lock_guard lock(filling);
  if (filled == max_decisions) return nullptr;
  std::size_t slot = slot_of(decision->key);
  for (;; slot = (slot + 1) % slots) {
    const Decision* const other = table[slot].load(std::memory_order_relaxed);
    if (other == nullptr) break;
    if (same(other->key, decision->key)) return other;
  }
  const Decision* const kept = decision.release();
  table[slot].store(kept, std::memory_order_release);
  ++filled;
  return kept;
}

}  // namespace gemmtune::interpose
