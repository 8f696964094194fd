// What a running `tune --m-range` shows: how much of the M axis is settled, for nobody knows how many M that
// takes; and, on the way, the profile file.
#pragma once

#include <chrono>
#include <string>

#include "cli/shared/console.h"
#include "cli/tune/profile_file.h"
#include "tuning/m_range_tuner.h"

namespace gemmtune::cli {

class RangeProgress final : public MRangeObserver, public TuneObserver {
 public:
  /// `profile` may be null. All must outlive this.
  RangeProgress(Console& console, ProfileFile* profile, bool verbose)
      : console_(console), profile_(profile), verbose_(verbose) {}

  void question(const MRangeMoment& moment) override;
  void group_done(std::size_t group, std::size_t groups, const MRangeReport& report) override;
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t index, const Trial& trial, std::int64_t candidates_so_far) override;
  void problem_done(std::size_t index, const ProblemReport& report) override;

 private:
  void show();

  Console& console_;
  ProfileFile* profile_;
  bool verbose_;
  MRangeMoment moment_;
  std::int64_t candidates_ = 0;
  std::chrono::steady_clock::time_point shown_at_{};
  int said_tenths_ = 0;  // of the axis, where lines are plain
};

/// "45 % of the M axis settled, 16 M searched, about 2 min left": the rest of this group at the rate so far;
/// no time before a tenth of the axis was settled by questions between the first M.
std::string progress_text(const MRangeMoment& moment);

}  // namespace gemmtune::cli
