#include <ctime>
#include <map>

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

/// UTC, to the second, ISO 8601.
std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

}  // namespace

RowEnvironment row_environment(const Device& device, const Policy& policy,
                               const std::map<std::string, double>& observations) {
  const DeviceInfo& info = device.info();
  nlohmann::json meaning;  // an ordered map: the text of equal content is equal
  meaning["backend"] = info.backend;
  meaning["device"] = info.model;
  meaning["gfx"] = info.gfx;
  meaning["cu_num"] = info.cu_num;
  meaning["policy"] = policy.text();
  meaning["libraries"] = nlohmann::json::object();
  for (const Library& library : info.libraries) {
    if (!library.version.empty()) meaning["libraries"][library.name] = library.version;
  }
  meaning["families"] = nlohmann::json::object();
  for (const KernelFamily* family : device.families()) {
    meaning["families"][std::string(family->name())] = family->revision();
  }
  RowEnvironment environment;
  constexpr auto replace = nlohmann::json::error_handler_t::replace;  // a model name that is no UTF-8
  environment.hash = short_hash(meaning.dump(-1, ' ', false, replace));
  meaning["observations"] = {{"recorded", now_text()}};
  for (const auto& [name, value] : observations) meaning["observations"][name] = value;
  environment.json = meaning.dump(-1, ' ', false, replace);
  return environment;
}

}  // namespace gemmtune
