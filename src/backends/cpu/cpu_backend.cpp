#include "backends/cpu/cpu_backend.h"

#include <utility>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/machine/core_set.h"
#include "backends/cpu/machine/system_limits.h"
#include "backends/cpu/threads/thread_team.h"
#include "backends/traits.h"

namespace gemmtune::cpu {
namespace {

Result<CpuDeviceOptions> read_request(const DeviceRequest& request) {
  CpuDeviceOptions options;
  GEMMTUNE_TRY(options.cores,
               choose_cores(request.text, request.threads, team_affinity(request.team), cpu_quota()));
  if (!request.isa_cap.empty()) {
    options.isa_cap = parse_isa(request.isa_cap);
    if (!options.isa_cap) {
      return Status::invalid("instruction-set level '{}', expected scalar, avx2, avx512, avx512bf16 or amx",
                             request.isa_cap);
    }
  }
  options.module_folder = request.module_folder;
  options.onednn_folders = request.onednn_folders;
  options.pin_threads = request.pin_threads;
  options.serves = request.serves;
  options.team = request.team;
  options.last_level_cache_mib = request.last_level_cache_mib;
  if (!request.powercap_folder.empty()) options.powercap_folder = request.powercap_folder;
  return options;
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  const DeviceTraits& traits() const override {
    static const auto families = [] {
      std::vector<const FamilyInfo*> infos;
      for (const FamilyEntry* entry : family_entries()) infos.push_back(&entry->info);
      return infos;
    }();
    static const DeviceTraits traits{.runs_on_host = true,
                                     .compiles_ahead = false,
                                     .dependent_launches = false,
                                     .tensor_core_sums = false,
                                     .sample_microseconds = cpu_sample_microseconds,
                                     .confirmation_passes = 2,
                                     .pass_factor = 1.2,
                                     .unit = "core",
                                     .units = "cores",
                                     .families = families};
    return traits;
  }
  Status available() const override { return {}; }

  std::vector<DeviceInfo> devices(const DeviceRequest& request) const override {
    const auto options = read_request(request);
    if (!options.ok()) return {};
    const Isa isa = detect_isa(options->isa_cap);
    FamilyList list;
    add_vendor_families(
        {isa, options->isa_cap, options->cores.cores, options->module_folder, options->onednn_folders}, list);
    ThreadTeam team(options->team, {});
    (void)team.look();
    return {describe_device(options->cores.cores, isa, team.running(), std::move(list.libraries))};
  }

  Result<std::unique_ptr<Device>> open(const DeviceRequest& request) const override {
    GEMMTUNE_TRY(auto options, read_request(request));
    GEMMTUNE_TRY(auto device, CpuDevice::open(options));
    return device;
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace gemmtune::cpu
