#include "verify/routing.h"

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

#include "base/enumerators.h"
#include "base/hash.h"
#include "problem/mixture_routes.h"

namespace gemmtune {
namespace {

/// Draws the experts of one token after another: as many as a token has, none twice.
class ExpertDraw {
 public:
  ExpertDraw(std::int32_t experts, RoutingKind kind, Random& random) : random_(random) {
    experts_.resize(static_cast<std::size_t>(experts));
    std::iota(experts_.begin(), experts_.end(), 0);
    if (kind != RoutingKind::zipf) return;
    shuffle(experts_, random_);
    for (std::size_t rank = 1; rank <= experts_.size(); ++rank)
      shares_.push_back(1 / static_cast<double>(rank));
  }

  void add_token(std::int64_t topk, std::vector<std::int32_t>& ids) {
    if (shares_.empty()) {
      // The first steps of Fisher and Yates, from whatever order the last token left.
      for (std::size_t slot = 0; slot < static_cast<std::size_t>(topk); ++slot) {
        std::swap(experts_[slot], experts_[slot + random_.below(experts_.size() - slot)]);
        ids.push_back(experts_[slot]);
      }
      return;
    }
    taken_.assign(shares_.size(), false);
    double left = std::accumulate(shares_.begin(), shares_.end(), 0.0);
    for (std::int64_t slot = 0; slot < topk; ++slot) {
      const std::size_t rank = draw_rank(left);
      taken_[rank] = true;
      left -= shares_[rank];
      ids.push_back(experts_[rank]);
    }
  }

 private:
  /// In proportion to the shares of those that were not taken, which are `left` together.
  std::size_t draw_rank(double left) {
    double at = random_.uniform() * left;
    std::size_t rank = shares_.size();
    for (std::size_t i = 0; i < shares_.size(); ++i) {
      if (taken_[i]) continue;
      rank = i;  // the last one where rounding leaves a rest
      at -= shares_[i];
      if (at < 0) break;
    }
    return rank;
  }

  Random& random_;
  std::vector<std::int32_t> experts_;  // by popularity, most first
  std::vector<double> shares_;         // of zipf
  std::vector<bool> taken_;
};

/// Empties an eighth of the slots, and all of the last token and of one in the middle. A batch keeps a slot.
void empty_slots(std::int64_t tokens, std::int64_t topk, Random& random, Routes& routes) {
  constexpr std::size_t one_in = 8;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const bool all = tokens > 1 && (token + 1 == tokens || (tokens > 3 && token == tokens / 2));
    for (std::int64_t slot = 0; slot < topk; ++slot) {
      const bool drawn = random.below(one_in) == 0;
      // The first slot of the first token is empty unless that is all there is.
      const bool first = token == 0 && slot == 0 && topk > 1;
      const bool last_left = token == 0 && slot + 1 == topk;
      if (!all && !first && (!drawn || last_left)) continue;
      const auto at = static_cast<std::size_t>(token * topk + slot);
      routes.ids[at] = empty_slot;
      routes.weights[at] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace

constexpr EnumeratorNames<RoutingKind, 3> routing_names({{RoutingKind::uniform, "uniform"},
                                                         {RoutingKind::zipf, "zipf"},
                                                         {RoutingKind::trace, "trace"}});
std::string_view to_string(RoutingKind kind) { return routing_names.of(kind); }

std::optional<RoutingKind> parse_routing_kind(std::string_view text) { return routing_names.find(text); }

bool RoutingTrace::is_of(const Problem& problem) const {
  const MoeShape& moe = problem.moe;
  return is_mixture(problem) && experts == moe.routed_experts() && topk == moe.routed_topk();
}

std::string RoutingTrace::text() const {
  std::string content = fmt::format("{} {}", experts, topk);
  for (const std::int32_t id : ids) fmt::format_to(std::back_inserter(content), " {}", id);
  return fmt::format("{}#{}", name, short_hash(content, 6));
}

std::string Routing::text() const {
  if (kind != RoutingKind::trace || trace == nullptr) return std::string(to_string(kind));
  return fmt::format("{}:{}", to_string(kind), trace->text());
}

Status check_routing(const Problem& problem, const Routing& routing) {
  if (!is_mixture(problem) || routing.kind != RoutingKind::trace) return {};
  if (routing.trace == nullptr) return Status::invalid("routing trace: no trace was given");
  if (routing.trace->is_of(problem)) return {};
  return Status::unsupported("routing trace {} is of {} experts and topk {}, the problem has {} and {}",
                             routing.trace->name, routing.trace->experts, routing.trace->topk,
                             problem.moe.routed_experts(), problem.moe.routed_topk());
}

Routes make_routes(const Problem& problem, const Routing& routing, std::int64_t index, Random random) {
  const std::int64_t topk = problem.moe.routed_topk();
  const auto pairs = static_cast<std::size_t>(problem.m * topk);
  Routes routes;
  routes.ids.reserve(pairs);
  if (routing.kind == RoutingKind::trace) {
    const std::vector<std::int32_t>& recorded = routing.trace->ids;
    const std::size_t first = static_cast<std::size_t>(index) * pairs;
    for (std::size_t i = 0; i < pairs; ++i) routes.ids.push_back(recorded[(first + i) % recorded.size()]);
  } else {
    ExpertDraw draw(problem.moe.routed_experts(), routing.kind, random);
    for (std::int64_t token = 0; token < problem.m; ++token) draw.add_token(topk, routes.ids);
  }
  // As after a softmax over the chosen ones.
  for (std::int64_t token = 0; token < problem.m; ++token) {
    const std::size_t begin = routes.weights.size();
    double sum = 0;
    for (std::int64_t slot = 0; slot < topk; ++slot) {
      routes.weights.push_back(static_cast<float>(0.2 + random.uniform()));
      sum += static_cast<double>(routes.weights.back());
    }
    for (std::size_t at = begin; at < routes.weights.size(); ++at)
      routes.weights[at] /= static_cast<float>(sum);
  }
  if (routing.padded) empty_slots(problem.m, topk, random, routes);
  return routes;
}

}  // namespace gemmtune
