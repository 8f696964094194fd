#include "tuning/invariant_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "evaluate/in_process/bit_class_finder.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "evaluate/in_process/rank_sums.h"
#include "resolve/candidate_list.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

/// The class at the problem's M and at the other M that the kernel serves.
BitClass class_of(const ServedKernel& served, Evaluator& evaluator) {
  if (!served.refusal.empty()) return {{}, served.refusal};
  BitClass bits;
  std::vector<std::int64_t> all{served.problem.m};
  all.insert(all.end(), served.other_ms.begin(), served.other_ms.end());
  for (const std::int64_t m : all) {
    const Outcome outcome = evaluator.check_neighbour_m(served.problem, served.candidate, m);
    if (outcome.kind == OutcomeKind::refused && m != served.problem.m) continue;
    if (outcome.kind != OutcomeKind::ok)
      return {{}, fmt::format("at M = {}: {}: {}", m, to_string(outcome.kind), outcome.reason)};
    if (outcome.bits.id.empty()) return outcome.bits;
    if (!bits.id.empty() && bits.id != outcome.bits.id)
      return {{},
              fmt::format("{}: class {} at M = {}, {} at M = {}", bit_phrase::rows, bits.id, served.problem.m,
                          outcome.bits.id, m)};
    bits = outcome.bits;
  }
  return bits;
}

/// Where the kernels of two classes differ first.
std::string difference_of(Device& device, const ServedClass& first, const ServedClass& second) {
  const std::string classes = fmt::format("M = {} has class {}, M = {} class {}", first.served.problem.m,
                                          first.bits.id, second.served.problem.m, second.bits.id);
  constexpr std::uint64_t seed = 1;
  auto finder = BitClassFinder::make(device, first.served.problem, seed, reference_threads(device));
  if (!finder.ok()) return classes;
  const auto found = finder->difference(first.served.candidate, first.served.problem.m,
                                        second.served.candidate, second.served.problem.m);
  return found.ok() && !found->empty() ? fmt::format("{}; {}", *found, classes) : classes;
}

std::string sum_order_of(const Device& device, const ServedKernel& served) {
  const KernelFamily* const family = device.find_family(served.candidate.family);
  const auto checked = device.checked(served.candidate, served.problem);
  return family == nullptr || !checked.ok() ? std::string()
                                            : family->sum_order(served.problem, checked->config);
}

/// Ranks that all kernels of a class have, or which of them differ. Then the weight has no class.
void compare_ranks(Device& device, InvariantReport& report) {
  constexpr std::uint64_t seed = 1;
  const auto keep_common = [](std::vector<int>& common, const std::vector<int>& found, bool first) {
    if (first) common = found;
    std::erase_if(common, [&](int ranks) { return std::ranges::find(found, ranks) == found.end(); });
  };
  bool first = true;
  for (const ServedClass& one : report.kernels) {
    const Candidate& candidate = one.served.candidate;
    if (!adds_in_pairs(candidate.config)) continue;
    const auto found = check_ranks(device, one.served.problem, candidate, seed, reference_threads(device));
    if (!found.ok() && found.code() == StatusCode::unsupported) continue;
    report.difference = found.ok() ? found->difference : found.message();
    if (!report.difference.empty()) {
      report.bits.clear();
      return;
    }
    keep_common(report.ranks_by_n, found->by_n, first);
    keep_common(report.ranks_by_k, found->by_k, first);
    first = false;
  }
}

void conclude(Device& device, InvariantReport& report) {
  for (const ServedClass& one : report.kernels) {
    if (!one.bits.id.empty()) continue;
    report.difference = fmt::format("M = {}: {}", one.served.problem.m, one.bits.reason);
    return;
  }
  const ServedClass& first = report.kernels.front();
  const auto other = std::ranges::find_if(
      report.kernels, [&](const ServedClass& one) { return one.bits.id != first.bits.id; });
  if (other == report.kernels.end()) {
    report.bits = first.bits.id;
    report.sum_order = sum_order_of(device, first.served);
    for (const ServedClass& one : report.kernels) {
      if (sum_order_of(device, one.served) != report.sum_order) report.sum_order.clear();
    }
    compare_ranks(device, report);
  } else {
    report.difference = difference_of(device, first, *other);
  }
}

}  // namespace

std::vector<InvariantReport> check_invariant(Device& device, Evaluator& evaluator,
                                             std::span<const ServedKernel> kernels,
                                             const std::function<bool(const ServedKernel&)>& on_kernel) {
  std::vector<InvariantReport> reports;
  for (const ServedKernel& served : kernels) {
    if (on_kernel && on_kernel(served)) break;
    const auto of_group = [&](const InvariantReport& report) {
      return group_of(report.kernels.front().served.problem) == group_of(served.problem);
    };
    auto report = std::ranges::find_if(reports, of_group);
    if (report == reports.end()) report = reports.insert(reports.end(), InvariantReport());
    report->kernels.push_back({served, class_of(served, evaluator)});
  }
  for (InvariantReport& report : reports) conclude(device, report);
  return reports;
}

}  // namespace gemmtune
