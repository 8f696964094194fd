// What the search found on its way: curves, parameters, failures, errors, and the competitors of each row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"
#include "cli/report/report_tables.h"
#include "tuned/choice.h"

namespace gemmtune::cli {
namespace {

constexpr std::size_t max_competitors = 8;
constexpr std::size_t max_scattered = 20000;
/// Points of a curve: a power of two and one between each two.
constexpr std::size_t curve_points = 24;

std::vector<double> curve_grid(double last) {
  std::vector<double> grid;
  for (double step = 1; grid.size() < curve_points && (grid.empty() || grid.back() < last); step *= 2) {
    grid.push_back(step);
    if (step >= 2 && step < last) grid.push_back(step * 1.5);
  }
  return grid;
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(std::llround(share * static_cast<double>(values.size() - 1)))];
}

bool is_measured(const MeasuredCandidate& candidate) {
  return candidate.kind == OutcomeKind::ok && candidate.us.has_value();
}

/// Times of a problem in the order of trying: the best so far after each candidate that has one.
std::vector<double> best_so_far(const MeasuredProblem& problem) {
  std::vector<double> best;
  for (const MeasuredCandidate& candidate : problem.candidates) {
    if (is_measured(candidate))
      best.push_back(best.empty() ? *candidate.us : std::min(best.back(), *candidate.us));
  }
  return best;
}

ReportTable search_by_candidates(const ReportInputs& inputs) {
  ReportTable table(
      "search_by_candidates", "Best so far by candidates",
      "The fastest screening time after so many timed candidates, as a multiple of the fastest in the end.",
      {{"candidates", "candidates"},
       {"problems", "shapes"},
       {"median_ratio", "median", ReportKind::number, 3},
       {"ratio_90", "90 % are below", ReportKind::number, 3},
       {"searching", "still searching"}});
  std::vector<std::vector<double>> curves;
  std::size_t longest = 0;
  inputs.measurements.for_each([&](const auto&, const Problem&, const MeasuredProblem& problem) {
    auto curve = best_so_far(problem);
    if (curve.empty()) return;
    longest = std::max(longest, curve.size());
    curves.push_back(std::move(curve));
  });
  if (curves.empty()) return table;
  for (const double tried : curve_grid(static_cast<double>(longest))) {
    std::vector<double> ratios;
    std::size_t searching = 0;
    for (const auto& curve : curves) {
      const std::size_t at = std::min(static_cast<std::size_t>(tried), curve.size()) - 1;
      searching += curve.size() > static_cast<std::size_t>(tried) ? 1 : 0;
      ratios.push_back(curve[at] / curve.back());
    }
    table.add({tried, ratios.size(), median(ratios), quantile(ratios, 0.9), searching});
  }
  return table;
}

/// Of the journal's newest run: one whose other runs are hours apart has no common time.
ReportTable search_by_seconds(const ReportInputs& inputs) {
  ReportTable table("search_by_seconds", "Best so far by seconds",
                    "Geometric mean over the newest run's shapes of the reference kernel's time over the "
                    "best so far, by screening times; the last point is the rows', by paired rounds; "
                    "a shape that has not begun counts as 1.",
                    {{"seconds", "seconds"},
                     {"problems", "shapes begun"},
                     {"gain", "speed-up so far", ReportKind::number, 3}});
  std::vector<const MeasuredProblem*> problems;
  std::int64_t newest = 0;
  inputs.measurements.for_each([&](const auto&, const Problem&, const MeasuredProblem& problem) {
    newest = std::max(newest, problem.run);
    problems.push_back(&problem);
  });
  double first = std::numeric_limits<double>::infinity();
  double last = 0;
  for (const MeasuredProblem* problem : problems) {
    for (const MeasuredCandidate& candidate : problem->candidates) {
      if (problem->run != newest || std::isnan(candidate.second)) continue;
      first = std::min(first, candidate.second);
      last = std::max(last, candidate.second);
    }
  }
  if (newest == 0 || !std::isfinite(first)) return table;
  for (const double seconds : curve_grid(last - first)) {
    std::vector<double> gains;
    std::size_t begun = 0;
    for (const MeasuredProblem* problem : problems) {
      if (problem->run != newest || !problem->reference_us) continue;
      double best = *problem->reference_us;
      bool any = false;
      for (const MeasuredCandidate& candidate : problem->candidates) {
        if (!is_measured(candidate) || !(candidate.second - first <= seconds)) continue;
        best = std::min(best, *candidate.us);
        any = true;
      }
      begun += any ? 1 : 0;
      const double gain = *problem->reference_us / best;
      if (std::isfinite(gain) && gain > 0) gains.push_back(gain);
    }
    if (!gains.empty()) table.add({seconds, begun, geometric_mean(gains)});
  }
  // The line ends where the cards stand: at what paired rounds proved, not at single samples.
  std::vector<double> proven;
  for (const TunedFile& file : inputs.tuned.files) {
    for (const TunedEntry& row : file.entries) {
      const MeasuredProblem* const measured = inputs.measurements.find(row);
      const bool counts = measured != nullptr && measured->run == newest && may_be_chosen(row);
      if (counts && row.speedup && *row.speedup > 0 && std::isfinite(*row.speedup))
        proven.push_back(*row.speedup);
    }
  }
  if (!proven.empty()) table.add({last - first + 1, proven.size(), geometric_mean(proven)});
  return table;
}

/// A kernel's name as settings. The keys are those of this machine's family; of a family that it lacks a key is the letters
/// before a number, and a word that has none is its own key.
class Settings {
 public:
  explicit Settings(const Device* device) : device_(device) {}

  std::vector<std::pair<std::string, std::string>> of(const std::string& kernel, const Problem& problem) {
    const auto family = family_of_kernel_name(kernel);
    if (!family) return {};
    const auto [keys, made] = keys_.try_emplace(*family);
    if (made && device_ != nullptr) {
      const KernelFamily* known = device_->find_family(*family);
      if (known != nullptr && known->accepts(problem).ok()) keys->second = known->space(problem).keys();
    }
    const auto candidate = parse_kernel_name(kernel, keys->second);
    return candidate.ok() ? candidate->config.settings() : by_letters(kernel);
  }

 private:
  static std::vector<std::pair<std::string, std::string>> by_letters(const std::string& kernel) {
    std::vector<std::pair<std::string, std::string>> settings;
    const auto words = split(std::string_view(kernel), '_');
    for (std::size_t i = 2; i < words.size(); ++i) {
      const auto digit = words[i].find_first_of("0123456789");
      const bool number =
          digit != std::string_view::npos && digit > 0 && parse_integer(words[i].substr(digit));
      if (number)
        settings.emplace_back(std::string(words[i].substr(0, digit)), std::string(words[i].substr(digit)));
    }
    return settings;
  }

  const Device* device_;
  std::map<std::string, std::vector<std::string>> keys_;
};

ReportTable parameters_table(const ReportInputs& inputs) {
  ReportTable table(
      "parameters", "What each parameter is worth",
      "Time lost where a parameter is held at a value: the fastest measured kernel with it against the "
      "family's fastest of "
      "the shape, in the geometric mean over shapes. Parameters with one measured value are left out.",
      {{"family", "family", text_kind},
       {"parameter", "parameter", text_kind},
       {"value", "value", text_kind},
       {"problems", "shapes"},
       {"loss_percent", "loss %", ReportKind::number, 1},
       {"median_loss_percent", "median loss %", ReportKind::number, 1},
       {"fastest_in", "fastest in"}});
  using Value = std::tuple<std::string, std::string, std::string>;  // family, parameter, value
  std::map<Value, std::vector<double>> ratios;
  Settings settings(inputs.device);
  inputs.measurements.for_each([&](const auto&, const Problem& problem, const MeasuredProblem& measured) {
    std::map<std::string, double> of_family;
    std::map<Value, double> of_value;
    for (const MeasuredCandidate& candidate : measured.candidates) {
      const auto family = family_of_kernel_name(candidate.kernel);
      if (!is_measured(candidate) || !family) continue;
      const double us = *candidate.us;
      const auto best = of_family.try_emplace(*family, us).first;
      best->second = std::min(best->second, us);
      for (const auto& [key, value] : settings.of(candidate.kernel, problem)) {
        const auto held = of_value.try_emplace({*family, key, value}, us).first;
        held->second = std::min(held->second, us);
      }
    }
    for (const auto& [value, us] : of_value) ratios[value].push_back(us / of_family.at(std::get<0>(value)));
  });
  std::map<std::pair<std::string, std::string>, std::size_t> values;
  for (const auto& each : ratios) ++values[{std::get<0>(each.first), std::get<1>(each.first)}];
  for (const auto& [value, losses] : ratios) {
    const auto& [family, parameter, text] = value;
    if (values[{family, parameter}] < 2) continue;
    const auto fastest = std::ranges::count_if(losses, [](double ratio) { return ratio <= 1; });
    table.add({family, parameter, text, losses.size(), 100 * (geometric_mean(losses) - 1),
               100 * (median(losses) - 1), fastest});
  }
  return table;
}

/// The scatter's points: every candidate with a time, of shapes that together have at most max_scattered.
ReportTable candidates_table(const ReportInputs& inputs) {
  ReportTable table("candidates", "All candidates",
                    "Each candidate's screening time, as a multiple of the fastest of its shape too, in the "
                    "order in which they were tried; settings as key=value.",
                    {{"view", "device and operation", text_kind},
                     {"shape", "shape", text_kind},
                     {"order", "order"},
                     {"family", "family", text_kind},
                     {"us", "µs", ReportKind::number, 3},
                     {"ratio", "over the fastest", ReportKind::number, 3},
                     {"err_ratio", "error share"},
                     {"settings", "settings", text_kind},
                     {"kernel", "kernel", text_kind}});
  Settings settings(inputs.device);
  std::size_t scattered = 0;
  inputs.measurements.for_each(
      [&](const auto& device, const Problem& problem, const MeasuredProblem& measured) {
        const auto curve = best_so_far(measured);
        if (curve.empty() || scattered + curve.size() > max_scattered) return;
        scattered += curve.size();
        const std::string view =
            fmt::format("{}/{} {}", device.first, device.second, to_string(form_of(problem)));
        const std::string shape = short_name(problem);
        double order = 0;
        for (const MeasuredCandidate& candidate : measured.candidates) {
          ++order;
          if (!is_measured(candidate)) continue;
          std::string text;
          for (const auto& [key, value] : settings.of(candidate.kernel, problem))
            text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
          const std::string family = family_of_kernel_name(candidate.kernel).value_or("(other)");
          table.add({view, shape, order, family, *candidate.us, *candidate.us / curve.back(),
                     std::isfinite(candidate.err_ratio) ? ReportValue(candidate.err_ratio) : ReportValue(),
                     text, candidate.kernel});
        }
      });
  return table;
}

std::string family_or_kernel(const MeasuredCandidate& candidate) {
  return family_of_kernel_name(candidate.kernel).value_or("(other)");
}

ReportTable failures_table(const ReportInputs& inputs) {
  ReportTable table("failures", "Failures",
                    "Candidates that have no time, by family and kind; too_slow was given up, refused does "
                    "not take the shape.",
                    {{"family", "family", text_kind},
                     {"kind", "kind", text_kind},
                     {"candidates", "candidates"},
                     {"tried", "tried of the family"},
                     {"problems", "shapes"},
                     {"kernel", "the first", text_kind},
                     {"reason", "reason", text_kind}});
  struct Kind {
    std::size_t candidates = 0;
    std::size_t problems = 0;
    const MeasuredProblem* last = nullptr;
    const MeasuredCandidate* first = nullptr;
  };
  std::map<std::pair<std::string, OutcomeKind>, Kind> kinds;
  std::map<std::string, std::size_t> tried;
  inputs.measurements.for_each([&](const auto&, const Problem&, const MeasuredProblem& problem) {
    for (const MeasuredCandidate& candidate : problem.candidates) {
      const std::string family = family_or_kernel(candidate);
      ++tried[family];
      if (candidate.kind == OutcomeKind::ok) continue;
      Kind& kind = kinds[{family, candidate.kind}];
      ++kind.candidates;
      if (kind.last != &problem) ++kind.problems;
      kind.last = &problem;
      if (kind.first == nullptr) kind.first = &candidate;
    }
  });
  for (const auto& [key, kind] : kinds) {
    table.add({key.first, to_string(key.second), kind.candidates, tried[key.first], kind.problems,
               kind.first->kernel, kind.first->reason});
  }
  return table;
}

ReportTable errors_table(const ReportInputs& inputs) {
  ReportTable table(
      "errors", "Measured errors by family",
      "Of y against float64, relative to the root mean square of the reference; right candidates only.",
      {{"family", "family", text_kind},
       {"candidates", "candidates"},
       {"median_rms_error", "median rms", ReportKind::number, 5},
       {"highest_rms_error", "largest rms", ReportKind::number, 5},
       {"highest_max_error", "largest of one element", ReportKind::number, 4},
       {"highest_one_sign_error", "largest, operands of one sign", ReportKind::number, 5}});
  struct Errors {
    std::vector<double> rms;
    MeasuredError worst;
  };
  std::map<std::string, Errors> families;
  inputs.measurements.for_each([&](const auto&, const Problem&, const MeasuredProblem& problem) {
    for (const MeasuredCandidate& candidate : problem.candidates) {
      if (candidate.kind != OutcomeKind::ok || !std::isfinite(candidate.error.rms)) continue;
      Errors& errors = families[family_or_kernel(candidate)];
      errors.rms.push_back(candidate.error.rms);
      errors.worst = worst_of(errors.worst, candidate.error);
    }
  });
  for (const auto& [family, errors] : families) {
    table.add({family, errors.rms.size(), median(errors.rms), errors.worst.rms, errors.worst.max,
               errors.worst.one_sign});
  }
  return table;
}

/// One competitor of a row: paired rounds count before screening times.
struct Competitor {
  std::string_view kernel;
  double ratio = 0;
  std::optional<PairedRatio> paired;
  const MeasuredCandidate* screened = nullptr;
};

std::vector<Competitor> competitors_of(const TunedEntry& row, const MeasuredProblem& measured) {
  std::vector<Competitor> competitors;
  const auto& finalists = measured.finalists();
  std::optional<double> own;
  for (const MeasuredCandidate& candidate : measured.candidates) {
    if (candidate.kernel == row.kernel_name) own = candidate.us;
  }
  for (const MeasuredCandidate& candidate : measured.candidates) {
    if (candidate.kernel == row.kernel_name || candidate.kind != OutcomeKind::ok) continue;
    const bool finalist = std::find(finalists.begin(), finalists.end(), candidate.kernel) != finalists.end();
    Competitor competitor{candidate.kernel, 0, std::nullopt, &candidate};
    if (finalist)
      competitor.paired = measured.ratio(candidate.kernel, row.kernel_name, MeasuredProblem::Rounds::all);
    if (competitor.paired) {
      competitor.ratio = competitor.paired->median;
    } else if (own && candidate.us) {
      competitor.ratio = *candidate.us / *own;
    } else {
      continue;
    }
    competitors.push_back(competitor);
  }
  std::ranges::stable_sort(competitors, [](const Competitor& a, const Competitor& b) {
    return std::tuple(!a.paired.has_value(), a.ratio) < std::tuple(!b.paired.has_value(), b.ratio);
  });
  if (competitors.size() > max_competitors) competitors.resize(max_competitors);
  return competitors;
}

}  // namespace

ReportTable competitors_table(const ReportInputs& inputs, const std::vector<const TunedEntry*>& rows) {
  ReportTable table("competitors", "Competitors",
                    "The closest kernels of each row (its number in the rows, from 0): time as a multiple of "
                    "the row's kernel, of paired rounds with their 95 % interval, else of screening.",
                    {{"row", "row"},
                     {"kernel", "kernel", text_kind},
                     {"ratio", "ratio", ReportKind::number, 3},
                     {"low", "from", ReportKind::number, 3},
                     {"high", "to", ReportKind::number, 3},
                     {"rounds", "rounds"},
                     {"us", "screening µs", ReportKind::number, 3}});
  for (std::size_t index = 0; index < rows.size(); ++index) {
    const MeasuredProblem* measured = inputs.measurements.find(*rows[index]);
    if (measured == nullptr) continue;
    for (const Competitor& each : competitors_of(*rows[index], *measured)) {
      const auto& us = each.screened->us;
      table.add({index, each.kernel, each.ratio,
                 each.paired ? ReportValue(each.paired->interval.low) : ReportValue(),
                 each.paired ? ReportValue(each.paired->interval.high) : ReportValue(),
                 each.paired ? ReportValue(each.paired->rounds) : ReportValue(), us});
    }
  }
  return table;
}

void add_search_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables) {
  tables.push_back(search_by_candidates(inputs));
  tables.push_back(search_by_seconds(inputs));
  tables.push_back(candidates_table(inputs));
  tables.push_back(parameters_table(inputs));
  tables.push_back(failures_table(inputs));
  tables.push_back(errors_table(inputs));
}

}  // namespace gemmtune::cli
