#include "tuning/m_range_planner.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "select/paired_comparison.h"
#include "tuned/table.h"

// A segment lies between two neighbouring points, M at which kernels were compared. A kernel answers it where
// it fits at both ends and at a mid-point; the mid-point of [a, b] is √(ab), which is rarely a multiple of a
// step. Kernels that round M up to a tile waste most just above a multiple of it, so where a is a multiple of
// the step they must fit at a + 1 before. Where no kernel fits at both ends, the boundary is looked for among
// multiples of the step, and within one step M by M.

namespace gemmtune {
namespace {

constexpr std::size_t max_challengers = 7;  // beside the default: 8 in a round
constexpr std::size_t max_winners = 5;      // of other M, among the challengers
constexpr std::size_t max_rivals = 2;       // of each side of a boundary
constexpr std::size_t max_shared = 4;       // of the kernels that fit at both ends

template <typename Set>
Set intersection(const Set& a, const Set& b) {
  Set both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

double log_of_m(std::int64_t m) { return std::log(static_cast<double>(m)); }

std::int64_t geometric_mean(std::int64_t a, std::int64_t b) {
  const auto mean = std::llround(std::sqrt(static_cast<double>(a) * static_cast<double>(b)));
  return std::clamp<std::int64_t>(mean, a + 1, b - 1);
}

/// Where kernels that fit at a and b > a + 1 are verified.
std::int64_t verifying_probe(std::int64_t a, std::int64_t b) {
  const std::int64_t step = m_step(b);
  return step > 1 && a % step == 0 ? a + 1 : geometric_mean(a, b);
}

/// Where to look for the boundary between a and b > a + 1.
std::int64_t boundary_probe(std::int64_t a, std::int64_t b) {
  const std::int64_t step = m_step(b);
  const std::int64_t lowest = (a / step + 1) * step;  // multiples strictly between
  const std::int64_t highest = (b - 1) / step * step;
  if (lowest <= highest) return std::clamp(geometric_mean(a, b) / step * step, lowest, highest);
  // Within one step the upper kernel usually reaches down to its lower end.
  return a % step == 0 ? a + 1 : a + (b - a) / 2;
}

void add_kernel(std::vector<std::string>& list, const std::string& kernel, std::size_t limit) {
  if (kernel.empty() || list.size() >= limit) return;
  if (std::find(list.begin(), list.end(), kernel) == list.end()) list.push_back(kernel);
}

}  // namespace

std::vector<std::int64_t> first_ms(const MRange& range) {
  std::vector<std::int64_t> list{range.first};
  for (std::int64_t power = 1; power < range.last; power *= 2) {
    if (power > range.first) list.push_back(power);
  }
  if (range.last > range.first) list.push_back(range.last);
  return list;
}

std::int64_t m_step(std::int64_t m) { return m <= 16 ? 1 : fine_step(m); }

MRangePlanner::MRangePlanner(MRange range, double regret) : regret_(regret) {
  for (const std::int64_t m : first_ms(range)) points_[m].needs_tuning = true;
}

MRangePlanner::Kernels MRangePlanner::fitting(std::int64_t m) const {
  Kernels kernels;
  for (const auto& [kernel, regret] : points_.at(m).fits) kernels.insert(kernel);
  return kernels;
}

bool MRangePlanner::ran_nothing(std::int64_t m) const {
  const Point& point = points_.at(m);
  return point.tuned && point.compared && point.fits.empty();
}

MRangePlanner::Kernels MRangePlanner::verified(std::int64_t a, std::int64_t b) const {
  Kernels all = intersection(fitting(a), fitting(b));
  if (b - a <= std::max<std::int64_t>(1, m_step(b) / 2)) return all;
  const auto half = halves_.find({a, b});
  if (half == halves_.end()) return {};
  for (const std::int64_t m : half->second) all = intersection(all, fitting(m));
  return all;
}

bool MRangePlanner::is_settled(std::int64_t a, std::int64_t b) const {
  if (!points_.at(a).compared || !points_.at(b).compared) return false;
  if (b - a == 1 || (ran_nothing(a) && ran_nothing(b))) return true;
  return !verified(a, b).empty();
}

std::vector<std::string> MRangePlanner::best_fitting(std::int64_t m) const {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [kernel, regret] : points_.at(m).fits) sorted.emplace_back(regret, kernel);
  std::ranges::sort(sorted);
  std::vector<std::string> kernels;
  for (auto& [regret, kernel] : sorted) kernels.push_back(std::move(kernel));
  return kernels;
}

/// Who is compared at a tuned M: its own, then the winners of the nearest tuned M, then who came close there.
std::vector<std::string> MRangePlanner::challengers(std::int64_t m) const {
  std::vector<std::pair<double, const Point*>> nearest;
  for (const auto& [other, point] : points_) {
    if (!point.winner.empty()) nearest.emplace_back(std::fabs(log_of_m(other) - log_of_m(m)), &point);
  }
  std::ranges::stable_sort(nearest, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> list;
  for (const auto& [distance, point] : nearest) add_kernel(list, point->winner, max_winners);
  for (const auto& [distance, point] : nearest) {
    for (const std::string& kernel : point->runners_up) add_kernel(list, kernel, max_challengers);
  }
  std::erase_if(list, [&](const std::string& kernel) { return wrong_.contains({m, kernel}); });
  return list;
}

/// Kernels that fit at `other` and were never compared at `m`, with those that fit there: before a boundary
/// is looked for between the two.
std::optional<MQuestion> MRangePlanner::missing_comparison(std::int64_t m, std::int64_t other) const {
  const Point& point = points_.at(m);
  if (point.tuned && point.winner.empty()) return std::nullopt;
  std::vector<std::string> missing;
  for (const std::string& kernel : best_fitting(other)) {
    if (!point.measured.contains(kernel)) add_kernel(missing, kernel, max_rivals);
  }
  if (missing.empty()) return std::nullopt;
  MQuestion question{MQuestion::Kind::compare, m, {}, 0};
  for (const std::string& kernel : best_fitting(m))
    add_kernel(question.kernels, kernel, max_challengers - missing.size());
  for (const std::string& kernel : missing) add_kernel(question.kernels, kernel, max_challengers);
  return question;
}

MQuestion MRangePlanner::boundary_question(std::int64_t a, std::int64_t b) const {
  if (auto question = missing_comparison(a, b)) return *question;
  if (auto question = missing_comparison(b, a)) return *question;
  MQuestion question{MQuestion::Kind::compare, boundary_probe(a, b), {}, 0};
  for (const std::string& kernel : best_fitting(a)) add_kernel(question.kernels, kernel, max_rivals);
  const std::size_t limit = question.kernels.size() + max_rivals;
  for (const std::string& kernel : best_fitting(b)) add_kernel(question.kernels, kernel, limit);
  return question;
}

MQuestion MRangePlanner::verifying_question(std::int64_t a, std::int64_t b, const Kernels& both) const {
  MQuestion question{MQuestion::Kind::compare, verifying_probe(a, b), {}, 0};
  for (const std::int64_t m : {a, b}) {
    for (const std::string& kernel : best_fitting(m)) {
      if (both.contains(kernel)) add_kernel(question.kernels, kernel, max_shared);
    }
  }
  for (const std::string& kernel : challengers(question.m))
    add_kernel(question.kernels, kernel, max_challengers);
  return question;
}

MQuestion MRangePlanner::next() const {
  for (const auto& [m, point] : points_) {
    if (point.needs_tuning && !point.tuned) return {MQuestion::Kind::tune, m, {}, 0};
  }
  for (const auto& [m, point] : points_) {
    if (!point.compared) return {MQuestion::Kind::compare, m, challengers(m), 0};
  }
  const Cover found = cover();
  for (const MInterval& interval : found.closed) {
    if (!is_checked(interval))
      return {MQuestion::Kind::check, interval.last, {interval.kernel}, interval.first};
  }
  if (!found.unsettled) return {};
  const auto [a, b] = *found.unsettled;
  const Kernels both = intersection(fitting(a), fitting(b));
  return both.empty() ? boundary_question(a, b) : verifying_question(a, b, both);
}

void MRangePlanner::tuned(std::int64_t m, const std::string& winner, std::vector<std::string> runners_up) {
  Point& point = points_[m];
  point.tuned = true;
  point.winner = wrong_.contains({m, winner}) ? std::string() : winner;
  point.runners_up = std::move(runners_up);
  point.compared = point.winner.empty();  // there is nobody to compare
  if (point.winner.empty()) {
    point.fits.clear();
  } else {
    point.fits[point.winner] = 0;
  }
}

/// A point was put between two others: did it verify what they have in common, or is a search needed there?
void MRangePlanner::note_inner(std::int64_t m) {
  const auto at = points_.find(m);
  if (at == points_.begin() || std::next(at) == points_.end()) return;
  const std::int64_t a = std::prev(at)->first;
  const std::int64_t b = std::next(at)->first;
  const Kernels here = fitting(m);
  const Kernels both = intersection(fitting(a), fitting(b));
  if (both.empty()) {
    at->second.needs_tuning =
        intersection(fitting(a), here).empty() && intersection(fitting(b), here).empty();
  } else {
    at->second.needs_tuning = intersection(both, here).empty();
    const bool middle = m == geometric_mean(a, b);
    if (middle && !at->second.needs_tuning) halves_[{a, m}] = halves_[{m, b}] = {a, m, b};
  }
}

void MRangePlanner::compared(const MQuestion& question, const std::vector<MRegret>& regrets,
                             double noise_floor) {
  const std::int64_t m = question.m;
  const bool is_new = !points_.contains(m);
  Point& point = points_[m];
  point.compared = true;
  point.fits.clear();
  point.measured.insert(question.kernels.begin(), question.kernels.end());
  const double bound = effective_band(regret_, noise_floor);
  for (const MRegret& kernel : regrets) {
    point.measured.insert(kernel.kernel);
    const bool fits = kernel.may_answer && kernel.regret <= bound;
    if (fits && !wrong_.contains({m, kernel.kernel})) point.fits[kernel.kernel] = kernel.regret;
  }
  if (is_new) note_inner(m);
}

void MRangePlanner::checked(const MQuestion& question, std::optional<std::int64_t> wrong_at) {
  const std::string& kernel = question.kernels.front();
  if (!wrong_at) {
    checked_.emplace(question.m_from, question.m, kernel);
    return;
  }
  // An M outside of the interval lands on the row by padding: then the row cannot have the kernel.
  const bool inside = *wrong_at >= question.m_from && *wrong_at <= question.m;
  const std::int64_t m = inside ? *wrong_at : question.m;
  wrong_.emplace(m, kernel);
  Point& point = points_[m];
  point.fits.erase(kernel);
  if (point.winner == kernel) point.winner.clear();
  point.needs_tuning = true;
  point.compared = false;
}

bool MRangePlanner::is_checked(const MInterval& interval) const {
  if (checked_.contains({interval.first, interval.last, interval.kernel})) return true;
  // The search itself has checked its winner's row.
  return interval.first == interval.last && points_.at(interval.last).winner == interval.kernel;
}

/// Joins segments from left to right, each interval as long as one kernel answers all of it.
class MRangePlanner::CoverBuilder {
 public:
  explicit CoverBuilder(const MRangePlanner& planner) : planner_(planner) {}

  Cover build() {
    auto at = planner_.points_.begin();
    if (!at->second.compared) return std::move(cover_);
    begin(at->first, at->first, planner_.fitting(at->first));
    for (auto next = std::next(at); next != planner_.points_.end(); at = next++) {
      if (!planner_.is_settled(at->first, next->first)) {
        cover_.unsettled = Bounds{at->first, next->first};
        return std::move(cover_);
      }
      extend(at->first, next->first);
    }
    close(at->first);
    return std::move(cover_);
  }

 private:
  void begin(std::int64_t first, std::int64_t from_point, Kernels kernels) {
    first_ = first;
    from_point_ = from_point;
    kernels_ = std::move(kernels);
  }
  void extend(std::int64_t a, std::int64_t b) {
    const Kernels segment = planner_.verified(a, b);
    Kernels both = intersection(kernels_, segment);
    if (!both.empty()) {
      kernels_ = std::move(both);
      return;
    }
    close(a);
    if (segment.empty()) {
      begin(b, b, planner_.fitting(b));
    } else {
      begin(a + 1, a, segment);
    }
  }
  /// With the best of the kernels that answer all of it; nothing where none runs.
  void close(std::int64_t last) {
    std::optional<MInterval> best;
    for (const std::string& kernel : kernels_) {
      MInterval interval{first_, last, kernel, 0};
      const auto end = planner_.points_.upper_bound(last);
      for (auto at = planner_.points_.find(from_point_); at != end; ++at) {
        interval.regret = std::max(interval.regret, at->second.fits.at(kernel));
      }
      if (!best || interval.regret < best->regret) best = interval;
    }
    if (best) cover_.closed.push_back(std::move(*best));
  }

  const MRangePlanner& planner_;
  Cover cover_;
  std::int64_t first_ = 0;
  std::int64_t from_point_ = 0;  // the point at or next below `first_`, where the kernels fit too
  Kernels kernels_;
};

MRangePlanner::Cover MRangePlanner::cover() const { return CoverBuilder(*this).build(); }

std::vector<MInterval> MRangePlanner::intervals() const {
  std::vector<MInterval> list;
  std::int64_t reached = 0;
  for (const MInterval& interval : cover().closed) {
    if (!is_checked(interval)) break;
    list.push_back(interval);
    reached = interval.last;
  }
  for (const auto& [m, point] : points_) {
    const auto fits = point.fits.find(point.winner);
    if (m > reached && fits != point.fits.end()) list.push_back({m, m, point.winner, fits->second});
  }
  return list;
}

double MRangePlanner::settled_share() const {
  if (points_.size() == 1) return points_.begin()->second.compared ? 1 : 0;
  double settled = 0;
  double all = 0;
  for (auto at = points_.begin(); std::next(at) != points_.end(); ++at) {
    const std::int64_t a = at->first;
    const std::int64_t b = std::next(at)->first;
    all += log_of_m(b) - log_of_m(a);
    if (is_settled(a, b)) settled += log_of_m(b) - log_of_m(a);
  }
  return settled / all;
}

std::size_t MRangePlanner::tuned_count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(points_, [](const auto& point) { return point.second.tuned; }));
}

}  // namespace gemmtune
