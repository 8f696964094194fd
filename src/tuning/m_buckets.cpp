#include "tuning/m_buckets.h"

#include <algorithm>
#include <map>

#include "tuning/m_range_comparison.h"

namespace gemmtune {
namespace {

/// The regret of a kernel that may answer at the M; nullopt: it may not.
std::optional<double> regret_of(const MComparison& comparison, const std::string& kernel) {
  for (const MRegret& one : comparison.regrets)
    if (one.kernel == kernel && one.may_answer) return one.regret;
  return std::nullopt;
}

}  // namespace

Result<BucketChoice> choose_for_bucket(const Device& device, Evaluator& evaluator,
                                       std::span<const TunedEntry> rows, const Policy& policy) {
  std::vector<std::string> kernels;  // of the largest M first
  for (auto row = rows.rbegin(); row != rows.rend(); ++row)
    if (std::find(kernels.begin(), kernels.end(), row->kernel_name) == kernels.end())
      kernels.push_back(row->kernel_name);
  if (kernels.size() == 1) return BucketChoice{kernels.front(), 0, false};
  WeightLayout layout = WeightLayout::plain;
  if (const Problem& largest = rows.back().problem; largest.bpreshuffle) {
    const auto candidate = device.resolve(kernels.front(), largest);
    if (!candidate.ok()) return candidate.status();
    const auto listed = describe(device, largest, *candidate);
    if (!listed.ok()) return listed.status();
    layout = listed->layout;  // rows of one packed weight share it
  }
  std::map<std::string, double> sums;
  for (const std::string& kernel : kernels) sums[kernel] = 0;
  for (const TunedEntry& row : rows) {
    MComparisonRequest request;
    request.problem = row.problem;
    request.kernels = kernels;
    request.layout = layout;
    request.policy = policy;
    const auto comparison = compare_kernels(device, evaluator, request, Deadline::never());
    if (!comparison.ok()) return comparison.status();
    for (const std::string& kernel : kernels) {
      const auto regret = regret_of(*comparison, kernel);
      if (!regret) {
        sums.erase(kernel);
      } else if (const auto sum = sums.find(kernel); sum != sums.end()) {
        sum->second += *regret;
      }
    }
  }
  const std::string* best = nullptr;
  for (const std::string& kernel : kernels) {
    if (sums.contains(kernel) && (best == nullptr || sums.at(kernel) < sums.at(*best))) best = &kernel;
  }
  if (best == nullptr) return Status::unsupported("no winner of one M may answer all {} M", rows.size());
  return BucketChoice{*best, sums.at(*best), true};
}

}  // namespace gemmtune
