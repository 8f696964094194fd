#include "tuned/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/rounding.h"
#include "tuned/compress.h"
#include "tuned/layouts.h"
#include "tuned/peaks.h"
#include "tuned/range_rows.h"

namespace gemmtune {
namespace {

/// Collects findings and names places.
class Collector {
 public:
  explicit Collector(std::span<const std::string> paths) : paths_(paths) {}
  void add(FindingKind kind, const TunedEntry& row, std::string text, std::optional<Severity> severity = {}) {
    findings_.push_back({kind, row.source, row.line, std::move(text), severity});
  }
  std::string place(const TunedEntry& row) const {
    return fmt::format("{}:{}", paths_[row.source], row.line);
  }
  std::vector<Finding> take() { return std::move(findings_); }

 private:
  std::span<const std::string> paths_;
  std::vector<Finding> findings_;
};

void check_time(const TunedEntry& row, Collector& found) {
  if (valid_time(row.us)) return;
  found.add(FindingKind::failed_time, row,
            std::isnan(row.us) ? std::string("no time") : fmt::format("a time of {} µs", row.us));
}

void check_error(const TunedEntry& row, const CheckOptions& options, Collector& found) {
  if (!is_over_tolerance(row, options.err_ratio, options.moe_err_ratio)) return;
  if (row.stages == nullptr) {
    found.add(FindingKind::over_tolerance, row,
              fmt::format("an error of {}, expected at most {}", row.err_ratio, options.err_ratio));
    return;
  }
  const double limit = options.moe_err_ratio;
  std::string text;
  if (row.stages->err1 > limit) text = fmt::format("stage 1 has an error of {:.3g}", row.stages->err1);
  if (row.stages->err2 > limit) {
    text += fmt::format("{}stage 2 has an error of {:.3g}", text.empty() ? "" : ", ", row.stages->err2);
  }
  found.add(FindingKind::over_tolerance, row, fmt::format("{}, expected at most {}", text, limit));
}

void check_rate(const TunedEntry& row, Collector& found) {
  if (!is_impossible_rate(row)) return;
  if (row.rated_share != 1) {
    found.add(FindingKind::impossible_rate, row,
              fmt::format("{} µs, but the device takes at least {:.3g} µs for the {:.3g} % of the products "
                          "that surely are its own",
                          row.us, row.rated_share * shortest_microseconds(row.gfx, row.cu_num, row.problem),
                          100 * row.rated_share));
    return;
  }
  found.add(FindingKind::impossible_rate, row,
            fmt::format("{} µs would be {:.6g} TFLOP/s and {:.6g} GB/s, the device takes at least {:.3g} µs",
                        row.us, flops(row.problem) / (row.us * 1e6), bytes(row.problem) / (row.us * 1e3),
                        shortest_microseconds(row.gfx, row.cu_num, row.problem)));
}

void check_reach(const TunedEntry& row, Collector& found) {
  std::string why = why_unreachable(row);
  if (!why.empty()) found.add(FindingKind::unreachable, row, std::move(why));
}

/// By rows of its accuracy class or a higher one: a lower class is faster because it keeps fewer bits.
void check_dominated(std::span<const TunedEntry* const> chosen, double percent, Collector& found) {
  std::map<Accuracy, const TunedEntry*> fastest;  // of the rows behind
  for (std::size_t index = chosen.size(); index-- > 0;) {
    const TunedEntry& row = *chosen[index];
    if (!may_answer(row)) continue;
    const TunedEntry* best = nullptr;
    for (auto at = fastest.lower_bound(accuracy_class(row)); at != fastest.end(); ++at) {
      if (best == nullptr || at->second->us < best->us) best = at->second;
    }
    if (best != nullptr && best->us * (1 + percent / 100) <= row.us) {
      found.add(FindingKind::dominated, row,
                fmt::format("{} µs for M = {}, but {} µs for M = {} ({})", row.us, row.problem.m, best->us,
                            best->problem.m, found.place(*best)));
    }
    const TunedEntry*& of_class = fastest[accuracy_class(row)];
    if (of_class == nullptr || row.us < of_class->us) of_class = &row;
  }
}

void check_redundant(std::span<const Rows> groups, Collector& found) {
  for (const auto& [row, answers] : redundant_rows(groups)) {
    found.add(FindingKind::redundant, *row,
              fmt::format("no look-up changes without it: M = {} answers alike ({})", answers->problem.m,
                          found.place(*answers)));
  }
}

void check_layouts(std::span<const TunedEntry* const> rows, Collector& found) {
  for (const LayoutChoice& choice : choose_layouts(rows)) {
    for (const TunedEntry* row : choice.dropped) {
      const auto layout = layout_of_kernel_name(row->kernel_name);
      found.add(FindingKind::mixed_layout, *row,
                fmt::format("wants the weight as {}, its group's other rows as {} ({})",
                            to_string(layout.value_or(WeightLayout::any)), to_string(choice.kept),
                            found.place(*choice.example)));
    }
  }
}

}  // namespace

Status check_asked(const Problem& problem) {
  Problem asked = problem;
  // AITER looks up whatever inter_dim is, and pads the packed weight itself.
  if (asked.operation == Operation::fused_moe) asked.n = round_up(asked.n, 32);
  return check(asked);
}

std::string why_unreachable(const TunedEntry& row) {
  if (!row.other_key.empty()) return {};
  if (row.cu_num < 1) return "no cu_num: it answers no device";
  if (row.gfx.find(':') != std::string::npos) {
    return fmt::format("gfx '{}': devices are asked for without features", row.gfx);
  }
  if (!is_of_look_up(row)) {
    return fmt::format("tag '{}': left out by dispatch", row.stages != nullptr ? row.stages->tag : "");
  }
  if (traits(row.problem.operation).padding == Padding::token_tiers && !row.m_from &&
      token_tier(row.problem.m) != row.problem.m) {
    return fmt::format("{} tokens are looked up as {}", row.problem.m, token_tier(row.problem.m));
  }
  // Of the M that the row may answer the smallest: a larger one may have tensors that are too large to be asked for.
  Problem asked = row.problem;
  for (const RowSpan& span : answered_spans(row)) asked.m = std::min(asked.m, span.m_from);
  return check_asked(asked).message();
}

std::vector<Duplicate> duplicate_rows(std::span<const Rows> groups) {
  std::vector<Duplicate> duplicates;
  for (const Rows& group : groups) {
    const Rows chosen = chosen_rows(group);
    auto winner = chosen.begin();
    for (const TunedEntry* row : group) {
      while ((*winner)->problem.m != row->problem.m) ++winner;
      if (row != *winner) duplicates.push_back({row, *winner});
    }
  }
  return duplicates;
}

std::vector<Finding> check_rows(std::span<const TunedEntry* const> rows, std::span<const std::string> paths,
                                const CheckOptions& options) {
  Collector found(paths);
  for (const TunedEntry* row : rows) {
    check_time(*row, found);
    check_error(*row, options, found);
    check_rate(*row, found);
    check_reach(*row, found);
  }
  const std::vector<Rows> groups = rows_by_group(rows);
  for (const auto& [loser, winner] : duplicate_rows(groups)) {
    const std::string_view why = why_never_chosen(*loser);
    const bool other_tag =
        loser->stages != nullptr && winner->stages != nullptr && loser->stages->tag != winner->stages->tag;
    // AITER's readers of dense tables need one row a key; of mixtures they take the first and say so.
    const bool ends_reader = loser->other_key.empty() && !is_mixture(loser->problem);
    found.add(FindingKind::duplicate_key, *loser,
              other_tag ? fmt::format("tag '{}' of the same key as {}, whose tag '{}' comes first",
                                      loser->stages->tag, found.place(*winner), winner->stages->tag)
                        : fmt::format("{}{}, but {} for the same key at {}", row_time_text(loser->us),
                                      why.empty() ? "" : fmt::format(" ({})", why), row_time_text(winner->us),
                                      found.place(*winner)),
              ends_reader ? std::nullopt : std::optional(Severity::warning));
  }
  for (const Rows& group : groups) {
    check_dominated(chosen_rows(group), options.dominated_percent, found);
  }
  check_redundant(groups, found);
  check_layouts(rows, found);
  return found.take();
}

}  // namespace gemmtune
