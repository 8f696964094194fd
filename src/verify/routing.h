// Routing: the experts that tokens of a mixture are sent to, in data that is made here. It decides how many experts' weights
// are read and how many tokens each has, so it is part of how a time is taken (measure/policy.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune {

/// Popularity of experts. zipf: the r-th most popular one has a share in proportion to 1/r; which ones are popular is drawn.
enum class RoutingKind { uniform, zipf, trace };
/// "uniform", "zipf", "trace".
std::string_view to_string(RoutingKind kind);
std::optional<RoutingKind> parse_routing_kind(std::string_view text);

/// Recorded tokens. Shared experts are not part of it.
struct RoutingTrace {
  std::string name;               // of the file, for people
  std::int32_t experts = 0;       // routed ones
  std::int32_t topk = 0;          // experts of a token
  std::vector<std::int32_t> ids;  // [tokens, topk], each expert at most once a token

  std::int64_t tokens() const { return topk == 0 ? 0 : std::ssize(ids) / topk; }
  /// Of the problem's routed experts and topk.
  bool is_of(const Problem& problem) const;
  /// "name#hash", the hash of what was recorded.
  std::string text() const;
};

/// `trace` is of that kind alone.
struct Routing {
  RoutingKind kind = RoutingKind::uniform;
  std::shared_ptr<const RoutingTrace> trace;
  /// Some slots are empty (their id is −1, their weight NaN), and some tokens have no other: the last one, as batches are
  /// padded, and one among the others. For verifying: not part of the text.
  bool padded = false;
  /// "uniform", "zipf", "trace:name#hash".
  std::string text() const;
};

/// Of one call: [T, topk] without the slots of shared experts.
struct Routes {
  std::vector<std::int32_t> ids;  // each at most once a token; −1 of empty slots
  std::vector<float> weights;     // positive, their sum 1 a token; NaN of empty slots
};

/// `unsupported` where the trace is of other experts or another topk.
Status check_routing(const Problem& problem, const Routing& routing);
/// Requires check_routing().ok(). `index` numbers calls: of a trace it takes the tokens after those of the calls before it.
Routes make_routes(const Problem& problem, const Routing& routing, std::int64_t index, Random random);

}  // namespace gemmtune
