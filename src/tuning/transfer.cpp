#include "tuning/transfer.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {
namespace {

/// A search tries fewer of them first; candidates that share a hint are one.
constexpr std::size_t max_hints = 32;

/// Equal texts: the problems differ in sizes only. A pre-shuffled weight's layout is decided by tuning.
std::string kind_of(const Problem& problem) {
  Problem kind = problem;
  kind.m = kind.n = kind.k = 1;
  if (is_packed(kind)) kind.weight_layout = WeightLayout::any;
  return print(kind);
}

double apart(std::int64_t a, std::int64_t b) {
  return std::abs(std::log(static_cast<double>(a) / static_cast<double>(b)));
}

std::size_t shared_settings(const Config& a, const Config& b) {
  std::size_t shared = 0;
  for (const auto& [key, value] : a.settings()) shared += b.word(key) == value ? 1 : 0;
  return shared;
}

}  // namespace

void Transfer::learn(const Problem& problem, std::string winner) {
  winners_[kind_of(problem)].push_back({problem.m, problem.n, problem.k, std::move(winner)});
}

std::vector<std::string> Transfer::winners_near(const Problem& problem) const {
  struct Near {
    bool other_weight;
    double distance;
    const std::string* name;
  };
  const auto known = winners_.find(kind_of(problem));
  if (known == winners_.end()) return {};
  std::vector<Near> near;
  for (const Winner& other : known->second) {
    near.push_back({other.n != problem.n || other.k != problem.k,
                    apart(other.m, problem.m) + apart(other.n, problem.n) + apart(other.k, problem.k),
                    &other.name});
  }
  std::ranges::stable_sort(near, [](const Near& a, const Near& b) {
    return a.other_weight != b.other_weight ? b.other_weight : a.distance < b.distance;
  });
  std::vector<std::string> names;
  for (const Near& one : near) {
    if (names.size() == max_hints) break;
    if (std::find(names.begin(), names.end(), *one.name) == names.end()) names.push_back(*one.name);
  }
  return names;
}

std::vector<Candidate> candidates_named(const std::vector<std::string>& kernel_names, const Device& device,
                                        const Problem& problem) {
  std::vector<Candidate> candidates;
  for (const std::string& name : kernel_names) {
    const auto family_name = family_of_kernel_name(name);
    const KernelFamily* family = family_name ? device.find_family(*family_name) : nullptr;
    if (family == nullptr || !family->accepts(problem).ok()) continue;
    auto candidate = parse_kernel_name(name, family->space(problem).keys());
    if (candidate.ok()) candidates.push_back(std::move(*candidate));
  }
  return candidates;
}

void mark_hints(const std::vector<Candidate>& hints, std::vector<ListedCandidate>& candidates) {
  int rank = 0;
  for (const Candidate& hint : hints) {
    ListedCandidate* closest = nullptr;
    std::size_t most = 0;
    for (ListedCandidate& listed : candidates) {
      if (listed.candidate.family != hint.family) continue;
      const std::size_t shared = shared_settings(hint.config, listed.candidate.config);
      if (closest != nullptr && shared <= most) continue;
      closest = &listed;
      most = shared;
    }
    if (closest != nullptr && closest->hint == 0) closest->hint = ++rank;
  }
}

}  // namespace gemmtune
