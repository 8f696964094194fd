#include "tuned/coverage.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tuned/choice.h"

namespace gemmtune {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The rates that the rows of one operation achieve, TFLOP/s.
class MedianRates {
 public:
  MedianRates(const TunedTable& table, const std::string& gfx, int cu_num)
      : table_(table), gfx_(gfx), cu_num_(cu_num) {}
  double of(OperationForm operation) {
    const auto [at, made] = rates_.try_emplace(operation, 0.0);
    if (made) at->second = compute(operation);
    return at->second;
  }

 private:
  double compute(OperationForm operation) const {
    std::vector<double> here;
    std::vector<double> anywhere;
    for (const TunedEntry& row : table_.entries()) {
      const bool is_timed = may_be_chosen(row) && valid_time(row.us);
      if (form_of(row.problem) != operation || !is_timed || !is_of_look_up(row)) continue;
      const double rate = flops(row.problem) / (row.us * 1e6);
      anywhere.push_back(rate);
      if (row.gfx == gfx_ && row.cu_num == cu_num_) here.push_back(rate);
    }
    return median(here.empty() ? std::move(anywhere) : std::move(here));
  }

  const TunedTable& table_;
  const std::string& gfx_;
  int cu_num_;
  std::map<OperationForm, double> rates_;
};

void add_served(LevelShare& share, const ServedShape& served) {
  const auto calls = static_cast<double>(served.shape->calls);
  ++share.shapes;
  share.calls += calls;
  share.us += calls * served.us;
}

}  // namespace

Coverage cover(const TunedTable& table, const std::string& gfx, int cu_num,
               std::span<const WorkloadShape> workload, bool fewer_threads) {
  Coverage coverage;
  MedianRates rates(table, gfx, cu_num);
  LookupKey key{gfx, cu_num, {}};
  for (const WorkloadShape& shape : workload) {
    key.problem = shape.problem;
    ServedShape served{&shape};
    const auto hits = table.lookup(key);
    std::optional<LookupHit> hit;
    if (!hits.empty()) {
      hit = hits.front();
    } else if (fewer_threads) {
      hit = table.lookup_fewer_threads(key);
    }
    if (hit) {
      served.match = hit->match;
      served.row = hit->entry;
    }
    if (served.row != nullptr && valid_time(served.row->us)) {
      served.us = served.row->us;
    } else if (const double rate = rates.of(form_of(shape.problem)); rate > 0) {
      served.us = flops(shape.problem) / (rate * 1e6);
      served.estimated = true;
    }
    add_served(coverage.levels[static_cast<std::size_t>(served.match)], served);
    add_served(coverage.total, served);
    coverage.shapes.push_back(served);
  }
  if (!workload.empty()) coverage.median_tflops = rates.of(form_of(workload.front().problem));
  return coverage;
}

std::vector<const ServedShape*> worst_misses(const Coverage& coverage, std::size_t count) {
  std::vector<const ServedShape*> misses;
  for (const ServedShape& served : coverage.shapes) {
    if (served.match == Match::untuned) misses.push_back(&served);
  }
  std::ranges::stable_sort(
      misses, [](const ServedShape* a, const ServedShape* b) { return a->shape->calls > b->shape->calls; });
  if (misses.size() > count) misses.resize(count);
  return misses;
}

}  // namespace gemmtune
