// The energy that a machine's processors take, by the counters of the kernel's power capping framework (RAPL).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace gemmtune::cpu {

inline constexpr const char* default_powercap_folder = "/sys/class/powercap";

/// The sum of all processor packages: cores, caches and memory controller; no memory, no other part of the machine.
class EnergyCounter {
 public:
  /// Microjoules of each package. Each counter begins anew at some value.
  using Reading = std::vector<std::int64_t>;

  /// `folder` has an intel-rapl:<number> for each package. `unsupported` without one; an error if a counter cannot be read.
  static Result<EnergyCounter> open(const std::string& folder);
  Result<Reading> read() const;
  /// From one reading to a later one, between which a counter began anew once at most.
  double joules(const Reading& before, const Reading& after) const;

 private:
  struct Package {
    std::string path;        // of the counter
    std::int64_t range = 0;  // the value at which it begins anew
  };
  std::vector<Package> packages_;
};

}  // namespace gemmtune::cpu
