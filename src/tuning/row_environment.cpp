
#include "tuning/row_environment.h"

#include "base/clock.h"
#include "base/hash.h"
#include "formats/json.h"

namespace gemmtune {
RowEnvironment row_environment(const Device& device, const Policy& policy,
                               const std::map<std::string, double>& observations,
                               const std::map<std::string, RowEnergy>& energies,
                               const std::map<std::string, RowRoutings>& routings,
                               const std::map<std::string, RowBits>& bits, const ComputeRoof* roof) {
  const DeviceInfo& info = device.info();
  Json meaning;  // an ordered map: the text of equal content is equal
  meaning["backend"] = info.backend;
  meaning["device"] = info.model;
  meaning["gfx"] = info.gfx;
  meaning["cu_num"] = info.cu_num;
  meaning["policy"] = policy.text();
  if (!policy.team.empty()) meaning["team"] = policy.team;
  meaning["libraries"] = Json::object();
  for (const Library& library : info.libraries) {
    if (!library.version.empty()) meaning["libraries"][library.name] = library.version;
  }
  meaning["families"] = Json::object();
  for (const KernelFamily* family : device.families()) {
    meaning["families"][std::string(family->name())] = family->revision();
  }
  RowEnvironment environment;
  environment.hash = short_hash(json_line(meaning));
  // By the family that a row's default_kernel names.
  for (const KernelFamily* family : device.families()) {
    if (const std::string text = info.vendor_text(family->name()); !text.empty())
      meaning["opponents"][std::string(family->name())] = text;
  }
  meaning["observations"] = {{"recorded", utc_text()}};
  for (const auto& [name, value] : observations) meaning["observations"][name] = value;
  if (roof != nullptr)
    meaning["observations"]["compute_roof"] = {
        {"tflops", roof->tflops}, {"problem", roof->problem}, {"kernelName", roof->kernel_name}};
  for (const auto& [problem, energy] : energies) {
    Json& row = meaning["observations"]["joules"][problem];
    row = {{"kernelName", energy.kernel.kernel_name},
           {"joules", energy.kernel.joules},
           {"spread", energy.kernel.spread}};
    if (energy.default_kernel) row["default_joules"] = energy.default_kernel->joules;
  }
  for (const auto& [problem, row] : routings) {
    Json& written = meaning["observations"]["routings"][problem];
    for (const RoutingLoss& loss : row.losses) {
      written["kernelName"] = loss.kernel_name;
      written["loss"][loss.routing] = loss.loss;
      written["best"][loss.routing] = loss.best_kernel;
    }
    if (!row.instead_of.empty()) written["instead_of"] = row.instead_of;
  }
  for (const auto& [problem, row] : bits)
    meaning["observations"]["bits"][problem] = {{"class", row.id}, {"evidence", row.evidence}};
  environment.json = json_line(meaning);
  return environment;
}

}  // namespace gemmtune
