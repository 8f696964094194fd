// Parts of the reports of `tune` that other commands have too.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "candidates/erratum.h"
#include "cli/tune/tune_options.h"
#include "formats/json.h"
#include "measure/statistics.h"
#include "tuned/entry.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

template <typename Report>
std::size_t count_of(const std::vector<Report>& reports, ProblemState state) {
  return static_cast<std::size_t>(
      std::ranges::count_if(reports, [&](const Report& report) { return report.state == state; }));
}

struct StateWords {
  ProblemState state;
  std::string_view words;
  bool repeats = false;  // ItemReport::repeats
};

/// "; 2 rows could not be read; 512 candidates": the end of a line of counts.
std::string rest_of_counts(const ShapeList& shapes, std::int64_t candidates);

/// ", 3 failed, 1 not reached" and rest_of_counts. States that no report has are not named.
template <typename Report>
std::string rare_counts(const std::vector<Report>& reports, std::initializer_list<StateWords> rare,
                        const ShapeList& shapes, std::int64_t candidates) {
  std::string text;
  for (const StateWords& one : rare) {
    const auto count = std::ranges::count_if(reports, [&](const Report& report) {
      return report.state == one.state && report.repeats == one.repeats;
    });
    if (count > 0) text += fmt::format(", {} {}", count, one.words);
  }
  return text + rest_of_counts(shapes, candidates);
}

/// A line for each family none of whose kernels ran, over all shapes, though some were tried: what is wrong
/// then is the family, its compiler or its library, and the table lacks what it would have won. "family
/// skinny: none of 212 kernels ran (200 build_failed, 12 wrong); the first, skinny_r1_…: …"
std::vector<std::string> failed_families(const std::vector<ItemReport>& reports);

/// "1.234x", or "-" where the default kernel was not timed.
std::string speedup_text(const std::optional<double>& speedup);
/// "1.201 to 1.260", the 95 % interval of the speed-up, or "-".
std::string interval_text(const TunedEntry& row);
/// Number of other kernels that may be as fast, or "-" if not known.
std::string ties_text(const TunedEntry& row);
/// As a shell takes it for one word.
std::string shell_word(std::string_view word);
/// The 95 % interval of the geometric mean of the rows' speed-ups: of their own intervals, as of measurements that do not
/// depend on each other. Rows that keep their default, whose ratio is 1 by definition, widen nothing. nullopt where a
/// speed-up has no interval.
std::optional<Interval> gain_interval(std::span<const TunedEntry> rows);
/// "gemmtune check --problem '…' --kernel NAME": runs the kernel once at that size and says whether it is right.
std::string check_command(const Problem& problem, std::string_view kernel);
/// "gemmtune tune --problem '…' --all -o FILE": measures one row anew.
std::string tune_command(const Problem& problem, const std::string& output);
OrderedJson erratum_json(const Erratum& erratum);

/// The verdict and, where the row's kernel was compared with the default, the speed-up: "win 1.420x". That
/// other kernels are as fast takes nothing from a win.
std::string verdict_text(const TunedEntry& row);
OrderedJson number_or_null(const std::optional<double>& value);
OrderedJson device_json(const DeviceInfo& device);
/// Adds what a row of a tuned file holds beside its problem.
void add_row(const TunedEntry& row, OrderedJson& json);

}  // namespace gemmtune::cli
