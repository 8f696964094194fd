#include "tuning/m_buckets.h"

#include <algorithm>

#include "backends/default_kernels.h"
#include "tuning/m_range_comparison.h"

namespace gemmtune {
namespace {

/// The regret of a kernel that may answer at the M; nullopt: it may not.
std::optional<double> regret_of(const MComparison& comparison, const std::string& kernel) {
  for (const MRegret& one : comparison.regrets)
    if (one.kernel == kernel && one.may_answer) return one.regret;
  return std::nullopt;
}

/// The winners of a bucket's rows and what is known of each.
class BucketContest {
 public:
  BucketContest(const Device& device, Evaluator& evaluator, std::span<const TunedEntry> rows,
                const BucketEnds& ends, const Policy& policy)
      : device_(device), evaluator_(evaluator), rows_(rows), ends_(ends), policy_(policy) {}

  Result<BucketChoice> decide(const Deadline& deadline) {
    for (auto row = rows_.rbegin(); row != rows_.rend(); ++row) add(row->kernel_name, 1);
    if (finalists_.size() == 1 && finalists_.front().wins == rows_.size() &&
        is_right_at_ends(finalists_.front().kernel)) {
      return BucketChoice{finalists_.front().kernel, 0};
    }
    for (const TunedEntry& row : rows_) add(row.default_kernel, 0);
    if (const auto library = library_kernel(device_, at(ends_.last), policy_.accuracy); library.ok())
      add(library->kernel_name(), 0);
    if (finalists_.empty()) {
      return Status::unsupported("no winner and no default takes M = {} and M = {}, which the bucket answers",
                                 ends_.first, ends_.last);
    }
    GEMMTUNE_RETURN_IF_ERROR(find_layout());
    while (compared_ < rows_.size() && !deadline.over()) {
      GEMMTUNE_RETURN_IF_ERROR(compare(rows_[compared_], deadline));
      ++compared_;
    }
    std::ranges::stable_sort(finalists_, [&](const BucketFinalist& a, const BucketFinalist& b) {
      return compared_ == 0 ? a.wins > b.wins : a.regret < b.regret;
    });
    for (const BucketFinalist& one : finalists_) {
      if (!is_right_where_not_compared(one.kernel) || !is_right_at_ends(one.kernel)) continue;
      return BucketChoice{one.kernel, compared_ == 0 ? std::nullopt : std::optional(one.regret), compared_,
                          compared_ < rows_.size()};
    }
    return Status::unsupported("no winner and no default may answer all {} M of M = {} to {}", rows_.size(),
                               ends_.first, ends_.last);
  }

 private:
  struct BucketFinalist {
    std::string kernel;
    double regret = 0;     // summed
    std::size_t wins = 0;  // rows
  };

  /// A kernel that takes both ends of the bucket.
  void add(const std::string& kernel, std::size_t wins) {
    if (kernel.empty()) return;
    if (const auto known = find(kernel); known != finalists_.end()) {
      known->wins += wins;
    } else if (takes(kernel, ends_.first) && takes(kernel, ends_.last)) {
      finalists_.push_back({kernel, 0, wins});
    }
  }

  Problem at(std::int64_t m) const {
    Problem problem = rows_.back().problem;
    problem.m = m;
    return problem;
  }

  bool takes(const std::string& kernel, std::int64_t m) const { return device_.resolve(kernel, at(m)).ok(); }

  OutcomeKind verify(const std::string& kernel, const Problem& problem) {
    const auto candidate = device_.resolve(kernel, problem);
    return candidate.ok() ? evaluator_.check_neighbour_m(problem, *candidate, problem.m).kind
                          : OutcomeKind::refused;
  }

  /// Of a problem that the kernel takes (takes()): refused is for want of memory, and says nothing of the kernel.
  bool is_not_wrong(const std::string& kernel, const Problem& problem) {
    const OutcomeKind kind = verify(kernel, problem);
    return kind == OutcomeKind::ok || kind == OutcomeKind::refused;
  }

  bool is_right_at_ends(const std::string& kernel) {
    return is_not_wrong(kernel, at(ends_.first)) && is_not_wrong(kernel, at(ends_.last));
  }

  std::vector<BucketFinalist>::iterator find(const std::string& kernel) {
    return std::ranges::find_if(finalists_, [&](const BucketFinalist& one) { return one.kernel == kernel; });
  }

  /// Rows of one packed weight share it.
  Status find_layout() {
    const Problem& largest = rows_.back().problem;
    if (!is_packed(largest)) return {};
    GEMMTUNE_TRY(const auto candidate, device_.resolve(finalists_.front().kernel, largest));
    GEMMTUNE_TRY(const auto listed, describe(device_, largest, candidate));
    layout_ = listed.layout;
    return {};
  }

  Status compare(const TunedEntry& row, const Deadline& deadline) {
    MComparisonRequest request;
    request.problem = row.problem;
    request.against_library = true;
    for (const BucketFinalist& one : finalists_) request.kernels.push_back(one.kernel);
    for (const TunedEntry& other : rows_)
      if (std::find(request.kernels.begin(), request.kernels.end(), other.kernel_name) ==
          request.kernels.end())
        request.kernels.push_back(
            other.kernel_name);  // regrets are against it, although it cannot have the bucket
    request.layout = layout_;
    request.policy = policy_;
    GEMMTUNE_TRY(const auto comparison, compare_kernels(device_, evaluator_, request, deadline));
    std::vector<BucketFinalist> left;
    for (BucketFinalist one : finalists_) {
      const auto regret = regret_of(comparison, one.kernel);
      if (!regret) continue;
      one.regret += *regret;
      left.push_back(std::move(one));
    }
    finalists_ = std::move(left);
    return {};
  }

  bool is_right_where_not_compared(const std::string& kernel) {
    const auto rest = rows_.subspan(compared_);
    return std::ranges::all_of(rest, [&](const TunedEntry& row) {
      return row.kernel_name == kernel || verify(kernel, row.problem) == OutcomeKind::ok;
    });
  }

  const Device& device_;
  Evaluator& evaluator_;
  const std::span<const TunedEntry> rows_;
  const BucketEnds ends_;
  const Policy& policy_;
  std::vector<BucketFinalist> finalists_;  // of the largest M first
  WeightLayout layout_ = WeightLayout::plain;
  std::size_t compared_ = 0;  // of the rows
};

}  // namespace

Result<BucketChoice> choose_for_bucket(const Device& device, Evaluator& evaluator,
                                       std::span<const TunedEntry> rows, const BucketEnds& ends,
                                       const Policy& policy, const Deadline& deadline) {
  return BucketContest(device, evaluator, rows, ends, policy).decide(deadline);
}

}  // namespace gemmtune
