#include "cli/tune/range_progress.h"

#include <fmt/format.h>

#include "cli/tune/range_report.h"
#include "cli/tune/tune_report.h"

namespace gemmtune::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view doing(MQuestion::Kind kind) {
  switch (kind) {
    case MQuestion::Kind::tune:
      return "searching";
    case MQuestion::Kind::compare:
      return "comparing";
    default:
      return "checking";
  }
}

}  // namespace

std::string progress_text(const MRangeMoment& moment) {
  if (moment.tuned < moment.first_ms) {
    std::string text = fmt::format("{} of the first {} M searched", moment.tuned, moment.first_ms);
    if (moment.tuned > 0) {
      const double each = moment.group_seconds / static_cast<double>(moment.tuned);
      text +=
          fmt::format(", {} for these", duration(each * static_cast<double>(moment.first_ms - moment.tuned)));
    }
    return text;
  }
  std::string text =
      fmt::format("{:.0f} % of the M axis settled, {} M searched", 100 * moment.settled_share, moment.tuned);
  const double spent = moment.group_seconds - moment.settling_begin;
  if (moment.settled_share >= 0.1 && moment.settled_share < 1 && spent > 0) {
    text +=
        fmt::format(", about {} left", duration(spent * (1 - moment.settled_share) / moment.settled_share));
  }
  return text;
}

void RangeProgress::question(const MRangeMoment& moment) {
  if (moment.group != moment_.group) said_tenths_ = 0;
  moment_ = moment;
  show();
  if (verbose_) {
    console_.line(fmt::format("  {} {}", doing(moment.kind), short_name(moment.problem)));
  }
  const int tenths = static_cast<int>(10 * moment.settled_share);
  if (console_.is_live() || verbose_ || tenths <= said_tenths_) return;
  said_tenths_ = tenths;
  console_.line(fmt::format("[{}/{}] {}: {}", moment.group + 1, moment.groups, weight_text(moment.problem),
                            progress_text(moment)));
}

void RangeProgress::show() {
  shown_at_ = Clock::now();
  if (!console_.is_live()) return;
  console_.live_line(fmt::format("[{}/{}] {}, {} M = {}: {}", moment_.group + 1, moment_.groups,
                                 weight_text(moment_.problem), doing(moment_.kind), moment_.problem.m,
                                 progress_text(moment_)));
}

void RangeProgress::candidate_done(std::size_t, const Trial&, std::int64_t candidates_so_far) {
  candidates_ = candidates_so_far;
  if (Clock::now() - shown_at_ > std::chrono::milliseconds(100)) show();
}

void RangeProgress::problem_done(std::size_t, const ProblemReport& report) {
  console_.clear_live_line();
  if (profile_ != nullptr && !report.trials.empty()) {
    if (const Status status = profile_->append(report); !status.ok()) {
      console_.urgent_line(fmt::format("gemmtune tune: -o2: {}", status.message()));
      profile_ = nullptr;  // said once
    }
  }
  if (verbose_) console_.line(fmt::format("  {}: {}", shape_text(report.shape), result_text(report)));
}

void RangeProgress::group_done(std::size_t group, std::size_t groups, const MRangeReport& report) {
  console_.clear_live_line();
  if (report.state == ProblemState::skipped_done && !verbose_) return;
  console_.line(fmt::format("[{}/{}] {}: {}", group + 1, groups, weight_text(report.shape.problem),
                            group_text(report)));
}

}  // namespace gemmtune::cli
