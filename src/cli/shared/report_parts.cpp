#include "cli/shared/report_parts.h"

#include <cmath>
#include <map>

#include "cli/shared/console.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

}  // namespace

std::string rest_of_counts(const ShapeList& shapes, std::int64_t candidates) {
  std::string text;
  if (!shapes.diagnostics.empty())
    text = fmt::format("; {} could not be read", counted(shapes.diagnostics.size(), "row"));
  return fmt::format("{}; {}\n", text, counted(static_cast<std::size_t>(candidates), "candidate"));
}

std::vector<std::string> failed_families(const std::vector<ItemReport>& reports) {
  struct Family {
    bool ran = false;
    std::size_t failed = 0;
    std::map<OutcomeKind, std::size_t> failures;
    const Trial* first = nullptr;
    const Problem* problem = nullptr;  // of the first
  };
  std::map<std::string, Family> families;
  for (const ItemReport& report : reports) {
    for (const Trial& trial : report.trials) {
      const OutcomeKind kind = trial.outcome.kind;
      if (kind == OutcomeKind::refused) continue;
      Family& family = families[trial.candidate.family];
      if (kind == OutcomeKind::ok || kind == OutcomeKind::too_slow) {
        family.ran = true;
        continue;
      }
      ++family.failed;
      ++family.failures[kind];
      if (family.first != nullptr) continue;
      family.first = &trial;
      family.problem = &report.shape.problem;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [name, family] : families) {
    if (family.ran) continue;
    std::string kinds;
    for (const auto& [kind, count] : family.failures)
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, to_string(kind));
    lines.push_back(fmt::format("family {}: none of {} ran ({}); the first, {}: {}; repeat: {}", name,
                                counted(family.failed, "kernel"), kinds,
                                family.first->candidate.kernel_name(), family.first->outcome.reason,
                                check_command(*family.problem, family.first->candidate.kernel_name())));
  }
  return lines;
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::string speedup_text(const std::optional<double>& speedup) {
  return speedup ? fmt::format("{:.3f}x", *speedup) : "-";
}

std::string interval_text(const TunedEntry& row) {
  if (!row.speedup_low || !row.speedup_high) return "-";
  return fmt::format("{:.3f} to {:.3f}", *row.speedup_low, *row.speedup_high);
}

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) return std::string(word);
  std::string text = "'";
  for (const char letter : word) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

std::optional<Interval> gain_interval(std::span<const TunedEntry> rows) {
  double sum = 0;
  double below = 0;  // squares, in logarithms
  double above = 0;
  std::size_t count = 0;
  for (const TunedEntry& row : rows) {
    if (!row.speedup || *row.speedup <= 0) continue;
    ++count;
    sum += std::log(*row.speedup);
    if (row.kernel_name == row.default_kernel && *row.speedup == 1) continue;
    if (!row.speedup_low || !row.speedup_high || *row.speedup_low <= 0) return std::nullopt;
    below += std::pow(std::log(*row.speedup / *row.speedup_low), 2);
    above += std::pow(std::log(*row.speedup_high / *row.speedup), 2);
  }
  if (count == 0) return std::nullopt;
  const double mean = sum / static_cast<double>(count);
  const auto part = [&](double squares) { return std::sqrt(squares) / static_cast<double>(count); };
  return Interval{std::exp(mean - part(below)), std::exp(mean + part(above))};
}

std::string check_command(const Problem& problem, std::string_view kernel) {
  return fmt::format("gemmtune check --problem '{}' --kernel {}", print(problem), shell_word(kernel));
}

std::string tune_command(const Problem& problem, const std::string& output) {
  return fmt::format("gemmtune tune --problem '{}' --all -o {}", print(problem), shell_word(output));
}

std::string ties_text(const TunedEntry& row) { return row.ties ? std::to_string(*row.ties) : "-"; }

std::string verdict_text(const TunedEntry& row) {
  const bool compared =
      row.verdict == Verdict::win || row.verdict == Verdict::undecided || row.verdict == Verdict::energy;
  std::string text(to_string(row.verdict));
  return compared && row.speedup ? fmt::format("{} {}", text, speedup_text(row.speedup)) : text;
}

Json erratum_json(const Erratum& erratum) {
  return {{"name", erratum.name},
          {"family", erratum.family},
          {"condition", erratum.condition.text()},
          {"effect", to_string(erratum.effect)},
          {"what", erratum.what},
          {"found", erratum.found},
          {"repro", erratum.repro}};
}

Json device_json(const DeviceInfo& device) {
  return {{"name", device.name}, {"model", device.model}, {"gfx", device.gfx}, {"cu_num", device.cu_num}};
}

void add_row(const TunedEntry& row, Json& json) {
  json["libtype"] = row.libtype;
  json["kernelName"] = row.kernel_name;
  json["us"] = row.us;
  json["spread"] = number_or_null(row.spread);
  json["default_us"] = number_or_null(row.default_us);
  json["default_kernel"] = row.default_kernel;
  json["speedup"] = number_or_null(row.speedup);
  json["speedup_low"] = number_or_null(row.speedup_low);
  json["speedup_high"] = number_or_null(row.speedup_high);
  json["verdict"] = to_string(row.verdict);
  json["err_ratio"] = row.err_ratio;
  json["accuracy"] = row.accuracy ? Json(to_string(*row.accuracy)) : Json();
  json["env"] = row.env;
}

}  // namespace gemmtune::cli
