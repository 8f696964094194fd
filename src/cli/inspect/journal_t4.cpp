#include "cli/inspect/journal_t4.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "candidates/config.h"
#include "formats/json.h"
#include "measure/statistics.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// T4's word for an outcome; a candidate that was too slow to be verified is none of its failures.
std::string_view invalidity_of(std::string_view kind) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> words{{{"refused", "constraints"},
                                                                                {"build_failed", "compile"},
                                                                                {"launch_failed", "runtime"},
                                                                                {"crashed", "runtime"},
                                                                                {"wrong", "correctness"},
                                                                                {"timed_out", "timeout"}}};
  for (const auto& [ours, theirs] : words)
    if (ours == kind) return theirs;
  return kind == "too_slow" ? "timeout" : "correct";
}

/// The parameters in a kernel's name: sk4 is sk = 4.
void add_parameters(const std::string& kernel, Json& configuration) {
  if (!family_of_kernel_name(kernel)) return;
  const std::vector<std::string_view> parts = split(kernel, '_');
  configuration["family"] = parts.front();
  for (std::size_t index = 2; index < parts.size(); ++index) {
    const std::string_view part = parts[index];
    const std::size_t digits = part.find_first_of("0123456789-");
    if (digits == 0 || digits == std::string_view::npos) {
      configuration[std::string(part)] = true;
      continue;
    }
    const std::string_view value = part.substr(digits);
    const auto number = parse_integer(value);
    configuration[std::string(part.substr(0, digits))] = number ? Json(*number) : Json(value);
  }
}

void add_measurement(Json& measurements, std::string_view name, double value, std::string_view unit) {
  if (!std::isfinite(value)) return;
  measurements.push_back({{"name", name}, {"value", value}, {"unit", unit}});
}

}  // namespace

std::string t4_result(const JournalLine& line) {
  const std::string_view invalidity = invalidity_of(line.kind);
  const bool verified = invalidity == "correct" || invalidity == "correctness";
  Json configuration{{"problem", line.problem}, {"m", line.m}, {"kernel", line.candidate}};
  add_parameters(line.candidate, configuration);
  Json runtimes = Json::array();
  for (const double us : line.samples) runtimes.push_back(us / 1000);
  Json measurements = Json::array();
  if (!line.samples.empty()) add_measurement(measurements, "time", median(line.samples), "us");
  if (verified) {
    add_measurement(measurements, "err_ratio", line.err_ratio, "share of elements");
    add_measurement(measurements, "rms_error", line.error.rms, "of the root mean square of y");
    add_measurement(measurements, "max_error", line.error.max, "of the root mean square of y");
  }
  const Json result{{"timestamp", line.at},
                    {"configuration", std::move(configuration)},
                    {"objectives", Json::array({"time"})},
                    {"times", {{"runtimes", std::move(runtimes)}}},
                    {"invalidity", invalidity},
                    {"correctness", verified ? 1 - line.err_ratio : 0.0},
                    {"measurements", std::move(measurements)}};
  return json_line(result);
}

}  // namespace gemmtune::cli
