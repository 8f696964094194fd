#include "backends/device_request.h"

#include <limits>

namespace gemmtune {
namespace {

constexpr std::int64_t max_threads = std::numeric_limits<int>::max();
constexpr std::int64_t max_last_level_cache_mib = 4096;

Result<int> thread_count(std::int64_t option, const NumberVariable& variable) {
  if (option < 0 || option > max_threads) {
    return Status::invalid("threads = {}, expected a whole number from 0 (all cores) to {}", option,
                           max_threads);
  }
  if (option > 0) return static_cast<int>(option);
  GEMMTUNE_TRY(const auto set, variable.read(0, max_threads));
  return static_cast<int>(set.value_or(0));
}

Result<Team> team_of(const DeviceChoice& choice, const std::string& variable) {
  if (choice.team != Team::automatic) return choice.team;
  const auto set = parse_team(variable.empty() ? "auto" : variable);
  if (!set) return Status::invalid("GEMMTUNE_TEAM {}: expected auto, own or openmp", variable);
  return *set == Team::automatic ? choice.default_team : *set;
}

}  // namespace

Result<DeviceRequest> device_request(const DeviceChoice& choice, const Environment& environment) {
  GEMMTUNE_TRY(const auto threads, thread_count(choice.threads, environment.threads));
  GEMMTUNE_TRY(const auto team, team_of(choice, environment.team));
  GEMMTUNE_TRY(const auto last_level_cache_mib,
               environment.last_level_cache_mib.read(0, max_last_level_cache_mib));
  DeviceRequest request;
  request.text = choice.text;
  request.threads = threads;
  request.isa_cap = environment.cpu_isa;
  request.module_folder = environment.module_folder;
  request.onednn_folders = environment.onednn_folders;
  request.kernel_cache_folder = environment.kernel_cache_folder;
  request.rebuild_kernels = environment.rebuild_kernels;
  request.pin_threads = choice.pin_threads;
  request.team = team;
  request.last_level_cache_mib = static_cast<int>(last_level_cache_mib.value_or(0));
  request.powercap_folder = environment.powercap_folder;
  return request;
}

}  // namespace gemmtune
