// One weight over the M axis: a planner's questions answered on a device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tuning/layout_group.h"
#include "tuning/m_range_comparison.h"
#include "tuning/m_range_tuner.h"
#include "tuning/problem_tuner.h"
#include "tuning/transfer.h"

namespace gemmtune {

/// What a group tells while it is at work; any may be called often.
struct MGroupEvents {
  std::function<void(const MRangeMoment&)> question;
  std::function<void(const Trial&)> trial;
  std::function<void(const ShapeRow&)> search_begins;
  std::function<void(ProblemReport&&)> search_done;
  /// Rows that may be published now, ascending in M; those that were given before are left out.
  std::function<Status(std::vector<TunedEntry>&&, double noise_floor)> publish;
};

struct MGroupTask {
  ShapeRow shape;                                // M is not asked
  std::optional<WeightLayout> layout{};          // decided before
  std::map<std::int64_t, std::int64_t> calls{};  // by M, of the shapes: for the choice of a layout
  std::set<std::int64_t> kept_ms{};              // M with a row that rows of one M do not replace
  std::string environment;                       // hash
};

class MRangeGroup {
 public:
  /// All must outlive this; request.m_range is set.
  MRangeGroup(const Device& device, Evaluator& evaluator, const TuneRequest& request, MGroupTask task,
              MGroupEvents events);

  /// Until the axis is settled, the deadline is over or the request's `stop` says so. An error is one of
  /// publishing.
  Status run(const Deadline& deadline);
  MRangeReport take_report() { return std::move(report_); }

 private:
  struct Search {
    std::vector<LayoutResult> layouts;
    ProblemState failure = ProblemState::failed;
    std::string reason;
  };

  Problem problem_at(std::int64_t m) const;
  bool must_stop(const Deadline& deadline) const;
  bool stopped() const { return request_.m_range->stop && request_.m_range->stop(); }
  void say(const MQuestion& question);
  /// False where it was interrupted: then nothing is known.
  bool search(std::int64_t m, const Deadline& deadline);
  bool choose_layout(const Deadline& deadline);
  bool answer(const MQuestion& question, const Deadline& deadline);
  bool answer_search(const MQuestion& question, const Deadline& deadline);
  bool answer_comparison(const MQuestion& question, const Deadline& deadline);
  bool answer_check(const MQuestion& question);
  const Settled* settled_at(std::int64_t m) const;
  std::optional<TunedEntry> row_of(const MInterval& interval) const;
  Status publish(bool complete);
  void finish(bool complete);

  const Device& device_;
  Evaluator& evaluator_;
  const TuneRequest& request_;
  MGroupTask task_;
  MGroupEvents events_;
  MRangePlanner planner_;
  std::map<std::int64_t, Search> searches_;
  Transfer transfer_;  // what won at other M goes first
  std::map<std::int64_t, std::map<std::string, Settled>> compared_;
  std::set<std::tuple<std::int64_t, std::int64_t, std::string>> published_;
  std::vector<double> noise_floors_;
  SecondsClock clock_;
  double begin_;
  double settling_begin_ = 0;
  MRangeReport report_;
};

}  // namespace gemmtune
