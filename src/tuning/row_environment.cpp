#include <map>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/hash.h"
#include "tuning/tuner.h"

namespace gemmtune {
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
  meaning["observations"] = {{"recorded", utc_text()}};
  for (const auto& [name, value] : observations) meaning["observations"][name] = value;
  environment.json = meaning.dump(-1, ' ', false, replace);
  return environment;
}

}  // namespace gemmtune
