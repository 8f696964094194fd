// A CPU as a device: a set of cores with its pool of threads.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/families/all_families.h"
#include "backends/cpu/machine/core_set.h"
#include "backends/cpu/machine/energy_counter.h"
#include "backends/cpu/machine/isa.h"
#include "backends/cpu/threads/thread_pool_executor.h"

namespace gemmtune::cpu {

struct CpuDeviceOptions {
  CoreSet cores;
  std::optional<Isa> isa_cap;
  std::string module_folder;
  bool pin_threads = false;
  std::string powercap_folder = default_powercap_folder;
};

/// Threads: everything but sample and quiesce may be called from any thread at once; families and kernels are
/// immutable. sample and quiesce serialise among themselves; take the samples of one comparison from one
/// thread, because OpenMP has a team for each. Kernels must not outlive the device.
///
/// With pin_threads the workers of the pool stay on a core each, those of OpenMP are put there from inside
/// their team, and the caller of sample is on the first core for the length of the sample (only then: threads
/// that it starts elsewhere would inherit the pin).
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options);

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return family_pointers_; }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override { return {}; }

  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override;
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override;
  Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                       void* plain) const override;

  Status silu_and_mul(const SiluAndMul& call, Stream stream) override;

  Result<double> sample(const SampleRequest& request) override;
  /// All packages of the machine, whichever cores are the device's.
  Status counts_energy() override { return EnergyCounter::open(powercap_folder_).status(); }
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override;
  bool times_single_calls() const override { return true; }
  /// `last_level_cache_mib`: half of what the cold pools are asked to hold.
  std::map<std::string, double> observe() override;
  std::size_t last_level_cache_bytes() override;
  std::size_t free_memory_bytes() override;
  void quiesce(std::string_view thread_pool) override;

  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  Status check_layout(const Problem& problem, WeightLayout layout) const;

  CoreList cores_;
  Isa level_;
  bool pin_threads_;
  std::string powercap_folder_;
  ThreadPoolExecutor executor_;
  FamilyList families_;
  std::vector<const KernelFamily*> family_pointers_;
  DeviceInfo info_;
  std::mutex sampling_;
  std::string active_pool_;  // guarded by sampling_
};

/// What info() of a device with these options says, without its threads.
DeviceInfo describe_device(const CoreList& cores, Isa isa, std::vector<Library> libraries);

}  // namespace gemmtune::cpu
