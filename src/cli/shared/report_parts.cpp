#include "cli/shared/report_parts.h"

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
      if (family.first == nullptr) family.first = &trial;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [name, family] : families) {
    if (family.ran) continue;
    std::string kinds;
    for (const auto& [kind, count] : family.failures)
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, to_string(kind));
    lines.push_back(fmt::format("family {}: none of {} ran ({}); the first, {}: {}", name,
                                counted(family.failed, "kernel"), kinds,
                                family.first->candidate.kernel_name(), family.first->outcome.reason));
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
