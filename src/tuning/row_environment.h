// The environment of the rows that a run makes.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "measure/policy.h"
#include "select/finals.h"
#include "tuning/compute_roof.h"

namespace gemmtune {

/// The environment of rows made by this request on this device: its hash (the `env` column) and the JSON
/// object behind it. The hash covers device, libraries, families and policy; the object holds observations
/// beside them (the date, and what the caller gives) and what speed-ups are against, which it does not cover.
struct RowEnvironment {
  std::string hash;
  std::string json;
};
/// Joules of a row's kernel and of its default, where both were measured.
struct RowEnergy {
  KernelEnergy kernel;
  std::optional<KernelEnergy> default_kernel;
};
/// What a mixture's kernel loses on routings that it was not tuned on.
struct RowRoutings {
  std::vector<RoutingLoss> losses;  // all of one kernel
  std::string instead_of;           // Settled::instead_of
};
/// The bit class of a row, and what it was seen on.
struct RowBits {
  std::string id;
  std::string evidence;
};
/// `energies`, `routings` and `bits`: by problem text. `roof`: null if it was not measured.
RowEnvironment row_environment(const Device& device, const Policy& policy,
                               const std::map<std::string, double>& observations = {},
                               const std::map<std::string, RowEnergy>& energies = {},
                               const std::map<std::string, RowRoutings>& routings = {},
                               const std::map<std::string, RowBits>& bits = {},
                               const ComputeRoof* roof = nullptr);

}  // namespace gemmtune
