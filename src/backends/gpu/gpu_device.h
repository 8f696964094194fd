// A GPU as a device, over any driver.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/activation/silu_and_mul.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/gpu_runtime.h"
#include "backends/gpu/graph_timer.h"

namespace gemmtune::gpu {

/// Threads: everything but sample may be called from any thread at once; samples serialise among themselves.
/// Kernels and buffers must not outlive the device. A fault (an illegal address …) ends the process's use of
/// the GPU: from then on every call fails and health() returns the first fault.
class GpuDevice final : public LeafDevice {
 public:
  /// Families are made in the order of `entries`.
  GpuDevice(std::unique_ptr<GpuRuntime> runtime, DeviceInfo info, std::span<const FamilyEntry* const> entries,
            const std::string& library_folder);

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return family_pointers_; }
  Status health() const override;
  std::map<std::string, double> observe() override { return runtime_->driver().observe(); }

  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status copy_within(void* to, const void* from, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override;

  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override;
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override;
  Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                       void* plain) const override;

  Status fill_random(void* to, const RandomFill& recipe) override;
  Status silu_and_mul(const SiluAndMul& call, Stream stream) override;
  Result<std::unique_ptr<OutputChecker>> output_checker(const Problem& problem) override;

  void compile_ahead(const Problem& problem, std::span<const Candidate> candidates) override;

  Result<double> sample(const SampleRequest& request) override;
  Status counts_energy() override { return runtime_->driver().joules().status(); }
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override;
  bool times_single_calls() const override { return false; }  // graphs of launches
  void quiesce(std::string_view) override {}                  // its kernels have no threads
  std::size_t last_level_cache_bytes() override;
  std::size_t free_memory_bytes() override;

  void look_for_threads() override {}
  bool is_capturing(Stream stream) const override;

  Result<Candidate> baseline(const Problem& problem) const override;
  Result<Candidate> fallback(const Problem& problem) const override;

 private:
  /// Keeps an error that stays as the device's fault. Returns `status`.
  Status watched(Status status) const;
  /// What building the candidate compiles; nothing where it compiles nothing.
  std::vector<KeyedSource> sources_of(const Problem& problem, const Candidate& candidate) const;

  std::unique_ptr<GpuRuntime> runtime_;
  DeviceInfo info_;
  std::vector<const FamilyInfo*> known_families_;
  std::vector<std::unique_ptr<KernelFamily>> families_;
  std::vector<const KernelFamily*> family_pointers_;
  SiluAndMulKernels silu_and_mul_;
  std::mutex sampling_;
  GraphTimer timer_;
  // What was announced of one problem, by kernel name: a search names the same candidates again and again.
  // Guarded by announcing_.
  std::mutex announcing_;
  std::optional<Problem> announced_problem_;
  std::map<std::string, std::vector<KeyedSource>> announced_;
  mutable std::mutex faults_;
  mutable Status fault_;  // guarded by faults_
};

}  // namespace gemmtune::gpu
