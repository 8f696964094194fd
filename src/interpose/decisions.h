// What was decided for calls of one kind, for all threads: looked up without a lock.
#pragma once

#include <gemmtune/c.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "backends/cublas_api.h"
#include "interpose/counts.h"

namespace gemmtune::interpose {

/// Everything that a decision depends on. Compared as bytes: no padding.
struct DecisionKey {
  const void* context = nullptr;  // CUcontext
  std::int64_t m = 0, n = 0, k = 0, batch = 0;
  std::int32_t x_type = 0, y_type = 0, bias = 0, orders = 0;
  cuda::api::LtAlgorithm algorithm{};  // that the caller chose; all zero: the library chooses
};
static_assert(sizeof(DecisionKey) == 5 * 8 + 4 * 4 + sizeof(cuda::api::LtAlgorithm));

DecisionKey key_of(const void* context, const gemmtune_problem& problem,
                   const cuda::api::LtAlgorithm* algorithm);

struct Decision {
  DecisionKey key;
  Outcome untuned = Outcome::no_row;     // of a call that no row answers; online tuning may add one later
  gemmtune_context* gemmtune = nullptr;  // null: there is none, or it cannot plan the problem
  // What calls run, once one was answered. Never released: a CUDA graph may use its kernel.
  mutable std::atomic<gemmtune_plan*> plan{nullptr};
};

/// Null: not decided yet.
const Decision* find_decision(const DecisionKey& key);
/// Keeps it until the process ends; of two decisions with one key, the first. Some ten thousand at most, then null.
const Decision* keep_decision(std::unique_ptr<Decision> decision);

}  // namespace gemmtune::interpose
