// gemmtune devices: what was found on this machine, and what is missing and why.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/environment.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/report_parts.h"
#include "formats/json.h"
#include "resolve/errata.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* devices_footer = R"(
Errata are kernels of a library that verification found wrong; they are neither tuned nor run (GEMMTUNE_ERRATA=FILE or
FOLDER adds some, none switches them off).

Examples:
  gemmtune devices
  GEMMTUNE_CPU_ISA=avx2 gemmtune devices --json)";

Json json_of(const DeviceInfo& info) {
  Json json = {{"name", info.name}, {"model", info.model}, {"gfx", info.gfx}, {"cu_num", info.cu_num}};
  if (!info.bus_id.empty()) json["bus_id"] = info.bus_id;
  json["libraries"] = Json::array();
  for (const Library& library : info.libraries) {
    Json one = {{"name", library.name}, {"version", library.version}, {"missing", library.why}};
    if (library.year != 0) one["year"] = library.year;
    if (!library.path.empty()) one["path"] = library.path;
    if (!library.passed_over.empty()) one["passed_over"] = library.passed_over;
    json["libraries"].push_back(std::move(one));
  }
  json["errata"] = Json::array();
  for (const Erratum* erratum : DeviceErrata(info).list()) json["errata"].push_back(erratum_json(*erratum));
  return json;
}

std::string device_text(const DeviceInfo& info) {
  std::string text = fmt::format("  {}\n", device_line(info));
  for (const Library& library : info.libraries) {
    text += library.why.empty() ? fmt::format("    {}\n", library.text())
                                : fmt::format("    {}: missing: {}\n", library.name, library.why);
    if (!library.passed_over.empty())
      text += fmt::format("    {}: passed over: {}\n", library.name, library.passed_over);
  }
  for (const Erratum* erratum : DeviceErrata(info).list()) {
    text += fmt::format("    erratum {} ({}): {}, if {}\n", erratum->name, erratum->family, erratum->what,
                        erratum->condition.text());
  }
  return text;
}

Result<int> run_devices(const DeviceOptions& options, bool as_json) {
  GEMMTUNE_TRY(const auto request, device_request(options, read_environment()));
  GEMMTUNE_RETURN_IF_ERROR(known_errata().status);
  Json json;
  json["command"] = "devices";
  json["version"] = GEMMTUNE_VERSION;
  json["backends"] = Json::array();
  std::string text = fmt::format("gemmtune {}\n", GEMMTUNE_VERSION);
  bool known = options.backend == "auto";
  for (const Backend* backend : all_backends()) {
    if (options.backend != "auto" && options.backend != backend->name()) continue;
    known = true;
    const Status available = backend->available();
    const std::string why = backend->why_absent();
    Json entry = {{"name", backend->name()}, {"available", available.ok()}, {"why", why}};
    entry["devices"] = Json::array();
    text += available.ok() ? fmt::format("{}: available\n", backend->name()) : fmt::format("{}\n", why);
    if (available.ok()) {
      for (const DeviceInfo& info : backend->devices(request)) {
        entry["devices"].push_back(json_of(info));
        text += device_text(info);
      }
    }
    json["backends"].push_back(std::move(entry));
  }
  if (!known) return Status::invalid("--backend {}: not in this build", options.backend);
  print_answer(as_json, as_json ? json_document(json) : text);
  return exit_done;
}

}  // namespace

std::function<Result<int>()> declare_devices(CommandOptions& app) {
  auto options = std::make_shared<DeviceOptions>();
  auto json = std::make_shared<bool>(false);
  declare_device_options(app, *options);
  app.add_flag("--json", *json, "One JSON document on stdout");
  app.footer(devices_footer);
  return [options, json] { return run_devices(*options, *json); };
}

}  // namespace gemmtune::cli
