#include "cli/report_parts.h"

#include "cli/console.h"

namespace gemmtune::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

std::string rest_of_counts(const ShapeList& shapes, std::int64_t candidates) {
  std::string text;
  if (!shapes.complaints.empty())
    text = fmt::format("; {} could not be read", counted(shapes.complaints.size(), "row"));
  return fmt::format("{}; {}\n", text, counted(static_cast<std::size_t>(candidates), "candidate"));
}

std::string speedup_text(const std::optional<double>& speedup) {
  return speedup ? fmt::format("{:.3f}x", *speedup) : "-";
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
  json["verdict"] = to_string(row.verdict);
  json["err_ratio"] = row.err_ratio;
  json["env"] = row.env;
}

}  // namespace gemmtune::cli
