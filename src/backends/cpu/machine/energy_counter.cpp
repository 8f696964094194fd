#include "backends/cpu/machine/energy_counter.h"

#include <string_view>

#include "base/file.h"
#include "base/folder.h"
#include "base/text.h"

namespace gemmtune::cpu {
namespace {

/// A package's folder, not one of its parts ("intel-rapl:0:1"): "…/intel-rapl:0".
bool is_zone(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("intel-rapl:") && name.rfind(':') == name.find(':');
}

Result<std::int64_t> number_in(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) {
    return Status::unsupported(
        "{}; many systems let root alone read it: run as root, or let the user read it (chmod a+r)",
        text.message());
  }
  const auto number = parse_integer(trim(*text));
  if (!number || *number < 0) return Status::unsupported("{}: '{}', expected microjoules", path, trim(*text));
  return *number;
}

}  // namespace

Result<EnergyCounter> EnergyCounter::open(const std::string& folder) {
  EnergyCounter counter;
  for (const std::string& zone : paths_in(folder)) {
    if (!is_zone(zone)) continue;
    const auto name = read_file(zone + "/name");
    if (!name.ok() || !name->starts_with("package")) continue;  // "psys" is the whole machine
    Package package{zone + "/energy_uj", 0};
    GEMMTUNE_TRY(package.range, number_in(zone + "/max_energy_range_uj"));
    GEMMTUNE_RETURN_IF_ERROR(number_in(package.path).status());
    counter.packages_.push_back(std::move(package));
  }
  if (!counter.packages_.empty()) return counter;
  return Status::unsupported(
      "{} has no processor package (a folder intel-rapl:<number> whose name is package-<number>): the kernel "
      "has no RAPL here, as in most virtual machines and containers",
      folder);
}

Result<EnergyCounter::Reading> EnergyCounter::read() const {
  Reading reading;
  for (const Package& package : packages_) {
    GEMMTUNE_TRY(const auto value, number_in(package.path));
    reading.push_back(value);
  }
  return reading;
}

double EnergyCounter::joules(const Reading& before, const Reading& after) const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < packages_.size(); ++i) {
    sum += after[i] - before[i];
    if (after[i] < before[i]) sum += packages_[i].range;
  }
  return 1e-6 * static_cast<double>(sum);
}

}  // namespace gemmtune::cpu
