// A CPU as a device: a set of cores with its team of threads.
#pragma once

#include <array>
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
#include "backends/cpu/machine/processor_waits.h"
#include "backends/cpu/threads/thread_team.h"

namespace gemmtune::cpu {

struct CpuDeviceOptions {
  CoreSet cores;
  std::optional<Isa> isa_cap;
  std::string module_folder;
  std::vector<std::string> onednn_folders;
  bool pin_threads = false;
  bool serves = false;  // DeviceRequest's
  Team team = Team::automatic;
  int last_level_cache_mib = 0;  // DeviceRequest's
  std::string powercap_folder = default_powercap_folder;
};

/// Threads: everything but sample and quiesce may be called from any thread at once; families and kernels are
/// immutable. sample and quiesce serialise among themselves; take the samples of one comparison from one
/// thread, because OpenMP has a team for each. Kernels must not outlive the device.
///
/// With pin_threads the workers of our pool stay on a core each, those of OpenMP are put there from inside
/// their team, and the caller of sample is on the first core for the length of the sample (only then: threads
/// that it starts elsewhere would inherit the pin).
class CpuDevice final : public LeafDevice {
 public:
  /// `not_found` with Team::openmp if there is no OpenMP runtime.
  static Result<std::unique_ptr<CpuDevice>> open(const CpuDeviceOptions& options);

  const DeviceInfo& info() const override { return infos_[static_cast<std::size_t>(team_.running())]; }
  void look_for_threads() override;
  std::span<const KernelFamily* const> families() const override { return family_pointers_; }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override { return {}; }
  Status health() const override { return {}; }  // what faults ends the process

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
  void begin_processor_waits() override;
  double processor_waits() override;
  bool gather_threads() override;
  std::unique_ptr<Kernel> reading_kernel(std::size_t bytes) const override;
  /// `last_level_cache_mib`: half of what the cold pools are asked to hold.
  std::map<std::string, double> observe() override;
  std::size_t last_level_cache_bytes() override;
  std::size_t free_memory_bytes() override;
  void quiesce(std::string_view thread_pool) override;
  void compile_ahead(const Problem&, std::span<const Candidate>) override {}  // compiles nothing
  bool is_capturing(Stream) const override { return false; }

  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  explicit CpuDevice(const CpuDeviceOptions& options);
  Status check_layout(const Problem& problem, WeightLayout layout) const;
  /// silu over a matrix of 2 MiB on the team. Guarded by sampling_.
  void run_parallel_pass();

  CoreList cores_;
  Isa level_;
  bool pin_threads_;
  int last_level_cache_mib_;
  std::string powercap_folder_;
  bool serves_;
  ThreadTeam team_;
  FamilyList families_;
  std::vector<const KernelFamily*> family_pointers_;
  std::array<DeviceInfo, static_cast<std::size_t>(Team::callback) + 1>
      infos_;  // by the team that kernels run on
  std::mutex sampling_;
  std::string active_pool_;     // guarded by sampling_
  std::vector<float> pass_in_;  // guarded by sampling_; empty until a sample has a parallel pass
  std::vector<float> pass_out_;
  ProcessorWaits waits_;  // guarded by sampling_
};

/// What info() of a device with these options says, without its threads. `team`: that kernels run on.
DeviceInfo describe_device(const CoreList& cores, Isa isa, Team team, std::vector<Library> libraries);

}  // namespace gemmtune::cpu
